"""Block tables: how a request's KV positions get physical blocks, share them and give them up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kvlab.engine.block_pool import BlockPool, chain_hash
from kvlab.engine.config import EngineConfig
from kvlab.engine.event_log import EventLog
from kvlab.engine.events import BlockAllocated, BlockCopied, BlockShared, Forked
from kvlab.engine.request import Request
from kvlab.engine.runner import BlockMover, CopyError


class KVCacheManager:
    """The GPU pool seen from the requests' block tables.

    Entry i of a table is the physical block of positions i * block_size and on. `missing` says what a
    request lacks, `grow` takes it, `release` gives it up.
    """

    def __init__(self, config: EngineConfig, mover: BlockMover, log: EventLog) -> None:
        self.config = config
        self.pool = BlockPool(config.num_blocks, config.free_order)
        self._mover = mover
        self._log = log

    # Growing.

    def positions_to_reserve(self, request: Request, upto: int) -> int:
        """Positions that blocks are taken for when `upto` are about to have KV."""
        if self.config.allocation == "reserve_max":
            return max(upto, request.most_kv)
        return upto

    def missing(self, request: Request, upto: int) -> int:
        """Blocks to take before positions below `upto` can be written: new ones and copies on write."""
        upto = self.positions_to_reserve(request, upto)
        new = self.config.blocks_for(upto) - len(request.table)
        return max(0, new) + (self._shared_tail(request) is not None)

    def _shared_tail(self, request: Request) -> int | None:
        """Logical index of a block that others share and this request would write into next."""
        logical = request.computed // self.config.block_size
        if logical < len(request.table) and self.pool.references(request.table[logical]) > 1:
            return logical
        return None

    def first_missing(self, request: Request) -> int:
        """Logical index of the first block that `missing` counts."""
        shared = self._shared_tail(request)
        return len(request.table) if shared is None else shared

    def grow(self, request: Request, upto: int, why: str) -> None:
        """Take what `missing` counts; the caller has made sure that it is free.

        Raises CopyError, with nothing taken, when a shared block could not be copied.
        """
        self._copy_on_write(request)
        reserved = self.positions_to_reserve(request, upto)
        count = self.config.blocks_for(reserved) - len(request.table)
        if count > 0:
            request.table += self.allocate(request, count, len(request.table), why)

    def allocate(self, request: Request, count: int, logical: int, why: str) -> list[int]:
        """Take `count` free blocks, for logical indices from `logical` on."""
        blocks = self.pool.allocate(count)
        free = self.pool.free
        self._log.record(
            BlockAllocated(id=request.id, why=why, blocks=tuple(blocks), logical=logical, free=free)
        )
        return blocks

    def _copy_on_write(self, request: Request) -> None:
        logical = self._shared_tail(request)
        if logical is None:
            return
        source = request.table[logical]
        (block,) = self.pool.allocate(1)
        try:
            self._mover.copy_block(source, block)
        except CopyError:
            # Told, since what the block had kept of a prefix is gone. The request ends by this.
            end, free = len(request.table), self.pool.free
            why = "copy_on_write"
            self._log.record(
                BlockAllocated(id=request.id, why=why, blocks=(block,), logical=end, free=free)
            )
            self.give_back(request, "cut_short", [block])
            raise
        self.pool.release([source])
        request.table[logical] = block
        self._log.record(BlockCopied(id=request.id, logical=logical, source=source, block=block))

    # Giving up.

    def release(
        self, request: Request, why: str, next_up: tuple[str, int] | None = None, keep: int = 0
    ) -> None:
        """Give up all blocks of the table from logical index `keep` on.

        `next_up` is who waits at the head of the queue and the blocks that it needs.
        """
        blocks = request.table[keep:]
        if blocks:
            del request.table[keep:]
            request.hashed_blocks = min(request.hashed_blocks, keep)
            self.give_back(request, why, blocks, next_up)

    def give_back(
        self,
        request: Request,
        why: str,
        blocks: list[int],
        next_up: tuple[str, int] | None = None,
        *,
        lent: bool = False,
    ) -> None:
        """One reference less to each block, a copy's (`lent`) or the table's."""
        pool = self.pool
        freed = pool.release(blocks, lent=lent)
        cached = [block for block in freed if pool.is_cached(block)]
        self._log.released(
            request, why, blocks, freed=freed, cached=cached, free=pool.free, next_up=next_up
        )

    def held_by_nobody_but(self, requests: Iterable[Request]) -> set[int]:
        """Blocks that would be free if all of these requests gave up theirs."""
        held = Counter(block for request in requests for block in request.table)
        return {block for block, times in held.items() if self.pool.references(block) == times}

    # Sharing.

    def _prefix_hash(self, request: Request, logical: int) -> bytes:
        """Chained hash of the full block `logical` of the request's history."""
        size = self.config.block_size
        hashes = request.prefix_hashes
        while len(hashes) <= logical:
            start = len(hashes) * size
            parent = hashes[-1] if hashes else b""
            hashes.append(chain_hash(parent, request.history[start : start + size]))
        return hashes[logical]

    def find_prefix(self, request: Request) -> list[int]:
        """Blocks that already store the start of the history, up to the first miss.

        At least one token is left to process, since its logits select the next one.
        """
        found: list[int] = []
        if self.config.prefix_cache:
            for logical in range((len(request.history) - 1) // self.config.block_size):
                block = self.pool.find(self._prefix_hash(request, logical))
                if block is None:
                    break
                found.append(block)
        return found

    def held_by_others(self, request: Request) -> int:
        """Positions at the start whose blocks others hold, too, and will be found by their prefix."""
        if not self.config.prefix_cache:
            return 0
        table = request.table[: request.hashed_blocks]
        alone = (at for at, block in enumerate(table) if self.pool.references(block) == 1)
        return next(alone, len(table)) * self.config.block_size

    def share_prefix(self, request: Request, blocks: list[int]) -> None:
        """Start the (empty) table with `blocks`: their tokens need no processing."""
        if not blocks:
            return
        self.pool.share(blocks)
        request.table += blocks
        request.computed = len(blocks) * self.config.block_size
        request.ever_computed = max(request.ever_computed, request.computed)
        request.hashed_blocks = len(blocks)
        self._log.record(
            BlockShared(
                id=request.id,
                blocks=tuple(blocks),
                logical=0,
                refs=tuple(self.pool.references(block) for block in blocks),
                tokens=request.computed,
                free=self.pool.free,
            )
        )

    def share_table(self, parent: Request, fork: Request, *, blocks: bool) -> None:
        """A fork starts with the parent's blocks; whoever writes into a shared one copies it first.
        Without `blocks` it has none: it has to wait."""
        if blocks:
            fork.table = parent.table[: self.config.blocks_for(parent.computed)]
            fork.computed, fork.hashed_blocks = parent.computed, parent.hashed_blocks
        self.pool.share(fork.table)
        self._log.record(
            Forked(
                id=fork.id,
                parent=parent.id,
                history=len(fork.history),
                kv=fork.computed,
                max_tokens=fork.max_tokens,
                blocks=tuple(fork.table),
                refs=tuple(self.pool.references(block) for block in fork.table),
            )
        )

    def remember_full_blocks(self, request: Request, upto: int) -> None:
        """Blocks that positions below `upto` fill can be shared from now on."""
        if self.config.prefix_cache:
            for logical in range(request.hashed_blocks, upto // self.config.block_size):
                self.pool.remember(request.table[logical], self._prefix_hash(request, logical))
                request.hashed_blocks = logical + 1

    def forget_unwritten_blocks(self, request: Request) -> None:
        """Undo remember_full_blocks for positions that will not be written after all."""
        full = request.computed // self.config.block_size
        for logical in range(full, request.hashed_blocks):
            self.pool.forget(request.table[logical])
        request.hashed_blocks = min(request.hashed_blocks, full)
