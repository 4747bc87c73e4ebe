"""A server to predict: cards, model, settings, its pool and its clock."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvlab.engine.config import MOST_BLOCKS, EngineConfig
from kvlab.errors import BadInput
from kvlab.predict.cards import Card, load_card
from kvlab.predict.clock import Clock
from kvlab.predict.fast import refuse_unpredictable
from kvlab.predict.models import ModelShape, load_model
from kvlab.predict.pool import PoolSize, pool_size
from kvlab.predict.sheet_clock import SheetClock
from kvlab.predict.table_clock import TableClock
from kvlab.predict.tables import has_tables, load_tables
from kvlab.predict.workload import BLOCK

MOST_CARDS = 8
SETTINGS: dict[str, Any] = {
    "block_size": BLOCK,
    "step_tokens": 2048,
    "max_running": 256,
    "prefix_cache": True,
    "async_scheduling": True,
    "host_blocks": 0,
    # The rules of the preset vllm_v1.
    "victim": "newest",
    "free_order": "vllm_v1",
    "admission": "whole_sequence",
}
"""vLLM's defaults for a card of this size; `--set engine.KEY=VALUE` changes one."""
NOT_SET = ("preset", "preempt_for_priority", "unsafe", "copy_blocks_per_step", "victim_seed")

TESTED = (
    "on the measured run (RTX 4090, full cache): TTFT, TPOT and end to end within 0.2 % in the mean, "
    "0.2 % a request; three numbers were fitted on that run"
)
SAME_TERMS = f"not tested on this card; with the same terms, {TESTED}"
DIVIDED = "not tested: matrices and heads divided by arithmetic, the link from its data sheet"
SHEET = (
    "built in the same way, the RTX 4090's clock is 2 % off on its measured run with a full cache; "
    "beside layer tables up to 15 % with some ten requests at once, up to a third too quick with "
    "hundreds (TTFT then means little)"
)


@dataclass(frozen=True, slots=True)
class Server:
    """`tp` equal cards that hold one model between them."""

    card: Card
    model: ModelShape
    tp: int
    config: EngineConfig
    pool: PoolSize | None

    def clock(self) -> Clock:
        """From layer tables where there are some (for one card too), else from the data sheet."""
        card, model, tp = self.card, self.model, self.tp
        if has_tables(card.name, model.name, tp):
            tables = load_tables(card.name, model.name, tp)
            told = TESTED if card.name == "rtx4090" else SAME_TERMS
            return TableClock(tables, card, model, tp, told)
        if has_tables(card.name, model.name, 1) and model.kv_heads % tp == 0:
            return TableClock(load_tables(card.name, model.name, 1), card, model, tp, DIVIDED)
        return SheetClock(card, model, tp, SHEET)

    def changed(self, **settings: Any) -> Server:
        """The same with other engine settings."""
        return replace(self, config=replace(self.config, **settings))


def server_of(gpu: str, model: str, tp: int = 1, settings: Sequence[str] = ()) -> Server:
    """A server by its names; `settings` are `engine.KEY=VALUE`. Raises BadInput."""
    card, shape = load_card(gpu), load_model(model)
    if not 1 <= tp <= MOST_CARDS or shape.heads % tp:
        raise BadInput(
            f"--tp {tp}: must be from 1 to {MOST_CARDS} and divide {shape.name}'s {shape.heads} heads."
        )
    given = dict(_setting(text) for text in settings)
    chosen = SETTINGS | given
    pool = None
    if "num_blocks" not in given:
        # Settings that the sum needs are checked first, with any pool.
        config = _config(chosen | {"num_blocks": MOST_BLOCKS})
        pool = pool_size(
            card,
            shape,
            tp,
            config.block_size,
            config.step_tokens or SETTINGS["step_tokens"],
            config.max_running or SETTINGS["max_running"],
        )
        chosen["num_blocks"] = min(pool.blocks, MOST_BLOCKS)
    config = _config(chosen)
    refuse_unpredictable(config)
    return Server(card, shape, tp, config, pool)


def _config(settings: dict[str, Any]) -> EngineConfig:
    return EngineConfig(**settings)


def _setting(text: str) -> tuple[str, Any]:
    """`engine.KEY=VALUE` as key and value: a number, true, false, null, or a word."""
    path, equals, value = text.partition("=")
    prefix, _, key = path.partition(".")
    if prefix != "engine" or not key or not equals:
        raise BadInput(f"--set {text}: write it as engine.KEY=VALUE, say engine.num_blocks=2587.")
    known = sorted(EngineConfig.__dataclass_fields__.keys() - set(NOT_SET))
    if key not in known:
        raise BadInput(f"--set {text}: settings are {', '.join(known)}.")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
