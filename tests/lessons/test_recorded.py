"""The recorded traces are what the engine does now, event for event; seconds excepted."""

from __future__ import annotations

import pytest

from kvlab.lessons.ranges import lesson_notes, lesson_range
from kvlab.lessons.record import TRACES, facts, recorded
from kvlab.models.loading import load_model
from kvlab.run import run_scenario
from kvlab.scenario import load_scenario, scenario_names

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
        for norm in ("k_norm", "v_norm"):
            assert before[norm] == pytest.approx(after[norm], rel=1e-3, abs=1e-3)


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
