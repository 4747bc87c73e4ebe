"""The cost model held against the clock: seconds predicted and measured, by length."""

from __future__ import annotations

from typing import Any

from kvlab.course.measured import METHODS, measured_seconds, row, runner_for
from kvlab.errors import BadInput
from kvlab.models.loading import load_model
from kvlab.runtime.calibrate import Rates, keep, measure
from kvlab.runtime.threads import few_threads

LENGTHS = (128, 256, 512, 1_024, 2_048)
WITHIN = 0.25
"""How far a prediction may be from what was measured, as a share of that."""
ROUNDS = 3
"""Calibration and measurement take turns, so that both see the same machine."""
BUDGET = 1.0
"""Seconds for the repeats of one measurement; at least one is timed after the warm-up."""


def bench_cost(
    name: str,
    *,
    block_size: int = 16,
    dtype: str = "float32",
    device: str = "auto",
    lengths: tuple[int, ...] = LENGTHS,
    rounds: int = ROUNDS,
    budget: float = BUDGET,
) -> dict[str, Any]:
    """Calibrate and time both methods at the lengths that fit the model's context, in turns; medians.

    Recompute is one packed pass over N positions, swap a copy of their blocks out and one in. Raises
    BadInput for what cannot be loaded and for pools that do not fit.
    """
    loaded = load_model(name, device=device, dtype=dtype)
    fitting = [n for n in lengths if n <= loaded.config.max_positions]
    if not fitting:
        raise BadInput(
            f"model {name} has a context of {loaded.config.max_positions:,} tokens, fewer than the "
            f"{min(lengths):,} of the shortest row."
        )
    with few_threads(loaded.config):
        runner = runner_for(loaded, fitting[-1], block_size)
        measured: list[Rates] = []
        seconds: dict[int, list[dict[str, float]]] = {tokens: [] for tokens in fitting}
        for _ in range(rounds):
            measured.append(measure(runner))
            for tokens in fitting:
                seconds[tokens].append(measured_seconds(runner, tokens, budget))
        costs = keep(runner, measured)
    rows = [row(costs, tokens, seconds[tokens]) for tokens in fitting]
    return {
        "model": name,
        "dtype": dtype,
        "device": loaded.device.type,
        "block_size": block_size,
        "rounds": rounds,
        "costs": costs.as_json(),
        "rows": rows,
    }


def table(found: dict[str, Any]) -> str:
    """What the command prints: milliseconds, ratios, how many are within the aim."""
    costs = found["costs"]
    lines = [
        f"{found['model']} in {found['dtype']} on {found['device']}, blocks of "
        f"{found['block_size']} tokens, milliseconds, medians of "
        f"{found['rounds']} rounds. Rates {costs['source']}.",
        f"Rates: {costs['operations_per_second'] / 1e9:,.1f} GFLOP/s in products with weights, "
        f"{costs['attention_operations_per_second'] / 1e9:,.1f} in attention, weights at "
        f"{costs['weight_bytes_per_second'] / 1e9:,.2f} GB/s, copies out at "
        f"{costs['out_bytes_per_second'] / 1e9:,.2f} and in at "
        f"{costs['in_bytes_per_second'] / 1e9:,.2f} GB/s, {costs['seconds_per_copy'] * 1e6:,.0f} µs "
        "to start one.",
        "",
        f"{'':>8}  {'recompute':^29}  {'swap':^29}",
        f"{'tokens':>8}" + f"  {'predicted':>10} {'measured':>10} {'ratio':>7}" * 2,
    ]
    ratios = []
    for entry in found["rows"]:
        cells = ""
        for method in METHODS:
            ratio = entry["ratio"][method]
            ratios.append(ratio)
            cells += (
                f"  {entry['predicted_seconds'][method] * 1e3:>10,.2f}"
                f" {entry['measured_seconds'][method] * 1e3:>10,.2f} {ratio:>7.2f}"
            )
        lines.append(f"{entry['tokens']:>8,}{cells}")
    near = sum(1 - WITHIN <= ratio <= 1 + WITHIN for ratio in ratios)
    lines += ["", f"{near} of {len(ratios)} predictions within ±{WITHIN:.0%} of what was measured."]
    return "\n".join(lines)
