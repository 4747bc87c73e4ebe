"""Blocks outside the GPU, where swapped-out KV is kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class HostPool:
    """A queue of free host blocks; a block has at most one owner."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = deque(range(num_blocks))

    @property
    def free(self) -> int:
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """Take `count` blocks from the front. Raises IndexError when there are fewer."""
        if count > len(self._free):
            raise IndexError(f"{count} host blocks asked of a pool with {len(self._free)} free")
        return [self._free.popleft() for _ in range(count)]

    def release(self, blocks: Iterable[int]) -> None:
        self._free.extend(blocks)

    def check_integrity(self, tables: Iterable[Iterable[int]]) -> None:
        """Raise AssertionError unless every block is free or in exactly one table."""
        held = [block for table in tables for block in table]
        assert sorted([*held, *self._free]) == list(range(self.num_blocks)), "host blocks leaked"
