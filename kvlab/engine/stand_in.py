"""A runner without a model: scheduling runs alone, and tokens are stand-ins that say so."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from kvlab.engine.cost_model import MODELLED, CostModel
from kvlab.engine.request import Batch, Sampled
from kvlab.engine.runner import Pairs


class StandInText:
    """Text of a stand-in token: its number. Stop strings never match numbers of a stand-in."""

    stopped = False

    def push(self, token: int) -> str:
        return f" {token}"

    def flush(self) -> str:
        return ""


class StandInRunner:
    """Stores no KV. The token after position p depends on p and the token there alone, so that a
    preemption cannot change it."""

    vocab_size = 1 << 31  # a scenario may bring any model's ids; the ones selected are below 1,000
    context = 1_000_000
    eos_ids: frozenset[int] = frozenset()

    def execute(self, batch: Batch) -> list[Sampled]:
        return [
            Sampled(scheduled.id, zlib.crc32(f"{scheduled.tokens[-1]},{at}".encode()) % 1_000, None)
            for scheduled in batch
            for at in range(scheduled.end, scheduled.end + len(scheduled.sampling))
        ]

    def costs(self) -> CostModel:
        return MODELLED

    def fingerprints(self, blocks: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
        return [()] * len(blocks)

    def copy_out(self, pairs: Pairs, *, before_last_write: bool = False) -> None:
        pass

    def copy_in(self, pairs: Pairs) -> None:
        pass

    def copy_block(self, source: int, target: int) -> None:
        pass

    def text_stream(self, stop: Sequence[str]) -> StandInText:
        return StandInText()
