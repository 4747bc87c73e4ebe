"""Swapping: KV leaves for host blocks and comes back, now or over several steps.

Three orderings keep it safe: KV is written before it is copied out; the copy out is complete before
its GPU blocks are released; the last read of a destination block is over before it is copied into.
(kvlab.engine.unsafe_swap breaks each of them on purpose, to show what it is for.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from kvlab.engine.event_log import EventLog
from kvlab.engine.events import (
    CopyFailed,
    HostBlockReleased,
    Reclaimed,
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
    places: list[int]  # in the request's table, ascending
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
        lists = {name: tuple(getattr(self, name)) for name in ("places", "blocks", "host_blocks")}
        return self.named | lists | {"kv": self.kv}

    def so_far(self, blocks: Sequence[int], host_blocks: Sequence[int]) -> dict[str, Any]:
        """What an event says of its progress; these blocks are the newest."""
        lists = {"blocks": tuple(blocks), "host_blocks": tuple(host_blocks)}
        return self.named | lists | {"done": self.done, "total": len(self.blocks)}

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

    def to_store(self, request: Request) -> list[int]:
        """Places in the table of the blocks that a swap out of the request has to copy.

        Full blocks that others hold, too, stay where they are, in its table. A last one that is not
        full is copied: before somebody writes into it, it would have to be copied anyway.
        """
        full = request.computed // self.kv.config.block_size
        return [
            place
            for place in range(self.kv.config.blocks_for(request.computed))
            if place >= full or self.kv.pool.references(request.table[place]) == 1
        ]

    # Out.

    def start_out(self, request: Request) -> None:
        """Begin to store the KV that the request alone holds; the host pool has room for it.

        Its table keeps what others hold, too. The other blocks belong to the copy (or are released,
        once stored).
        """
        used = self.kv.config.blocks_for(request.computed)
        self.kv.release(request, "preempted", keep=used)  # reserved, but without KV
        self._store(request, self.to_store(request), range(used))

    def _store(self, request: Request, places: list[int], of_table: Sequence[int]) -> None:
        """`places` go; `of_table` are the places of the table's entries, in order."""
        if not places:  # nothing moves, all of the table stays
            self._count += 1
            request.state = RequestState.SWAPPED
            self.log.record(SwapOutFinished(id=request.id, copy=self._count, kv=0))
            return
        size = self.kv.config.block_size
        entry = dict(zip(of_table, request.table, strict=True))
        stay = [place for place in of_table if place not in places]
        kv = request.computed - len(stay) * size  # what stays is full
        blocks, host_blocks = [entry[place] for place in places], self.host.allocate(len(places))
        copy = self._open("out", request, places, blocks, host_blocks, kv)
        request.host_table += host_blocks
        request.host_places += places
        request.host_kv += kv
        request.table = [entry[place] for place in stay]
        request.computed = len(stay) * size
        request.hashed_blocks = min(request.hashed_blocks, places[0])
        request.state = RequestState.SWAPPING_OUT
        self.log.record(SwapOutStarted(**copy.whole))
        self.kv.pool.lend(copy.blocks)
        self.begin_out(copy)

    def _open(
        self,
        direction: str,
        request: Request,
        places: list[int],
        blocks: list[int],
        host_blocks: list[int],
        kv: int,
    ) -> Copy:
        self._count += 1
        copy = Copy(self._count, direction, request, places, blocks, host_blocks, kv)
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
        if not request.host_table:  # all of it stayed
            self.finish_in(Copy(self._count, "in", request, [], [], [], 0))
            return
        copy = self.open_in(request, self.allocate_for(request, sorted(request.host_places)))
        if self._rate is None:
            self.move(copy)
            self._finish_complete()

    def allocate_for(self, request: Request, places: list[int]) -> list[int]:
        """Blocks for stored KV: for each run of neighbours in the table at once."""
        blocks: list[int] = []
        for _, run in groupby(enumerate(places), key=lambda pair: pair[1] - pair[0]):
            neighbours = [place for _, place in run]
            blocks += self.kv.allocate(request, len(neighbours), neighbours[0], "restore")
        return blocks

    def open_in(self, request: Request, blocks: list[int]) -> Copy:
        """A copy of the stored KV into `blocks` is under way."""
        stored = sorted(zip(request.host_places, request.host_table, strict=True))
        places, host_blocks = [place for place, _ in stored], [block for _, block in stored]
        copy = self._open("in", request, places, blocks, host_blocks, request.host_kv)
        self.kv.pool.lend(blocks)
        request.state = RequestState.SWAPPING_IN
        self.log.record(SwapInStarted(**copy.whole))
        return copy

    def _finish_complete(self) -> None:
        for copy in list(self.in_flight):
            if copy.direction == "in" and copy.complete:
                self.finish_in(copy)

    def finish_in(self, copy: Copy) -> None:
        """The request has its KV again: the copy's blocks take their places in its table."""
        request = copy.request
        self.in_flight = [other for other in self.in_flight if other is not copy]
        self.kv.pool.settle(copy.blocks)
        for place, block in zip(copy.places, copy.blocks, strict=True):
            request.table.insert(place, block)
        request.computed += copy.kv
        request.state = RequestState.RUNNING
        blocks, table = tuple(copy.blocks), tuple(request.table)
        self.log.record(SwapInFinished(**copy.named, blocks=blocks, kv=copy.kv, table=table))
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
        newest = copy.so_far(blocks, host_blocks)
        if not out:
            self.log.record(SwapInAdvanced(**newest))
            return
        to_come = copy.kv - min(copy.kv, copy.done * self.kv.config.block_size)
        stored = copy.request.host_kv - to_come
        self.log.record(SwapOutAdvanced(**newest, host_kv=stored))
        if copy.complete:
            copy.request.state = RequestState.SWAPPED
            self.log.record(SwapOutFinished(**copy.named, kv=copy.kv))

    def copy_out(self, pairs: list[tuple[int, int]]) -> None:
        """(GPU block, host block) for each block to move. Raises CopyError."""
        self.runner.copy_out(pairs)

    # Giving up.

    def _fail(self, copy: Copy, message: str) -> None:
        self.log.record(CopyFailed(**copy.named, why=copy.direction, message=message))
        self.drop(copy, "preempted")
        self._give_all_up(copy.request, "copy_failed")

    def _give_all_up(self, request: Request, why: str) -> None:
        """What is left of a request's KV goes, here and there: it will be computed again."""
        self.kv.release(request, "preempted")
        request.computed = 0
        self._release_host(request, why)
        request.state = RequestState.PREEMPTED

    def reclaim(self, waiting: Sequence[Request], needs: int, need_of: str) -> None:
        """Waiting requests give up blocks that only they hold any more, until `needs` are free or on
        their way: last in the queue first, copied out where the host pool has room."""
        for request in reversed(waiting):
            if self.kv.pool.free + self.blocks_to_come >= needs:
                return
            if request.state is not RequestState.SWAPPED or not request.table:
                continue
            idle = self.kv.held_by_nobody_but(waiting)
            places = range(len(request.table) + len(request.host_table))
            kept = [place for place in places if place not in request.host_places]
            go = [p for p, block in zip(kept, request.table, strict=True) if block in idle]
            if not go:
                continue
            why = "swap" if len(go) <= self.host.free else "recompute"
            blocks = tuple(block for block in request.table if block in idle)
            self.log.record(Reclaimed(id=request.id, why=why, need_of=need_of, blocks=blocks))
            if why == "swap":
                self._store(request, go, kept)
            else:
                self._give_all_up(request, "reclaimed")

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
            request.host_table, request.host_places, request.host_kv = [], [], 0
            free = self.host.free
            self.log.record(
                HostBlockReleased(id=request.id, why=why, host_blocks=blocks, host_free=free)
            )
