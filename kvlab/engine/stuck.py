"""Runs in which nothing can ever change any more, and how they end."""

from __future__ import annotations

from collections.abc import Sequence

from kvlab.engine.events import (
    Admitted,
    CopyFailed,
    Event,
    Finished,
    Preempted,
    SwapInAdvanced,
    SwapOutAdvanced,
)
from kvlab.engine.request import Request, RequestState
from kvlab.engine.scheduler import Scheduler

PROGRESS = (Admitted, CopyFailed, Finished, Preempted, SwapInAdvanced, SwapOutAdvanced)
"""What makes the next step another one than this."""


def nothing_done(scheduler: Scheduler, events: Sequence[Event]) -> bool:
    """A step, told by its events, computed nothing and changed nothing that the next step looks at."""
    return not scheduler.plan.batch and not any(isinstance(event, PROGRESS) for event in events)


def end_all(scheduler: Scheduler) -> None:
    """Every live request ends with kv_capacity and a message that says who holds what."""
    live = scheduler.queues.live
    holds = ", ".join(f"{r.id} holds {len(r.table)}" for r in live if r.table)
    messages = [f"{why_stuck(scheduler, r)}: {holds or 'nobody holds any'}" for r in live]
    for request, message in zip(live, messages, strict=True):
        scheduler.finish(request, "kv_capacity", message)


def why_stuck(scheduler: Scheduler, request: Request) -> str:
    """What the request still waits for."""
    config, free = scheduler.config, scheduler.kv.pool.free
    if request.state is RequestState.PAUSED:
        whose = f" for {request.paused_for}" if request.paused_for else ""
        return f"is paused{whose}, and nothing to come resumes it"
    waiting = scheduler.queues.waiting
    ahead = waiting[0] if request in waiting else request
    if ahead is not request:
        return f"waits behind {ahead.id}, which cannot go on"
    needs = config.blocks_for(len(request.history)) - len(request.table)
    return (
        f"needs {needs} more of {config.num_blocks} blocks, {free} are free and nothing will "
        "release one"
    )
