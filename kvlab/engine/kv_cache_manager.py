"""Block tables: how a request's KV positions get physical blocks and give them up."""

from __future__ import annotations

from kvlab.engine.block_pool import BlockPool
from kvlab.engine.config import EngineConfig
from kvlab.engine.event_log import EventLog
from kvlab.engine.events import BlockAllocated, BlockCopied
from kvlab.engine.prefix_cache import PrefixCache
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
        self.prefix = PrefixCache(config, self.pool, log)
        self._mover = mover
        self._log = log

    # Growing.

    def positions_to_reserve(self, request: Request, upto: int) -> int:
        """Positions that blocks are taken for when `upto` are about to have KV."""
        if self.config.allocation == "reserve_max":
            return max(upto, request.most_kv)
        return upto

    def blocks_of_history(self, request: Request) -> int:
        """Blocks that the whole request needs when it comes (back) in: its last output gets no KV."""
        positions = min(len(request.history), request.most_kv)
        return self.config.blocks_for(self.positions_to_reserve(request, positions))

    def never_fits(self, request: Request) -> str | None:
        """Why no pool state can hold the request, as a message with both numbers; None if one can."""
        needs, most = self.blocks_of_history(request), self.config.num_blocks
        return f"needs {needs} blocks, the pool has {most}" if needs > most else None

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
