"""Replay in Python, on the recorded figures and on the corners of the vocabulary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvlab.trace import replay

TRACES = Path(__file__).resolve().parents[2] / "assets" / "traces"


def trace_named(name: str) -> dict[str, Any]:
    path = TRACES / f"{name}.json"
    if not path.exists():
        pytest.skip(f"assets/traces has no {name}.json")
    document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return document


@pytest.mark.parametrize(
    ("name", "free"),
    [("figure-5", [0, 0, 1, 1, 1, 4, 1, 4]), ("figure-2", [0, 0, 0, 1, 1, 1, 4, 1, 4])],
)
def test_free_blocks_after_each_step(name: str, free: list[int]) -> None:
    trace = trace_named(name)
    found = [replay.state_at(trace, step["end"])["free"] for step in trace["steps"]]
    assert found == free


def test_counts_agree_with_what_they_count() -> None:
    """At every cursor of every lesson: cells, tables and numbers tell one story.

    With a prefix cache a block may be shared before the step that fills it is executed, and by
    requests that did not write it: there the cells are held against the numbers at the steps' ends.
    """
    for path in sorted(TRACES.glob("*.json")):
        trace = json.loads(path.read_text("utf-8"))
        sharing = trace["scenario"]["engine"]["prefix_cache"]
        if trace["scenario"]["engine"]["unsafe"]:
            continue  # there a table may hold another request's values: that is the lesson
        ends = {step["end"] for step in trace["steps"]}
        for cursor, state in enumerate(replay.states(trace)):
            if sharing and cursor not in ends:
                continue
            held = sum(block["status"] == "held" for block in state["blocks"])
            assert state["free"] + state["in_flight"] + held == len(state["blocks"])
            for name, request in state["requests"].items():
                cells = [
                    cell
                    for block in request["table"]
                    for cell in state["blocks"][block]["cells"]
                    if cell and cell["live"]
                ]
                assert [cell["position"] for cell in cells] == list(range(request["kv"]))
                assert sharing or {cell["id"] for cell in cells} <= {name}
                assert request["delivered"] <= len(request["outputs"]) <= request["history"]


def test_a_release_of_the_tail_keeps_the_rest_of_the_table() -> None:
    """Before a swap the blocks without KV are released alone."""
    state = replay.empty_state(4, 4, 2)
    for event in (
        {"kind": "arrived", "step": 1, "id": "A", "history": 4, "max_tokens": 8, "priority": 0},
        {"kind": "block_allocated", "step": 1, "id": "A", "why": "prefill", "blocks": [0, 1],
         "logical": 0, "free": 2},
        {"kind": "kv_written", "step": 1, "id": "A", "why": "first", "block": 0, "logical": 0,
         "slot": 0, "first": 0, "last": 3},
        {"kind": "block_released", "step": 2, "id": "A", "why": "preempted", "blocks": [1],
         "freed": [1], "cached": [], "free": 3, "next_id": None, "next_needs": None},
    ):  # fmt: skip
        replay.apply(state, event)
    assert state["requests"]["A"]["table"] == [0]
    assert state["requests"]["A"]["kv"] == 4
    assert state["free"] == 3


def test_a_failed_copy_leaves_a_request_to_recompute() -> None:
    state = replay.empty_state(2, 4, 2)
    for event in (
        {"kind": "arrived", "step": 1, "id": "A", "history": 4, "max_tokens": 8, "priority": 0},
        {"kind": "copy_failed", "step": 2, "id": "A", "copy": 1, "why": "out", "message": "x"},
    ):
        replay.apply(state, event)
    assert state["requests"]["A"]["state"] == "preempted"
    assert state["requests"]["A"]["method"] == "recompute"
