"""What lies between two outputs of a request: decoding, waiting and recovery. A view over events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Gap:
    """The steps between two outputs of a request that its user received one after the other.

    `steps` = waiting + recovery + decoding. Recovery follows a preemption alone: it runs from the
    step that resumed the request (the last one that did) to the one that delivers. Of the other steps
    those are waiting in which the request did not run: it was paused, stalled, preempted, or a copy
    was under way; the rest is decoding.
    """

    id: str
    after: int  # number of the earlier output: 1 for the gap between x1 and x2
    steps: int
    waiting: int
    recovery: int

    @property
    def decoding(self) -> int:
        return self.steps - self.waiting - self.recovery


@dataclass(slots=True)
class _Since:
    """What happened to a request since its last output."""

    ran: set[int] = field(default_factory=set)
    preempted: bool = False
    resumed: int | None = None


def gaps(events: Iterable[Mapping[str, Any]]) -> dict[str, list[Gap]]:
    """The gaps of each request that arrived, oldest first, from a run's events as they stand in a
    trace; forks are requests of their own."""
    found: dict[str, list[Gap]] = {}
    since: dict[str, _Since] = {}
    for event in events:
        kind, step = event["kind"], event["step"]
        if kind in ("arrived", "forked"):
            found[event["id"]], since[event["id"]] = [], _Since()
        elif kind == "scheduled":
            since[event["id"]].ran.add(step)
        elif kind == "unscheduled":
            since[event["id"]].ran.discard(step)
        elif kind == "preempted":
            since[event["id"]].preempted, since[event["id"]].resumed = True, None
        elif kind == "resumed":
            since[event["id"]].resumed = step
        elif kind == "token_delivered":
            id = event["id"]
            if event["gap"] is not None:
                found[id].append(_split(id, event["index"] - 1, event["gap"], step, since[id]))
            since[id] = _Since()
    return found


def _split(id: str, after: int, steps: int, end: int, since: _Since) -> Gap:
    if since.preempted and since.resumed is not None:
        recovery = end - since.resumed + 1
        return Gap(id, after, steps, steps - recovery, recovery)
    return Gap(id, after, steps, steps - len(since.ran), 0)
