"""The pool of physical KV blocks: who may take one, who holds one, what an old one still knows.

A block's whole life in one line:

    free --allocate--> held by tables (references >= 1) --release--> free, values still in memory
                            |  lend (a copy reads or fills it)
                            v
                        in flight: no table holds it, a copy does --release / settle--> free / held

A full block may carry the hash of its prefix. It keeps it on the free list, so that a later request
can share the values, until somebody takes the block for something else.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence


def chain_hash(parent: bytes, tokens: Sequence[int]) -> bytes:
    """Hash of a full block: of all tokens before it (`parent`) and its own, in order."""
    text = ",".join(map(str, tokens)).encode()
    return hashlib.sha256(parent + b"|" + text).digest()


class BlockPool:
    """`num_blocks` physical blocks with reference counts, a free list and a prefix index.

    The free list is a queue: allocation takes the front. A release appends to the back in the
    table's order (`head_first`) or reversed (`tail_first`). `vllm_v1` is vLLM's rule: reversed;
    blocks without a hash go to the front as one batch in that order, blocks with one to the back.
    """

    def __init__(self, num_blocks: int, free_order: str = "head_first") -> None:
        self.num_blocks = num_blocks
        self.free_order = free_order
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self._references = [0] * num_blocks
        self._lent = [0] * num_blocks  # references that belong to copies, not to tables
        self._in_flight: set[int] = set()  # blocks all of whose references are lent
        self._hash_of: dict[int, bytes] = {}
        self._by_hash: dict[bytes, OrderedDict[int, None]] = {}

    @property
    def free(self) -> int:
        """Blocks that an allocation could take now, those kept as cache included."""
        return len(self._free)

    @property
    def in_flight(self) -> int:
        """Blocks that only a copy holds: neither free nor in a table."""
        return len(self._in_flight)

    @property
    def cached(self) -> int:
        """Free blocks that still hold a reusable prefix."""
        return sum(block in self._free for block in self._hash_of)

    def free_list(self) -> list[int]:
        """The free blocks, from the one that is handed out next."""
        return list(self._free)

    def references(self, block: int) -> int:
        """How many tables and copies refer to the block."""
        return self._references[block]

    def is_free(self, block: int) -> bool:
        return block in self._free

    def is_cached(self, block: int) -> bool:
        return block in self._hash_of

    def reclaimable(self, table: Iterable[int]) -> int:
        """How many of a table's blocks would become free if it released them."""
        return sum(self._references[block] == 1 for block in table)

    def held_by_nobody_but(self, tables: Iterable[Sequence[int]]) -> set[int]:
        """Blocks that would be free if all of these tables gave up theirs."""
        held = Counter(block for table in tables for block in table)
        return {block for block, times in held.items() if self._references[block] == times}

    def allocate(self, count: int) -> list[int]:
        """Take `count` blocks from the front of the free list; whoever asks has checked `free`.

        Taking a block that was kept as cache ends its entry. Raises IndexError when there are fewer.
        """
        if count > len(self._free):
            raise IndexError(f"{count} blocks asked of a pool with {len(self._free)} free")
        blocks = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in blocks:
            self.forget(block)
            self._references[block] = 1
        return blocks

    def share(self, blocks: Iterable[int]) -> None:
        """One more reference to each block; a free one leaves the free list with its values."""
        for block in blocks:
            self._free.pop(block, None)
            self._references[block] += 1
            self._place(block)

    def release(self, table: Sequence[int], *, lent: bool = False) -> list[int]:
        """One reference less to each block; returns those that became free, in the table's order.

        `lent` references are a copy's, others a table's.
        """
        for block in table:
            self._references[block] -= 1
            self._lent[block] -= lent
            self._place(block)
        freed = [block for block in table if self._references[block] == 0]
        if self.free_order == "head_first":
            self._free.update(OrderedDict.fromkeys(freed))
        elif self.free_order == "tail_first":
            self._free.update(OrderedDict.fromkeys(reversed(freed)))
        else:
            backwards = freed[::-1]
            self._free.update(OrderedDict.fromkeys(b for b in backwards if b in self._hash_of))
            for block in reversed([b for b in backwards if b not in self._hash_of]):
                self._free[block] = None
                self._free.move_to_end(block, last=False)
        return freed

    def lend(self, blocks: Iterable[int]) -> None:
        """A table's references become a copy's: without another table the block is in flight."""
        for block in blocks:
            self._lent[block] += 1
            self._place(block)

    def settle(self, blocks: Iterable[int]) -> None:
        """A copy's references become a table's again (the end of a swap-in)."""
        for block in blocks:
            self._lent[block] -= 1
            self._place(block)

    def _place(self, block: int) -> None:
        if 0 < self._references[block] == self._lent[block]:
            self._in_flight.add(block)
        else:
            self._in_flight.discard(block)

    # The prefix index.

    def remember(self, block: int, prefix: bytes) -> None:
        """The block is full and can be found by `prefix` from now on. Equal blocks stay apart."""
        if self._hash_of.get(block) == prefix:
            return
        self.forget(block)
        self._hash_of[block] = prefix
        self._by_hash.setdefault(prefix, OrderedDict())[block] = None

    def forget(self, block: int) -> None:
        """The block can no longer be found by its prefix."""
        prefix = self._hash_of.pop(block, None)
        if prefix is not None:
            del self._by_hash[prefix][block]
            if not self._by_hash[prefix]:
                del self._by_hash[prefix]

    def find(self, prefix: bytes) -> int | None:
        """The block that first stored this prefix and still holds it, or None."""
        blocks = self._by_hash.get(prefix)
        return next(iter(blocks)) if blocks else None

    def check_integrity(self, tables: Iterable[Sequence[int]]) -> None:
        """Raise AssertionError unless the counts agree with the tables and with each other."""
        held: dict[int, int] = {}
        for table in tables:
            for block in table:
                held[block] = held.get(block, 0) + 1
        for block in range(self.num_blocks):
            own = self._references[block] - self._lent[block]
            assert own == held.get(block, 0), f"block {block}: {own} references, {held.get(block)}"
            assert (block in self._free) == (self._references[block] == 0), f"block {block}: free?"
        assert self.free + len(held) + self.in_flight == self.num_blocks, "blocks leaked"
