"""Both methods on the clock of the machine at hand, beside what the cost model says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from kvlab.engine.cost_model import CostModel
from kvlab.errors import BadInput
from kvlab.models.loading import LoadedModel, load_model
from kvlab.runtime.calibrate import measure_costs, pass_seconds, reversed_pairs, timed
from kvlab.runtime.memory import refuse_large_pools
from kvlab.runtime.model_runner import ModelRunner
from kvlab.runtime.threads import few_threads
from kvlab.trace.table import Table

LENGTHS = (32, 128, 512, 2_048)
BLOCK_SIZE = 16
METHODS = ("recompute", "swap")
BUDGET = 0.3
"""Seconds for the repeats of one measurement; at least one is timed after the warm-up."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds by length, measured and predicted; shows itself in a notebook.

    `rows` are those of `row`: tokens, measured_seconds, predicted_seconds, ratio.
    """

    rows: list[dict[str, Any]]
    source: str

    @property
    def table(self) -> Table:
        """Milliseconds."""
        return Table(
            "Milliseconds to bring back the KV of a request",
            (
                "tokens of history",
                "recompute, measured",
                "recompute, by the formula",
                "swap, measured",
                "swap, by the formula",
            ),
            tuple(
                (
                    f"{found['tokens']:,}",
                    *(
                        f"{found[kind][method] * 1e3:,.2f}"
                        for method in ("recompute", "swap")
                        for kind in ("measured_seconds", "predicted_seconds")
                    ),
                )
                for found in self.rows
            ),
            self.source,
        )

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        return self.table._repr_mimebundle_()


def on_this_machine(name: str = "story", lengths: tuple[int, ...] = LENGTHS) -> Timings:
    """Time one pass over N positions, and a copy of their blocks out and back, for each length.

    The formula's rates come from the cache, or are measured first. Raises BadInput for a model that
    cannot be loaded, for lengths beyond its context and for pools that do not fit.
    """
    loaded = load_model(name, device="auto", dtype="float32")
    most = loaded.config.max_positions
    if not lengths or not all(1 <= tokens <= most for tokens in lengths):
        raise BadInput(f"lengths {lengths}: give whole numbers from 1 to {most:,}.")
    with few_threads(loaded.config):
        runner = runner_for(loaded, max(lengths), BLOCK_SIZE)
        costs = measure_costs(runner)
        rows = [
            row(costs, tokens, [measured_seconds(runner, tokens, BUDGET)]) for tokens in lengths
        ]
    return Timings(
        rows,
        f"Measured just now: medians on {loaded.device.type}, model {name}, float32, blocks of "
        f"{BLOCK_SIZE} tokens; swap is out and back. The formula's rates were {costs.source}.",
    )


def runner_for(loaded: LoadedModel, tokens: int, block_size: int) -> ModelRunner:
    """A runner whose pools hold `tokens` positions each. Raises BadInput for pools that do not fit."""
    blocks = -(-tokens // block_size)
    refuse_large_pools(
        loaded.config,
        loaded.dtype,
        loaded.device,
        num_blocks=blocks,
        block_size=block_size,
        host_blocks=blocks,
    )
    return ModelRunner(loaded, num_blocks=blocks, block_size=block_size, host_blocks=blocks)


def measured_seconds(runner: ModelRunner, tokens: int, budget: float) -> dict[str, float]:
    """Both methods on the clock, at one length."""
    device = runner.loaded.device
    there = reversed_pairs(-(-tokens // runner.cache.block_size))
    back = [(host, block) for block, host in there]
    out = timed(partial(runner.copy_out, there), device, budget / 2)
    into = timed(partial(runner.copy_in, back), device, budget / 2)
    return {"recompute": pass_seconds(runner, tokens, budget), "swap": out + into}


def row(costs: CostModel, tokens: int, rounds: Sequence[dict[str, float]]) -> dict[str, Any]:
    """One length: both methods, predicted and measured (medians), and predicted over measured."""
    measured = {method: median(one[method] for one in rounds) for method in METHODS}
    predicted = {
        "recompute": costs.recompute_seconds(tokens),
        "swap": costs.swap_seconds(costs.blocks_for(tokens)),
    }
    return {
        "tokens": tokens,
        "predicted_seconds": predicted,
        "measured_seconds": measured,
        "ratio": {method: predicted[method] / measured[method] for method in METHODS},
    }
