"""Forks: the same run up to a step, another one from there on, and nothing hidden in between."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from kvlab.course.record import recorded
from kvlab.errors import BadInput
from kvlab.runs.fork import Fork, choices, departure, scenario_of, step_of
from kvlab.runs.run import Run, run_scenario
from kvlab.runs.scenario import load_scenario, scenario_from
from kvlab.trace.differences import first_difference
from kvlab.trace.document import Trace

STORY: dict[str, Any] = {
    "name": "story",
    "model": None,
    "engine": {"num_blocks": 4, "block_size": 4},
    "requests": [
        {"id": "A", "prompt": [1, 2, 3, 4, 5, 6, 7], "max_tokens": 6},
        {"id": "B", "prompt": [2, 3, 4, 5, 6, 7, 8], "max_tokens": 4},
    ],
}
CROWD: dict[str, Any] = {
    "name": "crowd",
    "model": None,
    "engine": {"num_blocks": 9, "block_size": 2, "copy_blocks_per_step": 1, "prefix_cache": True},
    "requests": [
        {"id": id, "prompt": [1, 1, n % 2, n], "max_tokens": 6 + n, "arrival_step": n}
        for n, id in enumerate("ABCD")
    ],
}


def run(document: dict[str, Any], **engine: Any) -> Run:
    changed = document | {"engine": document["engine"] | engine}
    return run_scenario(scenario_from(copy.deepcopy(changed), Path(), "test"))


def before(trace: Trace, step: int) -> list[dict[str, Any]]:
    return [event for event in trace.events if event["step"] < step]


@pytest.mark.parametrize("setting", ["victim", "method", "free_order", "next_victim"])
def test_a_fork_repeats_its_run_event_for_event_up_to_its_step(setting: str) -> None:
    old = run(CROWD)
    steps = [1, 4, 7, 11, len(old.trace.steps)]
    forked = []
    for step in steps:
        for value in choices(old.trace, step).get(setting, [])[:2]:
            fork = Fork(step, setting, value)
            new = run_scenario(fork.scenario(scenario_of(old)))
            assert before(new.trace, step) == before(old.trace, step)
            assert departure(old.trace, new.trace, fork) is None
            at = first_difference(old.trace.events, new.trace.events)
            assert at is not None
            # What comes first in the step is the scenario's own announcement.
            assert new.trace.events[at]["kind"] in ("setting_changed", "action_taken")
            assert new.trace.events[at]["step"] == step
            forked.append(fork)
    assert len(forked) >= 2


def test_a_fork_is_a_scenario_that_can_be_saved_run_again_and_forked_again(tmp_path: Path) -> None:
    old = run(STORY)
    first = Fork(3, "method", "swap").scenario(scenario_of(old))
    assert first.raw == STORY | {
        "name": "story-what-if",
        "title": "story, what if: method swap from step 3 on",
        "actions": [{"step": 3, "set": {"method": "swap"}}],
    }
    new = run_scenario(first)
    path = tmp_path / "saved.json"
    path.write_text(json.dumps(first.raw))
    again = run_scenario(load_scenario(str(path)))
    assert again.trace.events == new.trace.events
    assert new.summary["blocks_swapped_out"] == 2
    # A fork of the fork, in the same step: what is asked for last holds.
    second = Fork(3, "method", "recompute").scenario(scenario_of(new))
    assert second.raw["actions"] == [
        {"step": 3, "set": {"method": "swap"}},
        {"step": 3, "set": {"method": "recompute"}},
    ]
    back = run_scenario(second)
    assert back.summary["blocks_swapped_out"] == 0
    assert back.summary["tokens_recomputed"] == 8


def test_a_change_holds_before_what_else_happens_in_its_step() -> None:
    old = run(STORY | {"actions": [{"step": 2, "preempt": "B"}, {"step": 9, "abort": "B"}]})
    assert old.summary["blocks_swapped_out"] == 0
    fork = Fork(2, "method", "swap").scenario(scenario_of(old))
    assert [sorted(action) for action in fork.raw["actions"]] == [
        ["set", "step"],
        ["preempt", "step"],
        ["abort", "step"],
    ]
    assert run_scenario(fork).summary["blocks_swapped_out"] == 2


def test_another_pool_is_there_from_the_start_and_says_so() -> None:
    """6 blocks hold 12 + 10 positions in 3 + 3 blocks: nobody is preempted, 22 tokens in 6 steps."""
    old = run(STORY)
    fork = Fork(3, "num_blocks", 6)
    assert fork.from_start
    assert str(fork) == "num_blocks 6 from the start"
    new = run_scenario(fork.scenario(scenario_of(old)))
    assert "actions" not in new.scenario.raw
    assert (new.summary["preemptions"], new.summary["tokens_processed"]) == (0, 22)
    assert new.summary["steps"] == 6
    assert departure(old.trace, new.trace, fork) is None
    with pytest.raises(BadInput, match="num_blocks"):
        Fork(3, "num_blocks", 0).scenario(scenario_of(old))


def test_a_run_that_does_not_repeat_the_recorded_one_is_found_out() -> None:
    old = run(STORY)
    other = copy.deepcopy(old.trace.document)
    at = next(i for i, e in enumerate(other["events"]) if e["kind"] == "token_sampled")
    other["events"][at]["token"] += 1  # as other hardware might have chosen
    fork = Fork(3, "method", "swap")
    new = run_scenario(fork.scenario(scenario_of(old)))
    left = departure(Trace(other), new.trace, fork)
    assert left is not None
    assert (left.event, left.step) == (at, 1)
    assert left.was
    assert left.now
    assert left.was["token"] == left.now["token"] + 1
    # Seconds that method auto measured are no difference.
    other = copy.deepcopy(old.trace.document)
    for event in other["events"]:
        if event["kind"] == "preempted":
            event["recompute_s"] = 0.5
    assert departure(Trace(other), new.trace, Fork(4, "method", "swap")) is not None
    same = run_scenario(Fork(4, "method", "swap").scenario(scenario_of(old)))
    assert departure(Trace(other), same.trace, Fork(4, "method", "swap")) is None


def test_choices_are_those_that_can_make_a_difference() -> None:
    """In the story a block is lacking in step 3 alone; after step 6 nothing is released that is
    asked for again but by B, which takes its blocks in step 7."""
    trace = run(STORY).trace
    third = choices(trace, 3)
    assert third["next_victim"] == ["A", "B"]
    assert third["method"] == ["swap", "auto", "pause_only"]
    assert "newest" not in third["victim"]
    assert "lowest_priority" not in third["victim"]  # all have the same
    assert third["free_order"] == ["tail_first"]
    assert set(choices(trace, 4)) == {"free_order"}
    assert set(choices(trace, 7)) == set()
    without_host = run(STORY, host_blocks=0).trace
    assert choices(without_host, 3)["method"] == ["pause_only"]
    changed = run(STORY | {"actions": [{"step": 2, "set": {"method": "swap"}}]}).trace
    assert choices(changed, 3)["method"] == ["recompute", "auto", "pause_only"]
    assert choices(changed, 1)["method"] == ["swap", "auto", "pause_only"]


def test_no_choice_is_left_out_that_would_have_made_a_difference() -> None:
    """Held against runs of all the others: where a setting is not offered, nothing changes by it."""
    from kvlab.engine.config import FREE_ORDERS, METHODS

    old = run(STORY)
    everything = {"method": METHODS, "free_order": FREE_ORDERS, "victim": ("oldest", "random")}
    tried = 0
    for step in range(1, 9):
        for setting, values in everything.items():
            for value in set(values) - set(choices(old.trace, step).get(setting, [])):
                new = run_scenario(Fork(step, setting, value).scenario(scenario_of(old)))
                said = [e for e in new.trace.events if e["kind"] != "setting_changed"]
                assert said == old.trace.events, (step, setting, value)
                tried += 1
    assert tried > 20


def test_the_step_of_a_cursor_is_the_one_that_the_player_shows() -> None:
    trace = run(STORY).trace
    first, second = trace.steps[:2]
    assert step_of(trace, 0) == 1
    assert step_of(trace, first["end"]) == 1
    assert step_of(trace, second["first"] + 1) == 2
    assert step_of(trace, len(trace.events)) == 8


@pytest.mark.parametrize("name", ["figure-2", "cache-shortens", "unsafe-reuse"])
def test_every_recorded_scenario_can_be_written_down_again(name: str) -> None:
    trace = recorded(name)
    again = scenario_of(trace)
    assert again.document == trace.document["scenario"] | {"lesson": {}}


def test_a_preset_stays_a_preset() -> None:
    old = run(STORY, preset="vllm_v1")
    written = scenario_of(old)
    assert written.raw["engine"] == {"num_blocks": 4, "block_size": 4, "preset": "vllm_v1"}
    assert written.document == old.scenario.document | {"lesson": {}}


@pytest.mark.parametrize("broken", [{"requests": [1]}, {"engine": {"num_blocks": 4}}, {"name": 3}])
def test_a_trace_whose_scenario_is_none_is_refused(broken: dict[str, Any]) -> None:
    document = copy.deepcopy(run(STORY).trace.document)
    document["scenario"] |= broken
    with pytest.raises(BadInput):
        scenario_of(Trace(document))


def test_a_setting_that_is_none_is_refused() -> None:
    with pytest.raises(BadInput, match="'block_size' is none of"):
        Fork(3, "block_size", 8).scenario(scenario_of(run(STORY)))
