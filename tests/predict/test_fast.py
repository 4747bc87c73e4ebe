"""The schedule without events beside the engine's own, on random workloads: equal in every step."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from kvlab.engine.config import VICTIMS, EngineConfig
from kvlab.engine.engine import Engine
from kvlab.engine.events import Admitted, KvWritten, Preempted, Resumed
from kvlab.engine.request import Batch, Request, Sampled
from kvlab.engine.stand_in import StandInRunner
from kvlab.errors import BadInput
from kvlab.predict.fast import FastEngine, Job

BLOCK = 4


class OwnOutputs(StandInRunner):
    """Every request has outputs of its own, unless its prompt is another's: as greedy ones are."""

    def __init__(self, tokens: dict[str, int]) -> None:
        self._tokens = tokens

    def execute(self, batch: Batch) -> list[Sampled]:
        return [Sampled(one.id, self._tokens[one.id], None) for one in batch for _ in one.sampling]


def prompt_of(index: int, tokens: int, blocks: Sequence[int]) -> tuple[int, ...]:
    """Tokens that are equal where the numbers of their blocks are."""
    shared = [1_000 + block for block in blocks for _ in range(BLOCK)]
    return (*shared, *[1_000_000 + index] * (tokens - len(shared)))


def workload(rng: random.Random, pool: int) -> list[tuple[int, int, tuple[int, ...], int]]:
    """(prompt, outputs, blocks, arrival step) of some requests that the pool can hold one by one."""
    chains = [tuple(range(10 * chain, 10 * chain + 9)) for chain in range(3)]
    made = []
    for _ in range(rng.randint(2, 14)):
        most = pool * BLOCK
        prompt = rng.randint(1, max(1, most * 2 // 3))
        outputs = rng.randint(1, max(1, most - prompt))
        shared = rng.choice(chains)[: rng.randint(0, prompt // BLOCK)] if rng.random() < 0.7 else ()
        made.append((prompt, outputs, shared, rng.randint(0, 12)))
    return sorted(made, key=lambda one: one[3])


def settings(rng: random.Random) -> dict[str, Any]:
    pool = rng.randint(3, 14)
    method = rng.choice(["recompute", "recompute", "swap"])
    return {
        "num_blocks": pool,
        "block_size": BLOCK,
        "method": method,
        "host_blocks": rng.choice([0, 4, 40]),
        "victim": rng.choice([name for name in VICTIMS if name != "random"] + ["newest"] * 2),
        "free_order": rng.choice(["vllm_v1", "head_first", "tail_first"]),
        "prefix_cache": method == "recompute" and rng.random() < 0.7,
        "allocation": rng.choice(["on_demand", "on_demand", "reserve_max"]),
        "step_tokens": rng.choice([None, 3, 8, 30]),
        "chunk_tokens": rng.choice([None, None, 2, 7]),
        "max_running": rng.choice([None, 1, 3]),
        "watermark_blocks": rng.choice([0, 0, 1, 2]),
        "admission": rng.choice(["whole_sequence", "first_chunk"]),
        "async_scheduling": rng.random() < 0.5,
    }


def compare(seed: int) -> int:
    """Both engines, step by step; returns the preemptions that there were."""
    rng = random.Random(seed)
    chosen = settings(rng)
    config = EngineConfig(**chosen)
    asked = workload(rng, config.num_blocks)
    outputs: dict[str, int] = {}
    by_prompt: dict[tuple[int, ...], int] = {}
    engine = Engine(config, OwnOutputs(outputs))
    fast = FastEngine(config)
    jobs = []
    for at, (prompt, count, blocks, arrival) in enumerate(asked):
        tokens = prompt_of(at, prompt, blocks)
        outputs[str(at)] = by_prompt.setdefault(tokens, 2_000_000 + at)
        engine.add_request(
            Request(id=str(at), prompt=tokens, max_tokens=count, arrival_step=arrival)
        )
        jobs.append(Job(at, prompt, count, blocks))
    to_come = list(jobs)
    counts: Counter[tuple[str, str]] = Counter()
    done: list[Job] = []
    idle = 0
    while engine.has_work and idle < 4:  # a batch that waits for ever, waits in both
        told = engine.step()
        while to_come and asked[to_come[0].index][3] < told.step:
            fast.waiting.append(to_come.pop(0))
        before = fast.preemptions
        step = fast.schedule()
        given = sorted(
            [tokens for tokens, _ in step.shape.prefills] + [1] * len(step.shape.decodes)
        )
        assert given == sorted(told.scheduled.values()), (seed, told.step, chosen)
        assert fast.preemptions - before == len(told.preempted), (seed, told.step)
        now, done = (done, step.lasts) if config.async_scheduling else (step.lasts, [])
        for job in now:
            fast.end(job)
        order = engine.queues.order
        assert [str(job.index) for job in fast.running] == list(order["running"]), (seed, told.step)
        assert [str(job.index) for job in fast.waiting] == list(order["waiting"]), (seed, told.step)
        for job in jobs:
            request = engine.requests[str(job.index)]
            assert (job.computed, job.table) == (request.computed, request.table), (seed, told.step)
            assert job.host == request.host_kv
        assert fast.free == engine.kv.pool.free
        idle = 0 if told.tokens or told.preempted or to_come else idle + 1
        for event in told.events:
            if isinstance(event, Preempted):
                counts["preemptions", event.id] += 1
            if isinstance(event, KvWritten) and event.why == "rebuilt":
                counts["recomputed", event.id] += event.last - event.first + 1
            if isinstance(event, Admitted | Resumed):
                counts["from_cache", event.id] += event.from_cache
    for job in jobs:
        for name in ("preemptions", "recomputed", "from_cache"):
            assert getattr(job, name) == counts[name, str(job.index)], (seed, job.index, name)
    return fast.preemptions


def test_every_step_is_the_engines() -> None:
    preemptions = [compare(seed) for seed in range(250)]
    assert sum(count > 0 for count in preemptions) > 50


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_every_step_is_the_engines_thousands(part: int) -> None:
    for seed in range(10_000 + part * 500, 10_500 + part * 500):
        compare(seed)


def test_a_request_that_never_fits_is_refused_with_both_numbers() -> None:
    fast = FastEngine(EngineConfig(num_blocks=4, block_size=4))
    fast.refuse_if_never(Job(0, 10, 7))  # 16 positions: the last output needs none
    with pytest.raises(BadInput, match=r"request 1 of the workload needs 5 blocks.*the pool has 4"):
        fast.refuse_if_never(Job(0, 10, 8))


@pytest.mark.parametrize(
    "setting",
    [
        {"method": "pause_only"},
        {"victim": "random"},
        {"copy_blocks_per_step": 1},
        {"preempt_for_priority": True},
    ],
)
def test_what_it_does_not_follow_is_refused_by_name(setting: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=f"engine.{next(iter(setting))}"):
        FastEngine(EngineConfig(num_blocks=4, block_size=4, **setting))
