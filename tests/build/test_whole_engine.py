"""The solutions together are an engine: the article's figures, vLLM's recorded run, random runs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from solved import solution

from kvlab import build
from kvlab.lab.build.check import compare, frame_on, ground_of
from kvlab.lab.build.exercises import Case, case, ids
from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import load_scenario, scenario_from

PEERS = Path(__file__).resolve().parents[1] / "peers" / "test_vllm_rules.py"

FIGURES: tuple[tuple[int, list[int], int, list[int], int, str], ...] = (
    # A's KV and blocks, B's, free blocks and deliveries after each step: the article's story
    (7, [0, 1], 7, [2, 3], 0, "A0 B0"),
    (8, [0, 1], 8, [2, 3], 0, "A1 B1"),
    (9, [0, 1, 2], 0, [], 1, "A2"),
    (10, [0, 1, 2], 0, [], 1, "A3"),
    (11, [0, 1, 2], 0, [], 1, "A4"),
    (0, [], 0, [], 4, "A5"),
    (0, [], 9, [3, 0, 1], 1, "B2"),
    (0, [], 0, [], 4, "B3"),
)


def whole(document: dict[str, Any]) -> Any:
    """(frame, ground) of the reference engine on a scenario."""
    scenario = scenario_from(document, Path(), "scenario")
    ground = ground_of(scenario)
    return frame_on(ground, build.engine(*solution().PIECES[:-1]), Case(document)), ground


@pytest.mark.parametrize("name", ["figure-1", "figure-3", "figure-4", "figure-5"])
def test_the_figures_to_the_cell(name: str) -> None:
    """Figure 2's first scene, a pause that releases nothing, is no piece of this engine; its release
    in scenes b and c is step 3 of the same story."""
    frame, ground = whole(load_scenario(name).raw)
    while frame.has_work:
        frame.step()
    summary = frame.log.trace(ground).summary
    assert summary["steps"] == len(FIGURES)
    sent = {"A": 0, "B": 0}
    for entry, (kv_a, blocks_a, kv_b, blocks_b, free, delivered) in zip(
        summary["per_step"], FIGURES, strict=True
    ):
        assert (entry["kv"].get("A", 0), entry["blocks"].get("A", [])) == (kv_a, blocks_a)
        assert (entry["kv"].get("B", 0), entry["blocks"].get("B", [])) == (kv_b, blocks_b)
        assert entry["free"] == free
        told = []
        for id, tokens in entry["emitted"].items():
            told += [f"{id}{sent[id] + at}" for at in range(len(tokens))]
            sent[id] += len(tokens)
        assert " ".join(told) == delivered
    swapped = name == "figure-4"
    assert summary["tokens_processed"] == (22 if swapped else 30)
    assert summary["tokens_recomputed"] == (0 if swapped else 8)
    assert summary["blocks_swapped_out"] == summary["blocks_swapped_in"] == (2 if swapped else 0)
    roomy = run_scenario(load_scenario(name, ["engine.num_blocks=64"])).summary
    for id, request in roomy["requests"].items():
        assert frame.requests[id].history[7:] == request["output"]


def test_the_run_that_vllm_made() -> None:
    """The table is that of tests/peers: schedule and physical blocks right after scheduling."""
    spec = importlib.util.spec_from_file_location("vllm_rules", PEERS)
    assert spec is not None
    assert spec.loader is not None
    peer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peer)
    settings = {"preset": "vllm_v1", "num_blocks": peer.BLOCKS, "block_size": peer.BLOCK_SIZE}
    settings |= {"host_blocks": 0, "step_tokens": 256, "max_running": 8}
    asked = [
        {"id": "r0", "prompt": list(range(31)), "max_tokens": 150},
        {"id": "r1", "prompt": list(range(100, 132)), "max_tokens": 150},
    ]
    frame, _ = whole({"name": "two", "model": None, "engine": settings, "requests": asked})
    seen: list[tuple[dict[str, list[int]], int]] = []
    decide = frame.schedule

    def schedule() -> None:
        decide()
        tables = {id: list(request.table) for id, request in frame.requests.items()}
        seen.append((tables, frame.pool.free))

    frame.schedule = schedule
    for step in range(peer.STEPS):
        frame.step()
        change = peer.recorded_at(step)
        assert frame.batch == peer.recorded_schedule(step), step
        assert seen[step] == ({"r0": change.r0, "r1": change.r1}, change.free), step
        assert frame.preempted == (["r1"] if step == peer.PREEMPTED else [])
    assert not frame.has_work


@pytest.mark.parametrize("seed", range(12))
def test_random_runs_are_those_of_the_real_engine(seed: int) -> None:
    import random

    chance = random.Random(seed)
    settings: dict[str, Any] = {
        "num_blocks": chance.randrange(5, 10),
        "step_tokens": chance.choice([None, 4, 7]),
        **chance.choice([{}, {"preset": "vllm_v1"}]),
        "max_running": chance.choice([None, 2, 3]),
    }
    asked = [
        (ids(chance.randrange(2, 12), 300 + 30 * at), chance.randrange(1, 9)) for at in range(5)
    ]
    arrivals = tuple(sorted(chance.randrange(0, 6) for _ in asked))
    one = case(settings, *asked, arrivals=arrivals, model=None)
    expected = run_scenario(scenario_from(one.scenario, Path(), "scenario")).trace
    frame, _ = whole(one.scenario)
    while frame.has_work:
        frame.step()
        compare(frame, expected)
    assert frame.steps == expected.summary["steps"]
