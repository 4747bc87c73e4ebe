"""Attention over contexts of different lengths: when the longest holds everybody up.

The decode kernel (FlashAttention 2 as vLLM calls it) gives one head of one request to one thread
block, and a processor holds one such block at a time. While all processors are busy the card's
memory sets the pace; when only a few long contexts are left, each is read at the pace of a single
processor, and the step waits. Heads come one after the other, each over all requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace
from heapq import heappop as pop

PASSES = 3
"""Blocks a processor that are worked through to find the end; those before are a steady stream."""
KEEP = 16
"""Positions a request grows before a tail is worked out again."""


def finish(
    contexts: Sequence[int], heads: int, processors: int, share: float, alone: float
) -> float:
    """Seconds until all heads of all contexts are read.

    `share` is the seconds a position of a head takes with every processor busy, divided by their
    number (memory's pace); `alone` the seconds it takes one processor by itself. Blocks start in the
    order heads x contexts, as processors become free; all that run at a time are equally fast.
    """
    blocks = list(contexts) * heads
    running: list[float] = [float(size) for size in blocks[:processors]]
    heapify(running)  # each block's end, in positions that a block running all the time would read
    seconds = position = 0.0
    for size in blocks[processors:]:
        first = running[0]
        seconds += (first - position) * max(alone, share * len(running))
        position = first
        heapreplace(running, first + size)
    while running:
        first = running[0]
        seconds += (first - position) * max(alone, share * len(running))
        position = first
        pop(running)
    return seconds


class Tail:
    """How much longer than a steady stream contexts of different lengths take; remembered while the
    batch stays what it was."""

    def __init__(self, heads: int, processors: int, share: float, alone: float) -> None:
        self._heads = heads
        self._processors = processors
        self._share = share
        self._alone = alone
        self._known = (0, 0, 0.0)  # requests, positions, seconds

    def seconds(self, contexts: Sequence[int], positions: int) -> float:
        """Beyond `positions` of all heads at memory's pace."""
        count, before, tail = self._known
        if count == len(contexts) and 0 <= positions - before <= KEEP * count:
            return tail
        heads = min(self._heads, PASSES * self._processors // len(contexts) + 1)
        whole = finish(contexts, heads, self._processors, self._share, self._alone)
        tail = whole - positions * heads * self._share
        self._known = (len(contexts), positions, tail)
        return tail
