"""Long runs and wide ones: nothing leaks, and a step costs what its running requests cost."""

from __future__ import annotations

import random
import time

import pytest

from kvlab.engine.config import EngineConfig
from kvlab.engine.engine import Action, Engine
from kvlab.engine.request import Request
from kvlab.engine.stand_in import StandInRunner
from tests.engine.harness import snapshot

# A pool of about a third of what its batch would like to hold, shared prefixes, slow copies.
SOAKED = (
    EngineConfig(num_blocks=60, block_size=4, prefix_cache=True),
    EngineConfig(num_blocks=60, block_size=4, method="swap", host_blocks=40),
    EngineConfig(
        num_blocks=60,
        block_size=4,
        method="auto",
        host_blocks=20,
        copy_blocks_per_step=2,
        chunk_tokens=8,
        step_tokens=48,
        prefix_cache=True,
        free_order="tail_first",
        victim="cost_score",
        watermark_blocks=2,
    ),
    EngineConfig(
        num_blocks=60,
        block_size=4,
        chunk_tokens=6,
        admission="first_chunk",
        victim="random",
        max_running=12,
        free_order="vllm_v1",
    ),
)


def arrivals(engine: Engine, source: random.Random, number: int) -> Request:
    alike = source.choice([0, 8, 16])
    prompt = [*range(alike), *(source.randrange(1_000) for _ in range(source.randint(1, 24)))]
    return Request(
        id=f"r{number}",
        prompt=tuple(prompt),
        max_tokens=source.randint(1, 40),
        priority=source.choice([0, 0, 0, 1]),
        arrival_step=engine.steps,
        n=source.choice([1] * 9 + [2]),
    )


def soak(config: EngineConfig, steps: int, seed: int) -> Engine:
    """`steps` steps under a steady stream of requests, with aborts, pauses and preemptions."""
    source = random.Random(seed)
    engine = Engine(config, StandInRunner())
    live: list[Request] = []
    number = 0
    while engine.steps < steps:
        live = [request for request in live if request.finish_reason is None]
        while len(live) < 16:
            live.append(arrivals(engine, source, number))
            engine.add_request(live[-1])
            number += 1
        if source.random() < 0.05:
            verb = source.choice(["abort", "preempt", "pause", "resume"])
            name = source.choice(live).id
            engine.add_action(Action(step=engine.steps + 1, action=verb, id=name))
            if verb == "pause":
                later = engine.steps + source.randint(2, 9)
                engine.add_action(Action(step=later, action="resume", id=name))
        engine.step(end_if_stuck=True)
        if engine.steps % 100 == 0:
            engine.check_integrity()
    engine.run()
    return engine


def check_nothing_is_left(engine: Engine) -> None:
    engine.check_integrity()
    state = snapshot(engine)
    assert (state.free, state.host_free) == (engine.config.num_blocks, engine.config.host_blocks)
    assert state.in_flight == 0
    assert state.cached == len(engine.kv.pool._hash_of)
    assert (state.running, state.waiting, state.paused, state.history) == ((), (), (), {})
    assert not engine.swap.copies.in_flight
    assert sum(map(len, engine.kv.pool._by_hash.values())) == state.cached


@pytest.mark.parametrize("number", range(len(SOAKED)))
def test_soak(number: int) -> None:
    """A tenth of the long one: 10,000 steps in all."""
    engine = soak(SOAKED[number], 2_500, seed=number)
    assert engine.steps >= 2_500
    check_nothing_is_left(engine)


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(SOAKED)))
def test_soak_long(number: int) -> None:
    """100,000 steps in all, about a minute."""
    engine = soak(SOAKED[number], 25_000, seed=100 + number)
    assert engine.steps >= 25_000
    check_nothing_is_left(engine)


def seconds_per_request(width: int, steps: int = 40) -> float:
    """Scheduling seconds a step and running request, of a batch of `width` that decodes.

    The best of a few steps: what else the machine does only ever adds time.
    """
    config = EngineConfig(num_blocks=width * 32, block_size=16)
    engine = Engine(config, StandInRunner())
    for number in range(width):
        engine.add_request(Request(id=str(number), prompt=(1, 2, 3), max_tokens=10_000))
    engine.step()
    best = float("inf")
    for _ in range(steps):
        started = time.perf_counter()
        report = engine.step()
        best = min(best, time.perf_counter() - started)
        assert len(report.scheduled) == width
    return best / width


@pytest.mark.full
def test_a_step_costs_what_its_running_requests_cost() -> None:
    """From 8 to 256 running requests the cost of one grows by no more than 4 times (it would by 32 if
    a step looked at every pair)."""
    curve = {width: seconds_per_request(width) for width in (8, 16, 32, 64, 128, 256)}
    for width, seconds in curve.items():
        print(f"{width:4} running: {seconds * 1e6:7.1f} µs a request and step")
    assert curve[256] < 4 * curve[8]
