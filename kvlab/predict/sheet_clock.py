"""The clock of a card of which only the data sheet is known: a roofline."""

from __future__ import annotations

from kvlab.predict.cards import Card
from kvlab.predict.clock import Links, StepShape, padded
from kvlab.predict.models import BYTES, ModelShape

MEMORY_EFFICIENCY = 0.85
"""Of the sheet's bandwidth. The layer tables reach 0.93 (RTX 4090) and 0.79 (RTX PRO 6000)."""
MATH_EFFICIENCY = 0.8
"""Of the sheet's dense bf16 rate. The layer tables reach 1.0 (RTX 4090) and 0.83 (RTX PRO 6000)."""
ATTENTION_EFFICIENCY = 0.4
"""The same in attention over a prompt: half of its squares lie above the diagonal."""
LAUNCHES = 20e-6
"""Seconds a layer of kernels too small for either limit: norms, rotary positions, launches."""


class SheetClock:
    """Each matrix as long as its bytes or its sums take, whichever is more; KV as long as its bytes."""

    kind = "data sheet"

    def __init__(self, card: Card, model: ModelShape, tp: int, known_error: str) -> None:
        self.source = f"data sheet of {card.title}: {card.bandwidth / 1e9:,.0f} GB/s, " + (
            f"{card.flops / 1e12:,.0f} TFLOPS"
        )
        self.known_error = known_error
        self._links = Links(card, model, tp)
        self._model, self._tp = model, tp
        self._byte = 1 / (card.bandwidth * MEMORY_EFFICIENCY)
        self._sum = 1 / (card.flops * MATH_EFFICIENCY)
        self._attention_sum = 1 / (card.flops * ATTENTION_EFFICIENCY)

    def seconds(self, step: StepShape) -> float:
        copies = self._links.copies(step.copied)
        tokens = step.tokens
        if not tokens:
            return copies
        model, rows = self._model, padded(tokens)
        layer = self._matrix(model.layer_weights, rows) + LAUNCHES
        layer += 8 * rows * model.hidden * BYTES * self._byte  # what stands between the matrices
        layer += self._links.layer(rows)
        head = self._matrix(model.vocab * model.hidden, step.sequences)
        ends = head + self._links.logits(step.sequences) + self._links.ends(rows)
        return model.layers * layer + self._attention(step) + ends + copies

    def _matrix(self, weights: int, rows: int) -> float:
        """One card's share of a product with `weights` values, for `rows` tokens."""
        work = weights / self._tp
        return max(work * BYTES * self._byte, 2 * work * rows * self._sum)

    def _attention(self, step: StepShape) -> float:
        """All layers': KV read once, and the sums over prompts."""
        model = self._model
        read = sum(step.decodes) + sum(tokens + before for tokens, before in step.prefills)
        pairs = sum(tokens * (before + tokens / 2) for tokens, before in step.prefills)
        sums = 4 * pairs * model.heads * model.head_dim * model.layers
        seconds = read * model.kv_bytes * self._byte + sums * self._attention_sum
        return seconds / self._tp
