"""Seeded workloads for scheduling benchmarks: lengths in tokens, arrivals in steps, no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from kvlab.engine.config import EngineConfig
from kvlab.engine.engine import Engine
from kvlab.engine.events import BlockAllocated, Preempted, TokenDelivered
from kvlab.engine.request import Request
from kvlab.engine.stand_in import StandInRunner

BLOCK_SIZE = 16
STEP_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of a workload."""

    prompt: tuple[int, ...]
    max_tokens: int
    arrival_step: int
    priority: int

    def fresh(self, number: int) -> Request:
        """A new engine request with this content."""
        return Request(
            id=f"r{number}",
            prompt=self.prompt,
            max_tokens=self.max_tokens,
            arrival_step=self.arrival_step,
            priority=self.priority,
        )


def mixed(count: int, seed: int) -> list[Asked]:
    """`count` requests, one arriving about every second step: prompts of 8 to 256 tokens, outputs of
    8 to 256, both with many short and few long ones (log-uniform), three priorities."""
    rng = Random(seed)
    step = 0
    asked = []
    for number in range(count):
        step += rng.choice((0, 1, 2, 5))
        length, outputs = (int(2 ** rng.uniform(3, 8)) for _ in range(2))
        prompt = tuple(rng.randrange(1_000) for _ in range(length))
        asked.append(Asked(prompt, outputs, step, number % 3))
    return asked


def conversations(count: int, seed: int) -> list[Asked]:
    """`count` requests, each one of 12 long openings with an ending of its own: what a prefix cache
    is for."""
    rng = Random(seed)
    openings = [
        tuple(rng.randrange(1_000) for _ in range(rng.randrange(64, 192))) for _ in range(12)
    ]
    step = 0
    asked = []
    for _ in range(count):
        step += rng.choice((1, 2, 4))
        ending = tuple(rng.randrange(1_000) for _ in range(rng.randrange(4, 40)))
        asked.append(Asked(rng.choice(openings) + ending, int(2 ** rng.uniform(3, 7)), step, 0))
    return asked


def blocks_needed(workload: Sequence[Asked]) -> int:
    """Most blocks that the workload holds at once in a pool that never runs out."""
    total = sum(-(-(len(a.prompt) + a.max_tokens) // BLOCK_SIZE) for a in workload)
    return total - run(workload, num_blocks=total)["least_free"]


def longest(workload: Sequence[Asked]) -> int:
    """Blocks that the longest request needs alone."""
    return max(-(-(len(a.prompt) + a.max_tokens - 1) // BLOCK_SIZE) for a in workload)


def run(workload: Sequence[Asked], **settings: Any) -> dict[str, Any]:
    """Run to the end without a model; counts in tokens, blocks and steps.

    recompute_tax (tokens computed again / tokens processed), preemptions, ttft (mean), longest_gap,
    goodput (output tokens a step), from_cache (share of the history tokens that were found), steps,
    least_free (blocks, at any moment).
    """
    config = EngineConfig(
        **{"block_size": BLOCK_SIZE, "host_blocks": 0, "step_tokens": STEP_TOKENS} | settings
    )
    engine = Engine(config, StandInRunner())
    for number, asked in enumerate(workload):
        engine.add_request(asked.fresh(number))
    reports = engine.run()
    events = [event for report in reports for event in report.events]
    processed = sum(report.tokens for report in reports)
    cached = sum(report.tokens_from_cache for report in reports)
    sent = [event for event in events if isinstance(event, TokenDelivered)]
    firsts = [event.step for event in sent if event.gap is None]
    waited = sum(firsts) - sum(asked.arrival_step for asked in workload)
    return {
        "recompute_tax": sum(report.tokens_again for report in reports) / processed,
        "preemptions": sum(isinstance(event, Preempted) for event in events),
        "ttft": waited / len(workload),
        "longest_gap": max((event.gap or 0 for event in sent), default=0),
        "goodput": len(sent) / len(reports),
        "from_cache": cached / (processed + cached),
        "steps": len(reports),
        "least_free": min(e.free for e in events if isinstance(e, BlockAllocated)),
    }
