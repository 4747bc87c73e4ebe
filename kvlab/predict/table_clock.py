"""The clock of a card and a model whose layers were measured."""

from __future__ import annotations

from collections.abc import Sequence

from kvlab.predict.attention import Tail
from kvlab.predict.cards import Card
from kvlab.predict.clock import Links, StepShape, padded
from kvlab.predict.models import ModelShape
from kvlab.predict.tables import Attention, LayerTables

COMPILED = 0.8
"""Share of the tables' elementwise time that is left once vLLM has compiled the model (fitted on the
14 whole prefill steps of the measured run: the tables alone are 0.9 % above them)."""
DECODE_PACE = 1.22
"""How much faster one processor reads in the decode kernel, which packs a group's heads, than in the
mixed one, from which the tables tell it (fitted on the measured run's decode steps)."""
SPLIT_BELOW = 1.6
"""Thread blocks a processor below which the kernel splits contexts (FlashAttention 2's
num_splits_heuristic: 0.8 of twice the processors)."""
FULL_CHUNK = 512
"""Tokens of a chunk that keep every processor busy by themselves."""


class TableClock:
    """From tables of the card and the model.

    Where `tp` cards share what the tables have on `tables.tp`, matrices and heads are divided by
    arithmetic, and `known_error` says that nobody measured it.
    """

    kind = "tables"

    def __init__(
        self, tables: LayerTables, card: Card, model: ModelShape, tp: int, known_error: str
    ) -> None:
        attention = tables.attention
        self.known_error = known_error
        self.source = (
            f"layer tables of {card.title}, {model.name}, tp {tables.tp} (LLMServingSim 2.0)"
        )
        self._tables, self._attention = tables, attention
        self._share = share = tables.tp / tp
        self._links = Links(card, model, tp)
        self._layers = model.layers
        self._heads = max(1, model.kv_heads // tp)
        self._processors = card.processors
        self._stream = attention.streaming * share  # seconds of a position, all heads of a card
        self._tail = Tail(
            self._heads, card.processors, self._stream / self._heads, attention.alone / DECODE_PACE
        )
        self._dense: dict[int, float] = {}
        self._head: dict[int, float] = {}

    def seconds(self, step: StepShape) -> float:
        tokens, sequences = step.tokens, step.sequences
        copies = self._links.copies(step.copied) if step.copied else 0.0
        if not tokens:
            return copies
        rows = padded(tokens)
        if rows not in self._dense:
            self._dense[rows] = self._dense_seconds(rows)
        if sequences not in self._head:
            self._head[sequences] = self._tables.head(sequences) + self._links.logits(sequences)
        attention = self._attention_seconds(step, rows)
        return self._dense[rows] + self._head[sequences] + self._layers * attention + copies

    def _dense_seconds(self, rows: int) -> float:
        """All but attention, head and sampler, for a batch of `rows` tokens."""
        tables = self._tables
        layer = tables.matrices(rows) * self._share + tables.elementwise(rows) * COMPILED
        layer += self._links.layer(rows)
        return self._layers * layer + tables.ends(rows) + self._links.ends(rows)

    def _attention_seconds(self, step: StepShape, rows: int) -> float:
        """One layer's."""
        if not step.prefills:
            return self._decode(step.decodes, rows)
        seconds = chunks(self._attention, step.prefills)
        if step.decodes:
            # The longest chunk sets how many thread blocks each request gets, most of them empty.
            seconds += self._attention.beside(
                *max(step.prefills), len(step.decodes), sum(step.decodes) / len(step.decodes)
            )
        return seconds * self._share

    def _decode(self, contexts: Sequence[int], rows: int) -> float:
        """Memory's pace over all positions, the launch, and the tail of unequal contexts where the
        kernel does not split them."""
        positions = sum(contexts)
        seconds = positions * self._stream + self._attention.floor
        if rows * self._heads >= SPLIT_BELOW * self._processors:
            return seconds + self._tail.seconds(contexts, positions)
        return max(seconds, self._attention.decode(1, max(contexts)) * self._share)


def chunks(attention: Attention, prefills: Sequence[tuple[int, int]]) -> float:
    """Seconds of one layer's attention over several chunks (tokens, positions before) in a batch.

    They run beside each other: no faster than the longest by itself, no faster than all their work
    with every processor busy. A chunk below FULL_CHUNK does not keep them busy; its work is its share
    of a full one's.
    """
    longest = work = 0.0
    for tokens, before in prefills:
        alone = attention.prefill(tokens, before)
        longest = max(longest, alone)
        if tokens < FULL_CHUNK:
            alone = min(alone, attention.prefill(FULL_CHUNK, before) * tokens / FULL_CHUNK)
        work += alone
    return max(longest, work)
