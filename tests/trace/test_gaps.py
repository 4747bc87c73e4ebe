"""Gaps between outputs: one computation, held against what the runs' tables say by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import scenario_from
from kvlab.trace.gaps import gaps

TRACES = Path(__file__).resolve().parents[2] / "assets" / "traces"
POOL = {"num_blocks": 4, "block_size": 4}
STORY = [
    {"id": "A", "prompt": [1] * 7, "max_tokens": 6},
    {"id": "B", "prompt": [2] * 7, "max_tokens": 4},
]

Split = tuple[int, int, int]
"""Steps of waiting, recovery, decoding."""


def splits(events: list[dict[str, Any]]) -> dict[str, list[Split]]:
    return {
        id: [(gap.waiting, gap.recovery, gap.decoding) for gap in of_request]
        for id, of_request in gaps(events).items()
    }


def run(requests: list[dict[str, Any]], *actions: dict[str, Any], **engine: Any) -> Any:
    raw: dict[str, Any] = {"name": "gaps", "title": "", "model": None, "requests": requests}
    raw |= {"engine": POOL | engine, "actions": list(actions)}
    return splits(run_scenario(scenario_from(raw, Path(), "a test")).trace.events)


@pytest.mark.parametrize(
    ("name", "id", "expected"),
    [
        # A is stalled in step 3, since skipping B releases nothing.
        ("figure-2", "A", [(0, 0, 1), (1, 0, 1), (0, 0, 1), (0, 0, 1), (0, 0, 1)]),
        ("figure-5", "A", [(0, 0, 1)] * 5),
        # Preempted in step 3, resumed in step 7, which delivers.
        ("figure-5", "B", [(0, 0, 1), (4, 1, 0), (0, 0, 1)]),
        ("figure-4", "B", [(0, 0, 1), (4, 1, 0), (0, 0, 1)]),
    ],
)
def test_the_figures(name: str, id: str, expected: list[Split]) -> None:
    trace = json.loads((TRACES / f"{name}.json").read_text("utf-8"))
    assert splits(trace["events"])[id] == expected


def test_a_pause_is_waiting_and_no_recovery() -> None:
    """Output x1 in step 2, paused in steps 3 and 4, x2 in step 5."""
    actions = [{"step": 3, "pause": "B"}, {"step": 5, "resume": "B"}]
    found = run(STORY, *actions, num_blocks=6)
    assert found["B"] == [(0, 0, 1), (2, 0, 1), (0, 0, 1)]
    assert found["A"] == [(0, 0, 1)] * 5


def test_whoever_stalls_for_anothers_copy_waits() -> None:
    """B's two blocks leave in steps 3 and 4, one a step; A can have one when both are stored."""
    found = run(STORY, method="swap", host_blocks=4, copy_blocks_per_step=1)
    assert found["A"][:3] == [(0, 0, 1), (2, 0, 1), (0, 0, 1)]
    # And both come back in two steps; B runs in the one after and delivers.
    assert [recovery for _, recovery, _ in found["B"]][1] == 3


def event(kind: str, step: int, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "step": step, "id": "B", **fields}


def test_a_recovery_that_is_broken_off_was_waiting() -> None:
    """Resumed in steps 4 and 7 and preempted again in between: the last resume counts."""
    events = [
        event("arrived", 1),
        event("scheduled", 1),
        event("token_delivered", 1, index=0, gap=None),
        event("preempted", 2),
        event("resumed", 4),
        event("scheduled", 4),
        event("preempted", 5),
        event("resumed", 7),
        event("scheduled", 7),
        event("scheduled", 8),
        event("token_delivered", 8, index=1, gap=7),
    ]
    assert splits(events) == {"B": [(5, 2, 0)]}


def test_tokens_that_are_given_back_do_not_count_as_run() -> None:
    events = [
        event("arrived", 1),
        event("token_delivered", 1, index=0, gap=None),
        event("scheduled", 2),
        event("unscheduled", 2),
        event("scheduled", 3),
        event("token_delivered", 3, index=1, gap=2),
    ]
    assert splits(events) == {"B": [(1, 0, 1)]}
