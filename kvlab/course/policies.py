"""Who should be paused? One workload under every victim policy, in pools that get smaller."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from kvlab.course.workload import blocks_needed, conversations, longest, mixed, run
from kvlab.engine.config import FREE_ORDERS, VICTIMS

SHARES = (1.0, 0.67, 0.38, 0.19, 0.10)
"""Pools as a share of the blocks that the workload holds at once when it never runs out."""

SEEDS = (0, 1, 2, 3, 4)
REQUESTS = 300
NUMBERS = ("recompute_tax", "preemptions", "ttft", "longest_gap", "goodput")


@dataclass(frozen=True, slots=True)
class Row:
    """One setting: each number's mean over the seeds, and its least and greatest value."""

    setting: str
    share: float
    blocks: float
    numbers: dict[str, tuple[float, float, float]]


def bench_policies(
    requests: int = REQUESTS,
    seeds: Sequence[int] = SEEDS,
    shares: Sequence[float] = SHARES,
    policies: Sequence[str] = VICTIMS,
) -> Iterator[Row]:
    """Every policy in every pool; rows come as they are measured."""
    workloads = [mixed(requests, seed) for seed in seeds]
    needs = [blocks_needed(workload) for workload in workloads]
    for share in shares:
        for policy in policies:
            pools = [
                max(longest(w), int(need * share)) for w, need in zip(workloads, needs, strict=True)
            ]
            results = [
                run(workload, num_blocks=blocks, victim=policy, victim_seed=seed)
                for workload, blocks, seed in zip(workloads, pools, seeds, strict=True)
            ]
            yield Row(policy, share, mean(pools), spread(results, NUMBERS))


def bench_free_orders(
    requests: int = REQUESTS, seeds: Sequence[int] = SEEDS, shares: Sequence[float] = SHARES
) -> Iterator[Row]:
    """head_first against tail_first with the prefix cache on: how much is found again."""
    workloads = [conversations(requests, seed) for seed in seeds]
    needs = [blocks_needed(workload) for workload in workloads]
    for share in shares:
        pools = [
            max(longest(w), int(need * share)) for w, need in zip(workloads, needs, strict=True)
        ]
        for order in FREE_ORDERS:
            results = [
                run(workload, num_blocks=blocks, prefix_cache=True, free_order=order)
                for workload, blocks in zip(workloads, pools, strict=True)
            ]
            yield Row(order, share, mean(pools), spread(results, ("from_cache", *NUMBERS)))


def spread(
    results: Sequence[dict[str, Any]], names: Sequence[str]
) -> dict[str, tuple[float, float, float]]:
    """(mean, least, greatest) of each number."""
    return {
        name: (mean(values), min(values), max(values))
        for name in names
        for values in ([result[name] for result in results],)
    }


HEADS = {
    "recompute_tax": "computed again %",
    "preemptions": "preemptions",
    "ttft": "TTFT steps",
    "longest_gap": "longest gap steps",
    "goodput": "tokens/step",
    "from_cache": "from cache %",
}


def print_table(rows: Iterator[Row], names: Sequence[str], say: Callable[[str], None]) -> None:
    """Rows as they come: mean over the seeds (least–greatest)."""
    say(f"{'':18}{'pool':>12}  " + "".join(f"{HEADS[name]:>24}" for name in names))
    share = None
    for row in rows:
        if row.share != share:
            say("")
        share = row.share
        cells = "".join(f"{cell(name, row.numbers[name]):>24}" for name in names)
        say(f"{row.setting:18}{row.share:>5.0%} {row.blocks:>6.0f}  {cells}")


def cell(name: str, values: tuple[float, float, float]) -> str:
    percent = 100 if name in ("recompute_tax", "from_cache") else 1
    average, least, most = (value * percent for value in values)
    return f"{average:.1f} ({least:.1f}–{most:.1f})"
