"""Swapping: KV leaves for host blocks and comes back, now or over several steps.

Three orderings keep it safe: KV is written before it is copied out; the copy out is complete before
its GPU blocks are released; the last read of a destination block is over before it is copied into.
Each can be broken on purpose (`unsafe`), to show what it is for. Broken ones are reproducible: a race
that real hardware may win or lose is lost here every time, and the damage is found by checksums.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvlab.engine.events import (
    BlockAllocated,
    CopyFailed,
    DamageFound,
    HostBlockReleased,
    SwapInAdvanced,
    SwapInFinished,
    SwapInStarted,
    SwapOutAdvanced,
    SwapOutFinished,
    SwapOutStarted,
)
from kvlab.engine.host_pool import HostPool
from kvlab.engine.journal import Journal
from kvlab.engine.kv_space import KvSpace
from kvlab.engine.mover import CopyError, Runner
from kvlab.engine.request import Request, RequestState


@dataclass(slots=True, eq=False)
class Copy:
    """One request's KV on its way. `done` of its blocks have been moved."""

    number: int
    direction: str  # out | in
    request: Request
    blocks: list[int]
    host_blocks: list[int]
    kv: int
    done: int = 0

    @property
    def complete(self) -> bool:
        return self.done == len(self.blocks)

    def next_pairs(self, most: int | None) -> list[tuple[int, int]]:
        """(GPU block, host block) of the next blocks to move, at most `most` (None: all)."""
        end = len(self.blocks) if most is None else self.done + most
        return list(
            zip(self.blocks[self.done : end], self.host_blocks[self.done : end], strict=True)
        )


