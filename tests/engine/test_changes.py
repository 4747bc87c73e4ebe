"""Settings that change and victims that are named while the engine runs, worked out on paper.

The story: pool of 4 blocks of 4, A(7,6) and B(7,4). After step 2 both hold two full blocks (A P0 P1,
B P2 P3) and none is free; in step 3 A needs a third. Without a change B is paused, A takes P2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvlab.engine.actions import SettingChange
from kvlab.engine.config import EngineConfig
from kvlab.engine.engine import Engine
from kvlab.engine.stand_in import StandInRunner
from kvlab.errors import BadInput
from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import scenario_from
from kvlab.trace.document import Trace

STORY = [
    {"id": "A", "prompt": [1, 2, 3, 4, 5, 6, 7], "max_tokens": 6},
    {"id": "B", "prompt": [2, 3, 4, 5, 6, 7, 8], "max_tokens": 4},
]


def run(*actions: dict[str, Any], requests: Any = STORY, **engine: Any) -> Trace:
    """The story with these actions, without a model; the trace is checked by folding it."""
    settings = {"num_blocks": 4, "block_size": 4} | engine
    document: dict[str, Any] = {"name": "changed", "model": None, "engine": settings}
    document |= {"requests": requests, "actions": list(actions)}
    trace = run_scenario(scenario_from(document, Path(), "test")).trace
    return Trace.from_json(trace.document)


def events(trace: Trace, kind: str) -> list[dict[str, Any]]:
    return [event for event in trace.events if event["kind"] == kind]


def tables(trace: Trace, id: str) -> dict[int, list[int]]:
    """A request's block table after each step in which it holds blocks."""
    entries = trace.summary["per_step"]
    return {e["step"]: e["blocks"][id] for e in entries if id in e["blocks"]}


def test_another_method_from_the_step_of_the_preemption_on() -> None:
    summary = run({"step": 3, "set": {"method": "swap"}}).summary
    # figures.md: with swap 22 tokens are processed, none again, 2 blocks go out and 2 come back.
    assert summary["tokens_processed"] == 22
    assert summary["tokens_recomputed"] == 0
    assert (summary["blocks_swapped_out"], summary["blocks_swapped_in"]) == (2, 2)
    assert summary["requests"]["B"]["gaps_steps"] == [1, 5, 1]


def test_a_change_holds_for_what_is_decided_after_it_alone() -> None:
    """One step later B is already paused by recompute; nothing else is preempted."""
    changed, plain = run({"step": 4, "set": {"method": "swap"}}), run()
    (said,) = events(changed, "setting_changed")
    assert (said["step"], said["setting"], said["before"], said["value"], said["why"]) == (
        4,
        "method",
        "recompute",
        "swap",
        "taken",
    )
    assert said["say"] == "setting_changed.method"
    assert [e for e in changed.events if e is not said] == plain.events
    assert plain.summary["tokens_processed"] == 30


def test_pause_only_releases_nothing_so_that_both_end() -> None:
    trace = run({"step": 3, "set": {"method": "pause_only"}})
    assert [e["id"] for e in events(trace, "paused")] == ["B"]
    assert not events(trace, "preempted")
    assert [e["id"] for e in events(trace, "stalled")] == ["A"]
    ends = {id: (r["finish_reason"], len(r["output"])) for id, r in requests_of(trace)}
    assert ends == {"A": ("kv_capacity", 2), "B": ("kv_capacity", 2)}
    assert trace.summary["steps"] == 3


def requests_of(trace: Trace) -> Any:
    return trace.summary["requests"].items()


