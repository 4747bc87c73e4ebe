"""Swapping: KV leaves for host blocks and comes back, now or over several steps.

Three orderings keep it safe: KV is written before it is copied out; the copy out is complete before
its GPU blocks are released; the last read of a destination block is over before it is copied into.
(kvlab.engine.unsafe_swap breaks each of them on purpose, to show what it is for.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvlab.engine.event_log import EventLog
from kvlab.engine.events import (
    CopyFailed,
    HostBlockReleased,
    SwapInAdvanced,
    SwapInFinished,
    SwapInStarted,
    SwapOutAdvanced,
    SwapOutFinished,
    SwapOutStarted,
)
from kvlab.engine.host_pool import HostPool
from kvlab.engine.kv_cache_manager import KVCacheManager
from kvlab.engine.request import Request, RequestState, ScheduledRequest
from kvlab.engine.runner import CopyError, Runner


@dataclass(slots=True, eq=False)
class Copy:
    """One request's KV on its way. `done` of its blocks have been moved."""

    number: int
    direction: str  # out | in
    request: Request
    blocks: list[int]
    host_blocks: list[int]
    kv: int  # positions
    done: int = 0

    @property
    def complete(self) -> bool:
        return self.done == len(self.blocks)

    @property
    def whole(self) -> dict[str, Any]:
        """What its first event says of it."""
        blocks, host_blocks = tuple(self.blocks), tuple(self.host_blocks)
        return self.named | {"blocks": blocks, "host_blocks": host_blocks, "kv": self.kv}

    @property
    def named(self) -> dict[str, Any]:
        return {"id": self.request.id, "copy": self.number}


