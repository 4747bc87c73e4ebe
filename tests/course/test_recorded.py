"""The recorded traces are what the engine does now, event for event; seconds excepted."""

from __future__ import annotations

import pytest

from kvlab.course.record import TRACES, facts, recorded
from kvlab.models.loading import load_model
from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import load_scenario, scenario_names
from kvlab.trace.ranges import lesson_notes, lesson_range

NAMES = scenario_names()


@pytest.fixture(scope="module")
def story():
    return load_model("story", device="cpu")


def test_every_scenario_is_recorded_and_nothing_else():
    assert sorted(path.stem for path in TRACES.glob("*.json")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_made_again_it_is_the_same(name, story):
    old, new = recorded(name), run_scenario(load_scenario(name, ["device=cpu"]), model=story).trace
    assert facts(old) == facts(new)
    assert old.document["recorded"] is True
    assert new.document["recorded"] is False


@pytest.mark.parametrize("name", NAMES)
def test_measured_values_are_the_same_up_to_rounding(name, story):
    """Norms come from floating point: another machine may round the last digits differently."""
    old, new = recorded(name), run_scenario(load_scenario(name, ["device=cpu"]), model=story).trace
    pairs = zip(old.document["measurements"], new.document["measurements"], strict=True)
    for before, after in pairs:
        assert (before["event"], before["block"]) == (after["event"], after["block"])
        assert before.keys() == after.keys()
        for norm in {"k_norm", "v_norm"} & before.keys():
            assert before[norm] == pytest.approx(after[norm], rel=1e-3, abs=1e-3)


def test_swap_brings_back_the_bytes_and_recompute_all_but_the_last_digits():
    """Checksums before and after are equal; rebuilt fp32 values differ by rounding, below 1e-4."""
    swapped, rebuilt = recorded("figure-4"), recorded("figure-5")
    sums = {
        kind: [
            entry["checksum"]
            for entry in swapped.document["measurements"]
            if swapped.events[entry["event"]]["kind"] == kind
        ]
        for kind in ("swap_out_started", "swap_in_finished")
    }
    assert len(sums["swap_out_started"]) == 2
    assert sums["swap_out_started"] == sums["swap_in_finished"]
    differences = [m["max_diff"] for m in rebuilt.document["measurements"] if "max_diff" in m]
    assert len(differences) == 2
    assert all(0 <= value < 1e-4 for entry in differences for value in entry.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_opens_and_speaks_inside_its_run(name):
    trace = recorded(name)
    first, last = lesson_range(trace)
    assert 0 <= first < last <= len(trace.events)
    notes = trace.document["scenario"]["lesson"].get("narration", [])
    assert len(lesson_notes(trace)) == len(notes)
    if not name.startswith("figure-"):
        assert notes
        assert trace.document["scenario"]["lesson"]["about"]
