"""The event log of one step, filled while it happens: the only record that the engine keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from kvlab.engine.events import (
    Arrived,
    BlockReleased,
    Event,
    KeptWaiting,
    KvWritten,
    Preempted,
    Resumed,
    Scheduled,
)
from kvlab.engine.request import Request, ScheduledRequest
from kvlab.engine.resume_method import Resumption

E = TypeVar("E", bound=Event)


class EventLog:
    """Events in the order in which they happened; `step` is the number of the current step.

    `record` takes any event; the verbs below it make the ones that say much of a request. `witness`
    is told of each event at the moment when it is recorded, before anything else happens: the only
    time at which the values that it speaks of are sure to lie in memory.
    """

    def __init__(self) -> None:
        self.step = 0
        self.witness: Callable[[Event], None] | None = None
        self.events: list[Event] = []  # since the last `take`

    def record(self, event: E) -> E:
        """Append an event, stamped with the current step, and return it."""
        object.__setattr__(event, "step", self.step)  # the one change in a frozen event's life
        self.events.append(event)
        if self.witness is not None:
            self.witness(event)
        return event

    def take(self) -> tuple[Event, ...]:
        """The events since the last call."""
        events, self.events = tuple(self.events), []
        return events

    # Verbs.

    def arrived(self, request: Request) -> None:
        self.record(
            Arrived(
                id=request.id,
                history=len(request.history),
                max_tokens=request.max_tokens,
                priority=request.priority,
            )
        )

    def resumed(
        self, request: Request, why: str, kv: int, *, stays: int = 0, from_cache: int = 0
    ) -> None:
        """`kv` positions are on the GPU, or on their way."""
        self.record(
            Resumed(
                id=request.id,
                why=why,
                history=len(request.history),
                kv=kv,
                stays=stays,
                rebuild=max(0, request.ever_computed - kv),
                from_cache=from_cache,
            )
        )

    def kept_waiting(self, request: Request, why: str, needs: int, free: int) -> None:
        self.record(
            KeptWaiting(
                id=request.id, why=why, needs=needs, free=free, history=len(request.history)
            )
        )

    def scheduled(self, request: Request, why: str, tokens: int, *, samples: bool) -> None:
        end = request.computed + tokens
        self.record(
            Scheduled(
                id=request.id,
                why=why,
                start=request.computed,
                tokens=tokens,
                again=max(0, min(end, request.ever_computed) - request.computed),
                samples=samples,
            )
        )

    def preempted(
        self,
        request: Request,
        need_of: str | None,
        why: str,
        resume: Resumption,
        *,
        reclaimable: int,
        stays: int,
    ) -> None:
        """The request still holds its blocks: `reclaimable` of them will become free, and it will
        keep `stays`."""
        self.record(
            Preempted(
                id=request.id,
                need_of=need_of,
                victim=why,
                why=why,
                method=resume.method,
                fallback=resume.fallback,
                reclaimable=reclaimable,
                held=len(request.table),
                stays=stays,
                history=len(request.history),
                kv=request.computed,
                delivered=request.num_outputs,
                recompute_s=resume.recompute_s,
                swap_s=resume.swap_s,
            )
        )

    def released(
        self,
        request: Request,
        why: str,
        blocks: Sequence[int],
        *,
        freed: Sequence[int],
        cached: Sequence[int],
        free: int,
        next_up: tuple[str, int] | None,
    ) -> None:
        """`next_up` is who waits at the head of the queue, and the blocks that it needs."""
        next_id, next_needs = next_up or (None, None)
        self.record(
            BlockReleased(
                id=request.id,
                why=why,
                blocks=tuple(blocks),
                freed=tuple(freed),
                cached=tuple(cached),
                free=free,
                next_id=next_id,
                next_needs=next_needs,
            )
        )

    def kv_written(self, scheduled: ScheduledRequest, ever_computed: int, block_size: int) -> None:
        """One event for each block written, split where rebuilt positions end."""
        first = scheduled.start
        while first < scheduled.end:
            rebuilt = first < ever_computed
            logical, slot = divmod(first, block_size)
            ends = (logical + 1) * block_size, scheduled.end, ever_computed
            end = min(ends if rebuilt else ends[:2])
            self.record(
                KvWritten(
                    id=scheduled.id,
                    why="rebuilt" if rebuilt else "first",
                    block=scheduled.table[logical],
                    logical=logical,
                    slot=slot,
                    first=first,
                    last=end - 1,
                )
            )
            first = end
