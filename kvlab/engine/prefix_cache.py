"""Sharing of equal beginnings: full blocks are found by a hash of all tokens up to their end."""

from __future__ import annotations

from kvlab.engine.block_pool import BlockPool, chain_hash
from kvlab.engine.config import EngineConfig
from kvlab.engine.event_log import EventLog
from kvlab.engine.events import BlockShared
from kvlab.engine.request import Request


class PrefixCache:
    """What of a request's history lies in the pool already. Without `prefix_cache` it finds and
    remembers nothing."""

    def __init__(self, config: EngineConfig, pool: BlockPool, log: EventLog) -> None:
        self._on = config.prefix_cache
        self._size = config.block_size
        self._pool = pool
        self._log = log

    def _hash(self, request: Request, logical: int) -> bytes:
        """Chained hash of the full block `logical` of the request's history."""
        hashes = request.prefix_hashes
        while len(hashes) <= logical:
            start = len(hashes) * self._size
            parent = hashes[-1] if hashes else b""
            hashes.append(chain_hash(parent, request.history[start : start + self._size]))
        return hashes[logical]

    def find(self, request: Request) -> list[int]:
        """Blocks that already store the start of the history, up to the first miss.

        At least one token is left to process, since its logits select the next one.
        """
        found: list[int] = []
        if self._on:
            for logical in range((len(request.history) - 1) // self._size):
                block = self._pool.find(self._hash(request, logical))
                if block is None:
                    break
                found.append(block)
        return found

    def share(self, request: Request, blocks: list[int]) -> None:
        """Start the (empty) table with `blocks`: their tokens need no processing."""
        if not blocks:
            return
        self._pool.share(blocks)
        request.table += blocks
        request.computed = len(blocks) * self._size
        request.ever_computed = max(request.ever_computed, request.computed)
        request.hashed_blocks = len(blocks)
        self._log.record(
            BlockShared(
                id=request.id,
                blocks=tuple(blocks),
                logical=0,
                refs=tuple(self._pool.references(block) for block in blocks),
                tokens=request.computed,
                free=self._pool.free,
            )
        )

    def held_by_others(self, request: Request) -> int:
        """Positions at the start whose blocks others hold, too, and will be found by their prefix."""
        if not self._on:
            return 0
        table = request.table[: request.hashed_blocks]
        alone = (at for at, block in enumerate(table) if self._pool.references(block) == 1)
        return next(alone, len(table)) * self._size

    def remember(self, request: Request, upto: int) -> None:
        """Blocks that positions below `upto` fill can be shared from now on."""
        if self._on:
            for logical in range(request.hashed_blocks, upto // self._size):
                self._pool.remember(request.table[logical], self._hash(request, logical))
                request.hashed_blocks = logical + 1

    def forget_unwritten(self, request: Request) -> None:
        """Undo `remember` for positions that will not be written after all."""
        full = request.computed // self._size
        for logical in range(full, request.hashed_blocks):
            self._pool.forget(request.table[logical])
        request.hashed_blocks = min(request.hashed_blocks, full)
