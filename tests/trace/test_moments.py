"""Moments: what a teacher would stop at, found by one rule. The figures' are stated here in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import scenario_from
from kvlab.trace.document import Trace
from kvlab.trace.moments import HEAVY, grain, moments
from kvlab.trace.ranges import lesson_range

TRACES = Path(__file__).resolve().parents[2] / "assets" / "traces"

FIGURES: dict[str, list[tuple[str, str]]] = {
    "figure-1": [
        ("admitted", "both have their two blocks, nothing is written: 7 + 7 to come, 0 free"),
        ("prefill", "step 1 has ended: KV 7 and 7, one empty slot each"),
        ("decode", "step 2 has ended: KV 8 and 8, every slot is full"),
        ("needed", "position 8 of A has no block"),
    ],
    "figure-2": [
        ("needed", "position 8 of A has no block"),
        ("paused", "B is skipped: both tables stand, 0 free, A is stalled"),
        ("chosen", "B is preempted"),
        ("released", "P2 and P3 are free, their old values still there"),
    ],  # the part ends where A has P2 and position 8 is written in its first slot
    "figure-3": [
        ("needed", "position 8 of A has no block"),
        ("chosen", "B, the newest"),
        ("released", "B: KV 0, history 9, x0 and x1 sent"),
        ("decode", "A has P2 and sends x2"),
        ("decode", "A goes on up to step 5; B waits"),
        ("ended", "A ends: 4 blocks are free"),
        ("resumed", "B has 3 blocks"),
        ("recompute", "one pass over 9 tokens; x2 is sent"),
    ],
    "figure-4": [
        ("needed", "position 8 of A has no block"),
        ("chosen", "B, the newest"),
        ("copied_out", "8 positions lie in the CPU pool; P2 and P3 are still B's"),
        ("released", "only now P2 and P3 are free"),
        ("decode", "A goes on up to step 5; B waits"),
        ("ended", "A ends: 4 blocks are free"),
        ("copied_in", "8 positions are back in P3 and P0"),
        ("decode", "x1 is processed in a third block, x2 is sent"),
    ],
    "figure-5": [
        ("prefill", "step 1"),
        ("decode", "step 2: x1 of both"),
        ("needed", "step 3: A needs a block"),
        ("released", "B's blocks are free"),
        ("decode", "step 5: A goes on, B's user waits"),
        ("ended", "step 6: A ends, which makes room for B"),
        ("recompute", "step 7: x2 of B, 5 steps after x1"),
        ("ended", "step 8: B ends"),
    ],
}
STATES: dict[str, list[dict[str, Any]]] = {
    "figure-1": [
        {"free": 0, "kv": (0, 0), "blocks": (2, 2)},
        {"free": 0, "kv": (7, 7), "blocks": (2, 2)},
        {"free": 0, "kv": (8, 8), "blocks": (2, 2)},
        {"free": 0, "kv": (8, 8), "blocks": (2, 2)},
    ],
    "figure-2": [
        {"free": 0, "kv": (8, 8), "blocks": (2, 2)},
        {"free": 0, "kv": (8, 8), "blocks": (2, 2)},
        {"free": 0, "kv": (8, 8), "blocks": (2, 2)},
        {"free": 2, "kv": (8, 0), "blocks": (2, 0)},
    ],
    "figure-3": [
        {"free": 0, "kv": (8, 8), "blocks": (2, 2)},
        {"free": 0, "kv": (8, 8), "blocks": (2, 2)},
        {"free": 2, "kv": (8, 0), "blocks": (2, 0)},
        {"free": 1, "kv": (9, 0), "blocks": (3, 0)},
        {"free": 1, "kv": (11, 0), "blocks": (3, 0)},
        {"free": 4, "kv": (0, 0), "blocks": (0, 0)},
        {"free": 1, "kv": (0, 0), "blocks": (0, 3)},
        {"free": 1, "kv": (0, 9), "blocks": (0, 3)},
    ],
}


def recorded(name: str) -> Trace:
    return Trace.read(TRACES / f"{name}.json")


def told(trace: Trace) -> list[Any]:
    """The moments at which a lesson's part stops."""
    found, (start, stop) = moments(trace), lesson_range(trace)
    least = grain(found, start, stop)
    return [one for one in found if start < one.cursor <= stop and one.weight >= least]


@pytest.mark.parametrize("name", FIGURES)
def test_the_figures_moments(name: str) -> None:
    stops = told(recorded(name))
    assert [one.kind for one in stops] == [kind for kind, _ in FIGURES[name]]
    assert 4 <= len(stops) <= 8


@pytest.mark.parametrize("name", STATES)
def test_every_state_that_a_figure_must_show_is_a_moment(name: str) -> None:
    trace = recorded(name)
    for moment, expected in zip(told(trace), STATES[name], strict=True):
        state = trace.state_at(moment.cursor)
        a, b = (state["requests"][id] for id in "AB")
        assert state["free"] == expected["free"], moment
        assert (a["kv"], b["kv"]) == expected["kv"], moment
        assert (len(a["table"]), len(b["table"])) == expected["blocks"], moment


def test_the_end_of_a_part_is_the_last_stop() -> None:
    """Figure 2 ends where A has its third block and the first slot of it is written."""
    trace = recorded("figure-2")
    state = trace.state_at(lesson_range(trace)[1])
    assert (state["free"], state["requests"]["A"]["kv"]) == (1, 9)
    assert state["requests"]["A"]["table"] == [0, 1, 2]


@pytest.mark.parametrize("path", sorted(TRACES.glob("*.json")), ids=lambda path: path.stem)
def test_moments_of_every_run(path: Path) -> None:
    """In order, each once, told by an event before the cursor; every step with a shortage has one."""
    trace = Trace.read(path)
    found = moments(trace)
    cursors = [one.cursor for one in found]
    assert cursors == sorted(set(cursors))
    assert [one.start for one in found] == [0, *cursors[:-1]]
    assert all(one.event < one.cursor for one in found)
    ends = {event["step"] for event in trace.events if event["kind"] == "finished"}
    needs = {event["step"] for event in trace.events if event["kind"] == "block_needed"}
    heavy = {trace.events[one.event]["step"] for one in found if one.weight == HEAVY}
    assert ends | needs <= heavy


def test_a_long_decode_is_one_stop() -> None:
    """A alone, 12 outputs in one block: its first comes from the prefill, its last ends it."""
    raw: dict[str, Any] = {"name": "alone", "title": "", "model": None}
    raw["engine"] = {"num_blocks": 16, "block_size": 16}
    raw["requests"] = [{"id": "A", "prompt": [1, 2, 3], "max_tokens": 12}]
    trace = run_scenario(scenario_from(raw, Path(), "a test")).trace
    kinds = [one.kind for one in moments(trace)]
    assert kinds == ["admitted", "prefill", "decode", "ended"]
    assert trace.events[moments(trace)[2].cursor - 1]["step"] == 11


def test_a_copy_of_one_block_a_step_is_seen_in_every_step() -> None:
    raw: dict[str, Any] = {"name": "slow", "title": "", "model": None}
    raw["engine"] = {"num_blocks": 4, "block_size": 4, "host_blocks": 4, "method": "swap"}
    raw["engine"]["copy_blocks_per_step"] = 1
    raw["requests"] = [
        {"id": id, "prompt": [1] * 7, "max_tokens": most} for id, most in (("A", 6), ("B", 4))
    ]
    trace = run_scenario(scenario_from(raw, Path(), "a test")).trace
    out = [one for one in moments(trace) if one.kind == "copied_out"]
    assert [trace.events[one.event]["step"] for one in out] == [3, 4]