class Swap:
    """The host pool and the copies in flight.

    With `rate` None a copy is complete when its start returns. With a rate, so many blocks a step
    are moved in all: `advance` moves them, oldest copy first, out before in; `retire` gives the GPU
    blocks of finished copies out back at the start of the next step.
    """

    def __init__(
        self,
        space: KvSpace,
        mover: Runner,
        journal: Journal,
        host_blocks: int,
        rate: int | None,
        unsafe: tuple[str, ...] = (),
    ) -> None:
        self.host = HostPool(host_blocks)
        self._space = space
        self._mover = mover
        self._journal = journal
        self._rate = rate
        self._left = rate  # of the step's share of blocks to move; None: no limit
        self._unsafe = unsafe
        self._release_early = "reuse_before_copied" in unsafe
        self._written: dict[str, list[tuple[int, ...]]] = {}  # what each stored request wrote
        self.damage: list[DamageFound] = []
        self._copies: list[Copy] = []
        self._count = 0
        self.moved: list[tuple[Copy, int]] = []  # (copy, blocks moved) since the last `take_moved`
        self.failed = False  # a copy has broken off in this step
        self.blocks_out = 0
        self.blocks_in = 0

    @property
    def in_flight(self) -> list[Copy]:
        """Copies that are not settled yet, oldest first."""
        return list(self._copies)

    @property
    def blocks_to_come(self) -> int:
        """GPU blocks that become free when the copies out are complete."""
        if self._release_early:
            return 0
        pool = self._space.pool
        return sum(pool.reclaimable(c.blocks) for c in self._copies if c.direction == "out")

    def blocks_to_store(self, request: Request) -> int:
        """Host blocks that a swap out of the request needs now."""
        return self._space.config.blocks_for(request.computed)

    def fits(self, request: Request) -> bool:
        """There is KV to store and the host pool has room for it."""
        return 0 < self.blocks_to_store(request) <= self.host.free

    # Out.

    def start_out(self, request: Request) -> bool:
        """Begin to store the request's KV; `fits` holds. False: the copy failed, nothing is kept.

        The table is empty afterwards, its blocks belong to the copy (or are released, once stored).
        """
        stored = self.blocks_to_store(request)
        self._space.release(request, "preempted", keep=stored)
        copy = self._new_copy("out", request, request.table[:], self.host.allocate(stored))
        request.host_table, request.host_kv = copy.host_blocks[:], request.computed
        if self._unsafe:
            self._written[request.id] = self._fingerprints(copy.blocks, copy.kv)
        self._journal.record(
            SwapOutStarted,
            id=request.id,
            copy=copy.number,
            blocks=tuple(copy.blocks),
            host_blocks=tuple(copy.host_blocks),
            kv=copy.kv,
        )
        self._space.pool.lend(copy.blocks)
        request.table, request.hashed_blocks = [], 0
        request.state = RequestState.SWAPPING_OUT
        if self._release_early:
            self._release_gpu_blocks(copy)
        elif self._rate is None:
            self._move(copy)
            self._retire_out(copy)
        return bool(request.host_table)

    def _new_copy(
        self, direction: str, request: Request, blocks: list[int], host_blocks: list[int]
    ) -> Copy:
        self._count += 1
        kv = request.computed if direction == "out" else request.host_kv
        copy = Copy(self._count, direction, request, blocks, host_blocks, kv)
        self._copies.append(copy)
        return copy

    def _release_gpu_blocks(self, copy: Copy) -> None:
        freed = self._space.pool.release(copy.blocks, lent=True)
        why = "copy_unfinished" if self._release_early else "swapped_out"
        self._space.record_release(copy.request, why, copy.blocks, freed, None)

    def _retire_out(self, copy: Copy) -> None:
        if copy in self._copies:  # a copy that failed has settled itself
            self._copies.remove(copy)
            if not self._release_early:
                self._release_gpu_blocks(copy)

    def retire(self) -> None:
        """At the start of a step: the GPU blocks of complete copies out become free."""
        self.failed, self._left = False, self._rate
        self._retire_complete()

    def _retire_complete(self) -> None:
        for copy in self.in_flight:
            if copy.direction == "out" and copy.complete:
                self._retire_out(copy)

    # In.

    def start_in(self, request: Request) -> bool:
        """Allocate blocks for the stored KV and begin to bring it back; there is room.

        False: the copy failed, the request has no stored KV any more. With a rate the request is
        SWAPPING_IN until `advance` completes the copy, else RUNNING with its table on return.
        """
        copy = self._start_in(request, self._allocate(request, len(request.host_table), logical=0))
        if self._rate is None:
            self._move(copy)
            if copy.complete:
                self._finish_in(copy)
        return bool(request.host_table) or bool(request.table)

    def _allocate(self, request: Request, count: int, logical: int) -> list[int]:
        """Blocks for stored KV, from logical index `logical` on."""
        blocks = self._space.pool.allocate(count)
        self._journal.record(
            BlockAllocated,
            id=request.id,
            why="restore",
            blocks=tuple(blocks),
            logical=logical,
            free=self._space.pool.free,
        )
        return blocks

    def _start_in(self, request: Request, blocks: list[int]) -> Copy:
        copy = self._new_copy("in", request, blocks, request.host_table[:])
        self._space.pool.lend(blocks)
        request.state = RequestState.SWAPPING_IN
        self._journal.record(
            SwapInStarted,
            id=request.id,
            copy=copy.number,
            blocks=tuple(blocks),
            host_blocks=tuple(copy.host_blocks),
            kv=copy.kv,
        )
        return copy

    def start_in_too_early(self, request: Request, ending: list[Request]) -> None:
        """Unsafe: copy into blocks of `ending` requests, which are still to be read in this step.

        The step's share of blocks is moved before the model runs; the copy is settled after it.
        """
        pool, stored = self._space.pool, len(request.host_table)
        victims = [(r, at, b) for r in ending for at, b in enumerate(r.table)][:stored]
        blocks = [block for _, _, block in victims]
        pool.share(blocks)
        for block in blocks:
            pool.forget(block)  # what it could be found by is about to be written over
        if len(blocks) < stored:
            blocks += self._allocate(request, stored - len(blocks), logical=len(blocks))
        size = self._space.config.block_size
        used = [(block, min(size, r.computed - at * size)) for r, at, block in victims]
        before = self._mover.fingerprints(used)
        copy = self._start_in(request, blocks)
        self._move(copy)
        for (owner, at, block), old, new in zip(
            victims, before, self._mover.fingerprints(used), strict=True
        ):
            self._note_damage(owner, "read_before_copy_in", block, at, old, new, restored=False)

    def _finish_in(self, copy: Copy) -> None:
        request = copy.request
        self._check_restored(copy)
        self._copies.remove(copy)
        self._space.pool.settle(copy.blocks)
        request.table, request.computed = copy.blocks[:], copy.kv
        request.state = RequestState.RUNNING
        self._journal.record(
            SwapInFinished,
            id=request.id,
            copy=copy.number,
            blocks=tuple(copy.blocks),
            kv=copy.kv,
        )
        self.release_host(request, "restored")

    # Moving.

    def advance(self) -> None:
        """At the end of a step: move what is left of its share of blocks, out before in, oldest
        first."""
        for direction in ("out", "in"):
            for copy in self.in_flight:
                if copy.direction == direction and not copy.complete:
                    self._move(copy)
        for copy in self.in_flight:
            if copy.direction == "in" and copy.complete:
                self._finish_in(copy)
        if self._release_early:
            self._retire_complete()  # their blocks were given away long ago

    def _move(self, copy: Copy) -> None:
        """Move the copy's next blocks, within the step's share."""
        if self._left == 0:
            return
        pairs = copy.next_pairs(self._left)
        out = copy.direction == "out"
        try:
            if out:
                early = "write_before_copy_out" in self._unsafe
                self._mover.copy_out(pairs, before_last_write=early)
            else:
                self._mover.copy_in([(host, block) for block, host in pairs])
        except CopyError as error:
            self._fail(copy, str(error))
            return
        copy.done += len(pairs)
        if self._left is not None:
            self._left -= len(pairs)
        self.moved.append((copy, len(pairs)))
        self._journal.record(
            SwapOutAdvanced if out else SwapInAdvanced,
            id=copy.request.id,
            copy=copy.number,
            blocks=tuple(block for block, _ in pairs),
            host_blocks=tuple(host for _, host in pairs),
            done=copy.done,
            total=len(copy.blocks),
        )
        if out:
            self.blocks_out += len(pairs)
        else:
            self.blocks_in += len(pairs)
        if copy.complete and out:
            copy.request.state = RequestState.SWAPPED
            self._journal.record(SwapOutFinished, id=copy.request.id, copy=copy.number, kv=copy.kv)

    def take_moved(self) -> list[tuple[Copy, int]]:
        """(copy, blocks moved) since the last call."""
        moved, self.moved = self.moved, []
        return moved

    # Damage.

    def _fingerprints(self, blocks: list[int], kv: int) -> list[tuple[int, ...]]:
        size = self._space.config.block_size
        used = [(block, min(size, kv - at * size)) for at, block in enumerate(blocks)]
        return self._mover.fingerprints(used)

    def _check_restored(self, copy: Copy) -> None:
        """Compare what came back with what was written before the copy out."""
        written = self._written.pop(copy.request.id, None)
        if written is None:
            return
        broken = next((u for u in self._unsafe if u != "read_before_copy_in"), self._unsafe[0])
        restored = self._fingerprints(copy.blocks, copy.kv)
        for at, (block, old, new) in enumerate(zip(copy.blocks, written, restored, strict=True)):
            self._note_damage(copy.request, broken, block, at, old, new, restored=True)

    def _note_damage(
        self,
        request: Request,
        why: str,
        block: int,
        logical: int,
        old: tuple[int, ...],
        new: tuple[int, ...],
        *,
        restored: bool,
    ) -> None:
        layers = tuple(n for n, (a, b) in enumerate(zip(old, new, strict=True)) if a != b)
        if layers:
            event = self._journal.record(
                DamageFound,
                id=request.id,
                why=why,
                block=block,
                logical=logical,
                layers=layers,
                restored=restored,
            )
            self.damage.append(event)

    # Giving up.

    def _fail(self, copy: Copy, message: str) -> None:
        self.failed = True
        self._journal.record(
            CopyFailed, id=copy.request.id, copy=copy.number, why=copy.direction, message=message
        )
        self._drop(copy, "copy_failed")
        copy.request.state = RequestState.PREEMPTED

    def cancel(self, request: Request, why: str) -> None:
        """The request needs neither its stored KV nor a copy of it any more."""
        for copy in self.in_flight:
            if copy.request is request:
                self._drop(copy, why)
        self.release_host(request, why)

    def _drop(self, copy: Copy, why: str) -> None:
        self._copies.remove(copy)
        if not (copy.direction == "out" and self._release_early):
            freed = self._space.pool.release(copy.blocks, lent=True)
            release = "preempted" if why == "copy_failed" else why
            self._space.record_release(copy.request, release, copy.blocks, freed, None)
        self.release_host(copy.request, why)

    def release_host(self, request: Request, why: str) -> None:
        """Give the request's host blocks back."""
        if request.host_table:
            self.host.release(request.host_table)
            blocks = tuple(request.host_table)
            request.host_table, request.host_kv = [], 0
            self._journal.record(
                HostBlockReleased,
                id=request.id,
                why=why,
                host_blocks=blocks,
                host_free=self.host.free,
            )
