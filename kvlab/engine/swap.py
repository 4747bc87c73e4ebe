"""Swapping: KV leaves for host blocks and comes back, now or over several steps.

Three orderings keep it safe: KV is written before it is copied out; the copy out is complete before
its GPU blocks are released; the last read of a destination block is over before it is copied into.
(kvlab.engine.unsafe_swap breaks each of them on purpose, to show what it is for.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from kvlab.engine.copies import Copies, Copy
from kvlab.engine.event_log import EventLog
from kvlab.engine.events import (
    CopyFailed,
    SwapInFinished,
    SwapInStarted,
    SwapOutFinished,
    SwapOutStarted,
)
from kvlab.engine.host_pool import HostPool
from kvlab.engine.kv_cache_manager import KVCacheManager
from kvlab.engine.request import Request, RequestState, ScheduledRequest
from kvlab.engine.runner import CopyError, Runner


class Swap:
    """The host pool and the copies in flight.

    With `copy_blocks_per_step` null a copy is complete when its start returns. Else so many blocks a
    step are moved in all: `advance` moves them, oldest copy first, out before in; `retire` gives the
    GPU blocks of finished copies out back at the start of the next step.
    """

    def __init__(self, kv: KVCacheManager, runner: Runner, log: EventLog) -> None:
        self.kv = kv
        self.runner = runner
        self.log = log
        self.host = HostPool(kv.config.host_blocks, log)
        rate, block_size = kv.config.copy_blocks_per_step, kv.config.block_size
        self.copies = Copies(runner, log, rate=rate, block_size=block_size)

    @property
    def blocks_to_come(self) -> int:
        """GPU blocks that become free when the copies out are complete."""
        return sum(self.kv.pool.reclaimable(copy.blocks) for copy in self.copies.going("out"))

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
        self.store(request, self.to_store(request), range(used))

    def store(self, request: Request, places: list[int], of_table: Sequence[int]) -> None:
        """`places` go; `of_table` are the places of the table's entries, in order."""
        if not places:  # nothing moves, all of the table stays
            request.state = RequestState.SWAPPED
            self.log.record(SwapOutFinished(id=request.id, copy=self.copies.number(), kv=0))
            return
        size = self.kv.config.block_size
        entry = dict(zip(of_table, request.table, strict=True))
        stay = [place for place in of_table if place not in places]
        kv = request.computed - len(stay) * size  # what stays is full
        blocks = [entry[place] for place in places]
        host_blocks = self.host.keep(request, places, kv)
        copy = self.copies.open("out", request, places, blocks, host_blocks, kv)
        request.table = [entry[place] for place in stay]
        request.computed = len(stay) * size
        request.hashed_blocks = min(request.hashed_blocks, places[0])
        request.state = RequestState.SWAPPING_OUT
        self.log.record(SwapOutStarted(**copy.whole))
        self.kv.pool.lend(copy.blocks)
        self.begin_out(copy)

    def begin_out(self, copy: Copy) -> None:
        """Without a rate the copy is complete at once, and its GPU blocks are released."""
        if self.copies.rate is None:
            self.move(copy)
            self.retire()

    def retire(self) -> None:
        """At the start of a step: the GPU blocks of complete copies out become free."""
        for copy in self.copies.going("out"):
            if copy.complete:
                self.copies.settle(copy)
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
            self.finish_in(Copy(self.copies.number(), "in", request, [], [], [], 0))
            return
        copy = self.open_in(request, self.allocate_for(request, sorted(request.host_places)))
        if self.copies.rate is None:
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
        copy = self.copies.open("in", request, places, blocks, host_blocks, request.host_kv)
        self.kv.pool.lend(blocks)
        request.state = RequestState.SWAPPING_IN
        self.log.record(SwapInStarted(**copy.whole))
        return copy

    def _finish_complete(self) -> None:
        for copy in self.copies.going("in"):
            if copy.complete:
                self.finish_in(copy)

    def finish_in(self, copy: Copy) -> None:
        """The request has its KV again: the copy's blocks take their places in its table."""
        request = copy.request
        self.copies.settle(copy)
        self.kv.pool.settle(copy.blocks)
        for place, block in zip(copy.places, copy.blocks, strict=True):
            request.table.insert(place, block)
        request.computed += copy.kv
        request.state = RequestState.RUNNING
        blocks, table = tuple(copy.blocks), tuple(request.table)
        self.log.record(SwapInFinished(**copy.named, blocks=blocks, kv=copy.kv, table=table))
        self.host.give_up(request, "restored")

    # Moving.

    def advance(self) -> None:
        """At the end of a step: move what is left of its share of blocks, out before in, oldest
        first."""
        for copy in [*self.copies.going("out"), *self.copies.going("in")]:
            if not copy.complete:
                self.move(copy)
        self._finish_complete()
        self.copies.next_step()

    def move(self, copy: Copy) -> None:
        """Move the copy's next blocks; where that fails its request will be computed again."""
        try:
            self.copies.move(copy)
        except CopyError as error:
            why, message = copy.direction, str(error)
            self.log.record(CopyFailed(**copy.named, why=why, message=message))
            self.drop(copy, "preempted")
            self.give_all_up(copy.request, "copy_failed")

    # Giving up.

    def give_all_up(self, request: Request, why: str) -> None:
        """What is left of a request's KV goes, here and there: it will be computed again."""
        self.kv.release(request, "preempted")
        request.computed = 0
        self.host.give_up(request, why)
        request.state = RequestState.PREEMPTED

    def drop(self, copy: Copy, why: str) -> None:
        self.copies.settle(copy)
        self.kv.give_back(copy.request, why, copy.blocks, lent=True)

    def cancel(self, request: Request, why: str) -> None:
        """The request needs neither its stored KV nor a copy of it any more."""
        for copy in self.copies.in_flight:
            if copy.request is request:
                self.drop(copy, why)
        self.host.give_up(request, why)
