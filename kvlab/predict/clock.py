"""How long a step takes: what it depends on, and the terms that every clock shares."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Protocol

from kvlab.predict.cards import Card
from kvlab.predict.models import BYTES, ModelShape

FIRST_STEP = 0.37
"""Seconds that the first step of a fresh vLLM spends on the host (seen in the measured run)."""
HOST_STEP = 0.003
"""Seconds of the host before a step's kernels start. They count only where the card waits for them: on
a request that comes to an idle server, or without asynchronous scheduling. Assumed, not measured."""
GRAPHS = (1, 2, 4, *range(8, 257, 8), *range(272, 513, 16))
"""Batch sizes of vLLM's CUDA graphs: a batch of up to 512 tokens is filled up to the next one."""


@dataclass(slots=True)
class StepShape:
    """What of a step its duration depends on."""

    prefills: list[tuple[int, int]] = field(default_factory=list)
    """(tokens, positions before them) of each request with more than one token."""
    decodes: list[int] = field(default_factory=list)
    """Positions that each request with one token attends to."""
    copied: int = 0
    """Positions copied to host memory or back."""

    @property
    def tokens(self) -> int:
        return sum(tokens for tokens, _ in self.prefills) + len(self.decodes)

    @property
    def sequences(self) -> int:
        return len(self.prefills) + len(self.decodes)


class Clock(Protocol):
    """Seconds of steps, and what they rest on."""

    kind: str
    """`tables` or `data sheet`."""
    source: str
    known_error: str

    def seconds(self, step: StepShape) -> float:
        """Of the card's work in one step."""
        ...


def padded(tokens: int) -> int:
    """Tokens that are computed for a batch of `tokens`: the next graph's size, if there is one."""
    return GRAPHS[bisect_left(GRAPHS, tokens)] if tokens <= GRAPHS[-1] else tokens


@dataclass(frozen=True, slots=True)
class Links:
    """What travels between cards, and between a card and its host."""

    card: Card
    model: ModelShape
    tp: int

    def layer(self, tokens: int) -> float:
        """Seconds of a layer's two all-reduces, after the attention's and the last matrix."""
        return 2 * self._all_reduce(tokens * self.model.hidden * BYTES)

    def ends(self, tokens: int) -> float:
        """Of the embedding's all-reduce: each card holds a share of the words."""
        return self._all_reduce(tokens * self.model.hidden * BYTES)

    def logits(self, sequences: int) -> float:
        """Of gathering each card's share of the logits."""
        if self.tp == 1:
            return 0.0
        size = sequences * self.model.vocab * BYTES / self.tp * (self.tp - 1)
        return self.card.peer_latency + size / self.card.peer

    def _all_reduce(self, size: float) -> float:
        """A ring: 2 (tp - 1) / tp of the bytes pass each link, in as many hops."""
        if self.tp == 1:
            return 0.0
        hops = 1 + 0.2 * (self.tp - 2)
        return self.card.peer_latency * hops + size * 2 * (self.tp - 1) / self.tp / self.card.peer

    def copies(self, positions: int) -> float:
        """Of copying KV to host memory or back, each card its share, nothing else meanwhile."""
        return positions * self.model.kv_bytes / self.tp / self.card.link