class Swap:
    """The host pool and the copies in flight.

    With `copy_blocks_per_step` null a copy is complete when its start returns. Else so many blocks a
    step are moved in all: `advance` moves them, oldest copy first, out before in; `retire` gives the
    GPU blocks of finished copies out back at the start of the next step.
    """

    def __init__(self, kv: KVCacheManager, runner: Runner, log: EventLog) -> None:
        self.host = HostPool(kv.config.host_blocks)
        self.in_flight: list[Copy] = []  # not settled yet, oldest first
        self.kv = kv
        self.runner = runner
        self.log = log
        self._rate = kv.config.copy_blocks_per_step
        self._left = self._rate  # of the step's share of blocks to move; None: no limit
        self._count = 0

    @property
    def blocks_to_come(self) -> int:
        """GPU blocks that become free when the copies out are complete."""
        out = [copy for copy in self.in_flight if copy.direction == "out"]
        return sum(self.kv.pool.reclaimable(copy.blocks) for copy in out)

    def blocks_to_store(self, request: Request) -> int:
        """Host blocks that a swap out of the request needs now."""
        return self.kv.config.blocks_for(request.computed)

    # Out.

    def start_out(self, request: Request) -> None:
        """Begin to store the request's KV; the host pool has room for it.

        The table is empty afterwards, its blocks belong to the copy (or are released, once stored).
        """
        stored = self.blocks_to_store(request)
        self.kv.release(request, "preempted", keep=stored)  # reserved, but without KV
        copy = self._open("out", request, request.table, self.host.allocate(stored))
        request.host_table, request.host_kv = copy.host_blocks[:], request.computed
        request.table, request.computed, request.hashed_blocks = [], 0, 0
        request.state = RequestState.SWAPPING_OUT
        self.log.record(SwapOutStarted(**copy.whole))
        self.kv.pool.lend(copy.blocks)
        self.begin_out(copy)

    def _open(
        self, direction: str, request: Request, blocks: list[int], host_blocks: list[int]
    ) -> Copy:
        self._count += 1
        kv = request.computed if direction == "out" else request.host_kv
        copy = Copy(self._count, direction, request, blocks, host_blocks, kv)
        self.in_flight.append(copy)
        return copy

    def begin_out(self, copy: Copy) -> None:
        """Without a rate the copy is complete at once, and its GPU blocks are released."""
        if self._rate is None:
            self.move(copy)
            self.retire()

    def retire(self) -> None:
        """At the start of a step: the GPU blocks of complete copies out become free."""
        for copy in list(self.in_flight):
            if copy.direction == "out" and copy.complete:
                self.in_flight.remove(copy)
                self.kv.give_back(copy.request, "swapped_out", copy.blocks, lent=True)

    # In.

    def readers_to_overwrite(
        self, needs: int, running: Sequence[Request], batch: Mapping[str, ScheduledRequest]
    ) -> list[Request]:
        """Requests whose blocks a copy in may take before their last read: nobody's, in safety."""
        return []

    def start_in(self, request: Request, readers: Sequence[Request] = ()) -> None:
        """Allocate blocks for the stored KV and begin to bring it back; there is room.

        The request is SWAPPING_IN until `advance` completes the copy; without a rate it is RUNNING with
        its table on return, or PREEMPTED, without stored KV, if the copy failed.
        """
        blocks = self.kv.allocate(request, len(request.host_table), 0, "restore")
        copy = self.open_in(request, blocks)
        if self._rate is None:
            self.move(copy)
            self._finish_complete()

    def open_in(self, request: Request, blocks: list[int]) -> Copy:
        """A copy of the stored KV into `blocks` is under way."""
        copy = self._open("in", request, blocks, request.host_table[:])
        self.kv.pool.lend(blocks)
        request.state = RequestState.SWAPPING_IN
        self.log.record(SwapInStarted(**copy.whole))
        return copy

    def _finish_complete(self) -> None:
        for copy in list(self.in_flight):
            if copy.direction == "in" and copy.complete:
                self.finish_in(copy)

    def finish_in(self, copy: Copy) -> None:
        """The request has its KV again: its table starts with the copy's blocks."""
        request = copy.request
        self.in_flight.remove(copy)
        self.kv.pool.settle(copy.blocks)
        request.table, request.computed = copy.blocks[:], copy.kv
        request.state = RequestState.RUNNING
        self.log.record(SwapInFinished(**copy.named, blocks=tuple(copy.blocks), kv=copy.kv))
        self._release_host(request, "restored")

    # Moving.

    def advance(self) -> None:
        """At the end of a step: move what is left of its share of blocks, out before in, oldest
        first."""
        for direction in ("out", "in"):
            for copy in list(self.in_flight):
                if copy.direction == direction and not copy.complete:
                    self.move(copy)
        self._finish_complete()
        self._left = self._rate

    def move(self, copy: Copy) -> None:
        """Move the copy's next blocks, within the step's share."""
        if self._left == 0:
            return
        end = len(copy.blocks) if self._left is None else copy.done + self._left
        blocks, host_blocks = copy.blocks[copy.done : end], copy.host_blocks[copy.done : end]
        out = copy.direction == "out"
        try:
            if out:
                self.copy_out(list(zip(blocks, host_blocks, strict=True)))
            else:
                self.runner.copy_in(list(zip(host_blocks, blocks, strict=True)))
        except CopyError as error:
            self._fail(copy, str(error))
            return
        copy.done += len(blocks)
        if self._left is not None:
            self._left -= len(blocks)
        advanced = SwapOutAdvanced if out else SwapInAdvanced
        self.log.record(
            advanced(
                **copy.named,
                blocks=tuple(blocks),
                host_blocks=tuple(host_blocks),
                done=copy.done,
                total=len(copy.blocks),
            )
        )
        if copy.complete and out:
            copy.request.state = RequestState.SWAPPED
            self.log.record(SwapOutFinished(**copy.named, kv=copy.kv))

    def copy_out(self, pairs: list[tuple[int, int]]) -> None:
        """(GPU block, host block) for each block to move. Raises CopyError."""
        self.runner.copy_out(pairs)

    # Giving up.

    def _fail(self, copy: Copy, message: str) -> None:
        direction = copy.direction
        self.log.record(CopyFailed(**copy.named, why=direction, message=message))
        self.drop(copy, "preempted")
        self._release_host(copy.request, "copy_failed")
        copy.request.state = RequestState.PREEMPTED

    def drop(self, copy: Copy, why: str) -> None:
        self.in_flight.remove(copy)
        self.kv.give_back(copy.request, why, copy.blocks, lent=True)

    def cancel(self, request: Request, why: str) -> None:
        """The request needs neither its stored KV nor a copy of it any more."""
        for copy in list(self.in_flight):
            if copy.request is request:
                self.drop(copy, why)
        self._release_host(request, why)

    def _release_host(self, request: Request, why: str) -> None:
        if request.host_table:
            blocks = tuple(request.host_table)
            self.host.release(blocks)
            request.host_table, request.host_kv = [], 0
            free = self.host.free
            self.log.record(
                HostBlockReleased(id=request.id, why=why, host_blocks=blocks, host_free=free)
            )
