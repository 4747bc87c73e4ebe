"""Both methods on the clock of the machine at hand, beside what the cost model says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvlab.bench.cost import measured_seconds, row, runner_for
from kvlab.errors import BadInput
from kvlab.lessons.table import Table
from kvlab.models.loading import load_model
from kvlab.runtime.calibrate import measure_costs
from kvlab.runtime.threads import few_threads

LENGTHS = (32, 128, 512, 2_048)
BLOCK_SIZE = 16
BUDGET = 0.3
"""Seconds for the repeats of one measurement; at least one is timed after the warm-up."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds by length, measured and predicted; shows itself in a notebook.

    `rows` are those of `kvlab.bench.cost.row`: tokens, measured_seconds, predicted_seconds, ratio.
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
