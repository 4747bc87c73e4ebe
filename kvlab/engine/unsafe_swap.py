"""A swap that breaks the orderings of a safe one, each on its own switch, to show what it is for.

Broken orderings are reproducible: a race that real hardware may win or lose is lost here every time,
and the damage is found by checksums, never declared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvlab.engine.copies import Copy
from kvlab.engine.event_log import EventLog
from kvlab.engine.events import DamageFound
from kvlab.engine.kv_cache_manager import KVCacheManager
from kvlab.engine.request import Request, ScheduledRequest
from kvlab.engine.runner import Runner
from kvlab.engine.swap import Swap

Checksums = list[tuple[int, ...]]
"""For each block, one of each layer's bytes."""


class UnsafeSwap(Swap):
    """`unsafe` names the orderings that are broken: write_before_copy_out, reuse_before_copied,
    read_before_copy_in."""

    def __init__(self, kv: KVCacheManager, runner: Runner, log: EventLog) -> None:
        super().__init__(kv, runner, log)
        self._unsafe = kv.config.unsafe
        self._release_early = "reuse_before_copied" in self._unsafe
        self.copies.before_last_write = "write_before_copy_out" in self._unsafe
        self._written: dict[int, tuple[int, ...]] = {}  # by host block: what is to be stored in it

    # The blocks are given away before the copy has read them.

    @property
    def blocks_to_come(self) -> int:
        return 0 if self._release_early else super().blocks_to_come

    def begin_out(self, copy: Copy) -> None:
        self._written |= zip(copy.host_blocks, self._checksums(copy), strict=True)
        if self._release_early:
            self.kv.give_back(copy.request, "copy_unfinished", copy.blocks, lent=True)
        else:
            super().begin_out(copy)

    def retire(self) -> None:
        if self._release_early:  # their blocks were given away long ago
            for copy in self.copies.going("out"):
                if copy.complete:
                    self.copies.settle(copy)
        else:
            super().retire()

    def advance(self) -> None:
        super().advance()
        if self._release_early:
            self.retire()

    def drop(self, copy: Copy, why: str) -> None:
        if self._release_early and copy.direction == "out":
            self.copies.settle(copy)
        else:
            super().drop(copy, why)

    # A copy in writes over what is still to be read in this step.

    def readers_to_overwrite(
        self, needs: int, running: Sequence[Request], batch: Mapping[str, ScheduledRequest]
    ) -> list[Request]:
        """Scheduled requests whose last output is selected in this step, where their blocks make up
        for what is not free; nobody else has blocks of theirs."""
        pool = self.kv.pool
        if "read_before_copy_in" not in self._unsafe or needs <= pool.free:
            return []
        ending = [
            request
            for request in running
            if request.id in batch
            and batch[request.id].sampling
            and request.num_outputs + 1 == request.max_tokens
            and pool.reclaimable(request.table) == len(request.table)
        ]
        enough = needs <= pool.free + sum(len(request.table) for request in ending)
        return ending if enough else []

    def start_in(self, request: Request, readers: Sequence[Request] = ()) -> None:
        """Copy into blocks of `readers`. The step's share of blocks is moved before the model runs;
        the copy is settled after it."""
        if not readers:
            return super().start_in(request)
        pool, stored = self.kv.pool, len(request.host_table)
        victims = [(r, at, b) for r in readers for at, b in enumerate(r.table)][:stored]
        blocks = [block for _, _, block in victims]
        pool.share(blocks)
        for block in blocks:
            pool.forget(block)  # what it could be found by is about to be written over
        blocks += self.allocate_for(request, sorted(request.host_places)[len(blocks) :])
        size = self.kv.config.block_size
        used = [(block, min(size, r.computed - at * size)) for r, at, block in victims]
        before = self.runner.fingerprints(used)
        self.move(self.open_in(request, blocks))
        after = self.runner.fingerprints(used)
        for (owner, at, block), old, new in zip(victims, before, after, strict=True):
            self._compare(owner, "read_before_copy_in", block, at, old, new, restored=False)
        return None

    # Damage.

    def finish_in(self, copy: Copy) -> None:
        """Compare what came back with what was written before the copy out."""
        written = [self._written[block] for block in copy.host_blocks]
        why = next((u for u in self._unsafe if u != "read_before_copy_in"), self._unsafe[0])
        restored = self._checksums(copy)
        for at, block, old, new in zip(copy.places, copy.blocks, written, restored, strict=True):
            self._compare(copy.request, why, block, at, old, new, restored=True)
        super().finish_in(copy)

    def _checksums(self, copy: Copy) -> Checksums:
        size = self.kv.config.block_size
        used = [(block, min(size, copy.kv - at * size)) for at, block in enumerate(copy.blocks)]
        return self.runner.fingerprints(used)

    def _compare(
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
            self.log.record(
                DamageFound(
                    id=request.id,
                    why=why,
                    block=block,
                    logical=logical,
                    layers=layers,
                    restored=restored,
                )
            )