@pytest.mark.parametrize("action", [{"set": {"victim": "oldest"}}, {"next_victim": "A"}])
def test_another_victim_the_oldest_or_a_named_one(action: dict[str, Any]) -> None:
    """A gives up its own P0 and P1 in step 3, so that B takes P0 and ends in step 4 with P2 P3 P0.

    The free list is then P1 P2 P3 P0: A comes back in P1 P2 P3 in step 5, processes 9 tokens, 8 of
    them again, and delivers x2 three steps after x1; it ends in step 8.
    """
    trace = run({"step": 3, **action})
    (gone,) = events(trace, "preempted")
    named = "next_victim" in action
    assert (gone["id"], gone["need_of"], gone["step"]) == ("A", "A", 3)
    assert gone["why"] == gone["victim"] == ("action" if named else "oldest")
    assert tables(trace, "B") == {1: [2, 3], 2: [2, 3], 3: [2, 3, 0]}
    assert tables(trace, "A") == {1: [0, 1], 2: [0, 1], **{step: [1, 2, 3] for step in (5, 6, 7)}}
    summary = trace.summary
    assert (summary["tokens_processed"], summary["tokens_recomputed"]) == (30, 8)
    assert summary["requests"]["A"]["gaps_steps"] == [1, 3, 1, 1, 1]
    assert summary["requests"]["B"]["gaps_steps"] == [1, 1, 1]
    finished = {e["id"]: e["step"] for e in events(trace, "finished")}
    assert finished == {"B": 4, "A": 8}


def test_another_free_order() -> None:
    """B's P2 P3 are released backwards, so A takes P3; A's own P0 P1 P3 go back backwards, too."""
    trace = run({"step": 3, "set": {"free_order": "tail_first"}})
    assert tables(trace, "A")[3] == [0, 1, 3]
    assert tables(trace, "B")[7] == [2, 3, 1]
    later = run({"step": 4, "set": {"free_order": "tail_first"}})
    assert tables(later, "A")[4] == [0, 1, 2]
    assert tables(later, "B")[7] == [3, 2, 1]


def test_a_named_victim_is_named_once_and_waits_until_it_can_be_chosen() -> None:
    """Three requests of 3 + 9 tokens in 4 blocks. In step 3 A takes the free P3, then B needs one:
    newest would be C, B is named and gives up its own. Whoever is short later falls to the policy."""
    requests = [{"id": id, "prompt": [n, n, n], "max_tokens": 9} for n, id in enumerate("ABC", 1)]
    trace = run({"step": 1, "next_victim": "B"}, requests=requests)
    whom = [(e["step"], e["id"], e["why"]) for e in events(trace, "preempted")]
    assert whom[0] == (3, "B", "action")
    assert len(whom) > 1
    assert {why for _, _, why in whom[1:]} == {"newest"}
    ended = run({"step": 8, "next_victim": "A"})
    assert [(e["id"], e["why"]) for e in events(ended, "action_taken")] == [("A", "ended")]


def test_a_value_that_holds_already_changes_nothing_and_is_told() -> None:
    changed, plain = run({"step": 2, "set": {"victim": "newest"}}), run()
    (said,) = events(changed, "setting_changed")
    assert (said["why"], said["say"]) == ("same", "setting_changed.same")
    assert [e for e in changed.events if e is not said] == plain.events


def test_several_settings_of_one_action_change_in_the_order_in_which_they_are_written() -> None:
    settings = {"victim": "oldest", "method": "swap"}
    trace = run({"step": 3, "set": settings})
    assert [e["setting"] for e in events(trace, "setting_changed")] == ["victim", "method"]
    (gone,) = events(trace, "preempted")
    assert (gone["id"], gone["method"]) == ("A", "swap")


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ({"step": 3, "set": {"num_blocks": 5}}, "actions.0.set.num_blocks is not a known key"),
        ({"step": 3, "set": {"method": "magic"}}, 'actions.0.set.method = "magic" must be one of'),
        ({"step": 3, "set": {}}, "actions.0.set"),
        ({"step": 3, "next_victim": "Z"}, "no request has the id 'Z'"),
        ({"step": 3, "next_victim": "A", "set": {"method": "swap"}}, "name exactly one of"),
        ({"step": 3, "set": {"method": "swap"}, "method": "swap"}, "method goes with preempt"),
    ],
)
def test_what_does_not_fit_is_refused_by_place(action: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match="actions") as refused:
        run(action)
    assert words in str(refused.value)


def test_the_pool_of_a_running_engine_keeps_its_size() -> None:
    engine = Engine(EngineConfig(num_blocks=4, block_size=4), StandInRunner())
    with pytest.raises(BadInput, match="num_blocks cannot change while the engine runs"):
        engine.add_action(SettingChange(step=2, setting="num_blocks", value="5"))
    with pytest.raises(BadInput, match=r"engine\.method"):
        engine.add_action(SettingChange(step=2, setting="method", value="magic"))
