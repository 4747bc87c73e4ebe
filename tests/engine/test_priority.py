"""preempt_for_priority: a waiting request of better priority takes the place of a running one."""

from __future__ import annotations

from typing import Any

import pytest

from kvlab.engine.config import METHODS, VICTIMS, EngineConfig
from kvlab.errors import BadInput
from tests.engine.harness import Record, act, ask, pool, run


def by_priority(num_blocks: int = 4, **settings: Any) -> EngineConfig:
    return pool(num_blocks, preempt_for_priority=True, **settings)


def why(record: Record) -> list[tuple[int, str, str | None, str]]:
    return [(step, victim.id, victim.need_of, victim.why) for step, victim in record.victims]


def test_without_the_setting_it_waits() -> None:
    requests = [ask("L", 7, 5, priority=1), ask("H", 12, 2, arrival_step=1)]
    assert why(run(pool(), requests)) == []


@pytest.mark.parametrize("method", ["recompute", "swap"])
def test_a_better_priority_finds_room(method: str) -> None:
    """H needs 3 blocks and 2 are free. L is preempted in step 2, H comes in in step 3: the step that
    preempts admits nobody."""
    requests = [ask("L", 7, 5, priority=1), ask("H", 12, 2, arrival_step=1)]
    record = run(by_priority(method=method), requests)
    assert why(record) == [(2, "L", "H", "priority")]
    assert record.report(2).scheduled == {}
    assert [e.why for e in record.events("kept_waiting", step=2)] == ["no_room"]
    assert record.report(3).admitted == ("H",)
    assert all(record.finish(id) == "length" for id in "LH")


def test_a_better_priority_finds_a_place() -> None:
    requests = [ask("L", 3, 5, priority=1), ask("M", 3, 5), ask("H", 3, 2, arrival_step=1)]
    record = run(by_priority(8, max_running=2), requests)
    assert why(record) == [(2, "L", "H", "priority")]
    assert [e.why for e in record.events("kept_waiting", step=2)] == ["batch_full"]
    assert record.report(3).admitted == ("H",)


def test_the_steps_budget_is_a_place_too() -> None:
    """Two running requests take both tokens of every step."""
    requests = [ask("L", 1, 9, priority=1), ask("M", 1, 9), ask("H", 1, 2, arrival_step=2)]
    record = run(by_priority(8, step_tokens=2), requests)
    assert why(record) == [(3, "L", "H", "priority")]


def test_worst_first_and_newest_among_equals_and_no_more_than_needed() -> None:
    requests = [
        ask("A", 4, 5, priority=2),
        ask("B", 4, 5, priority=1),
        ask("C", 4, 5, priority=2),
        ask("D", 4, 5, priority=2),
        ask("H", 8, 2, arrival_step=1),
    ]
    record = run(by_priority(8), requests)  # after step 2 of their own they hold 8 of 8
    assert [id for _, id, _, _ in why(record)][:1] == ["D"]
    assert {id for step, id, _, _ in why(record) if step == 2} == {"D"}


def test_equals_and_better_ones_are_left_alone() -> None:
    requests = [ask("A", 7, 5), ask("B", 3, 5, priority=-1), ask("H", 12, 2, arrival_step=1)]
    assert why(run(by_priority(5), requests)) == []


def test_nobody_makes_way_where_it_would_not_be_enough() -> None:
    """H needs 4 blocks; L holds 1 of 5, and M, of H's own priority, the others."""
    requests = [ask("M", 12, 4), ask("L", 3, 4, priority=1), ask("H", 13, 2, arrival_step=1)]
    record = run(by_priority(5), requests)
    assert [entry for entry in why(record) if entry[0] == 2] == []


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("method", ["recompute", "swap", "auto"])
def test_nobody_takes_turns(victim: str, method: str) -> None:
    """Whatever the policy: who runs with a better priority is never preempted for a worse one's need,
    so that each pair changes places once at most for each time that the worse one comes in."""
    requests = [
        ask("L", 7, 9, priority=2),
        ask("M", 5, 9, priority=1),
        ask("H", 7, 9, arrival_step=2),
        ask("I", 3, 9, arrival_step=3),
    ]
    record = run(by_priority(5, victim=victim, method=method, chunk_tokens=3), requests, most=200)
    priorities = {"L": 2, "M": 1, "H": 0, "I": 0}
    for _, id, need_of, _ in why(record):
        assert need_of is not None
        assert priorities[id] >= priorities[need_of]
    assert all(record.finish(id) == "length" for id in "LMHI")


def test_a_paused_one_gives_back_no_place_but_blocks() -> None:
    requests = [ask("L", 7, 5, priority=1), ask("H", 12, 2, arrival_step=2)]
    record = run(by_priority(), requests, [act(2, "pause", "L"), act(9, "resume", "L")])
    assert why(record) == [(3, "L", "H", "priority")]
    requests = [
        ask("L", 3, 5, priority=2),
        ask("M", 3, 5, priority=1),
        ask("H", 3, 2, arrival_step=2),
    ]
    record = run(
        by_priority(8, max_running=1), requests, [act(2, "pause", "L"), act(9, "resume", "L")]
    )
    assert "L" not in [id for step, id, _, _ in why(record) if step < 9]


def test_what_it_cannot_go_with_is_refused_in_one_sentence() -> None:
    with pytest.raises(BadInput, match=r"preempt_for_priority = true cannot go with .*pause_only"):
        by_priority(method="pause_only")
    with pytest.raises(BadInput, match="must be true or false"):
        pool(preempt_for_priority="yes")
    assert {"recompute", "swap", "auto"} == {m for m in METHODS if m != "pause_only"}
