"""Swap: when copies run, when blocks come back, what happens when a copy breaks off."""

from __future__ import annotations

import pytest

from kvlab.trace.summary import what_happened
from tests.engine.harness import STORY, CellRunner, Record, act, ask, pool, run


def copies(record: Record) -> list[tuple[int, str, str, int, bool]]:
    """(step, id, direction, blocks, done) of every move."""
    return [
        (report.step, copy.id, copy.direction, copy.blocks, copy.done)
        for report in record.reports
        for copy in report.copies
    ]


# When.


def test_without_a_rate_a_copy_ends_within_its_step() -> None:
    record = run(pool(method="swap"), STORY)
    assert copies(record) == [(3, "B", "out", 2, True), (7, "B", "in", 2, True)]
    assert record.report(7).scheduled == {"B": 1}  # it runs in the very step
    assert {state.in_flight for state in record.states} == {0}


def test_blocks_of_a_copy_out_come_back_together_a_step_later() -> None:
    """Rate 1, two blocks: moved in steps 3 and 4, both free at the start of step 5."""
    record = run(pool(method="swap", copy_blocks_per_step=1), STORY)
    assert [state.in_flight for state in record.states[2:5]] == [2, 2, 0]
    assert [state.free for state in record.states[2:5]] == [0, 0, 1]
    started = record.events("step_started", step=5)
    assert started[0].free == 2


def test_a_request_runs_in_the_step_after_its_copy_in_ended() -> None:
    record = run(pool(method="swap", copy_blocks_per_step=1), STORY)
    assert copies(record)[2:] == [(9, "B", "in", 1, False), (10, "B", "in", 1, True)]
    assert record.report(9).resumed == ("B",)
    assert record.report(10).scheduled == {}
    assert record.report(11).scheduled == {"B": 1}


def test_a_rate_of_all_blocks_still_takes_a_step() -> None:
    record = run(pool(method="swap", copy_blocks_per_step=2), STORY)
    assert record.emitted("A") == [1, 2, 4, 5, 6, 7]  # A stalls for one step
    assert copies(record) == [(3, "B", "out", 2, True), (8, "B", "in", 2, True)]
    assert record.emitted("B") == [1, 2, 9, 10]


def test_copies_run_oldest_first() -> None:
    """Both preempted in step 3, C then B by the order of the actions; one block a step in all."""
    requests = [ask("A", 3, 9), ask("B", 7, 4), ask("C", 7, 4)]
    actions = [act(3, "preempt", "C"), act(3, "preempt", "B")]
    record = run(pool(8, method="swap", copy_blocks_per_step=1), requests, actions)
    assert [(step, id) for step, id, way, *_ in copies(record) if way == "out"] == [
        (3, "C"), (4, "C"), (5, "B"), (6, "B"),
    ]  # fmt: skip


def test_copies_run_out_before_in() -> None:
    """C is on its way back when B is sent out: B's three blocks (10 positions) go first."""
    requests = [ask("A", 3, 12), ask("B", 7, 9), ask("C", 7, 9)]
    actions = [act(2, "preempt", "C"), act(5, "preempt", "B")]
    config = pool(12, method="swap", host_blocks=8, copy_blocks_per_step=1)
    record = run(config, requests, actions)
    first_in = [step for step, id, way, *_ in copies(record) if (id, way) == ("C", "in")]
    out = [step for step, id, way, *_ in copies(record) if (id, way) == ("B", "out")]
    assert out == [5, 6, 7]
    assert first_in == [4, 8]
    assert record.events("swap_in_started", "C")[0].step == 4


def test_a_rate_is_shared_by_both_directions() -> None:
    requests = [ask("A", 3, 12), ask("B", 7, 9), ask("C", 7, 9)]
    actions = [act(2, "preempt", "C"), act(5, "preempt", "B")]
    config = pool(12, method="swap", host_blocks=8, copy_blocks_per_step=3)
    record = run(config, requests, actions)
    for report in record.reports:
        assert sum(copy.blocks for copy in report.copies) <= 3


def test_a_run_lasts_until_no_copy_is_in_flight() -> None:
    requests = [ask("A", 3, 2), ask("B", 7, 3)]
    record = run(pool(8, method="swap", copy_blocks_per_step=1), requests, [act(2, "preempt", "B")])
    assert record.states[-1].in_flight == 0
    assert record.finish("B") == "length"


# Admission.


def test_swap_in_needs_room_for_all_of_the_history() -> None:
    """B has 8 positions stored, 2 blocks, and its history of 9 needs 3: while 2 are free it waits."""
    requests = [ask("A", 6, 5), ask("B", 7, 4)]
    record = run(pool(method="swap"), requests, [act(3, "preempt", "B")])
    assert record.state(3).free == 2
    assert record.report(4).resumed == ()
    assert [(e.why, e.needs) for e in record.events("kept_waiting", "B", 4)] == [("no_room", 3)]
    assert record.report(5).finished == ("A",)
    assert record.report(6).resumed == ("B",)


def test_the_head_waits_for_its_copy_out() -> None:
    requests = [ask("A", 3, 9), ask("B", 7, 4), ask("C", 2, 2, arrival_step=3)]
    record = run(
        pool(12, method="swap", copy_blocks_per_step=1), requests, [act(3, "preempt", "B")]
    )
    assert [(e.id, e.why) for e in record.events("kept_waiting", step=4)] == [
        ("B", "copy_in_flight")
    ]
    assert record.report(4).admitted == ()  # head of line
    assert record.report(5).resumed == ("B",)
    assert record.report(5).admitted == ("C",)


def test_only_blocks_with_kv_are_stored() -> None:
    """Preempted by need of its own: the history of 9 has KV for 8, two blocks go out."""
    record = run(pool(method="swap", victim="oldest"), STORY)
    assert record.preempted[0] == (3, "A", "swap")
    assert record.swapped[0] == 2


def test_a_reservation_is_not_stored() -> None:
    requests = [ask("A", 3, 9)]
    record = run(pool(method="swap", allocation="reserve_max"), requests, [act(2, "preempt", "A")])
    assert record.swapped == (1, 1)
    assert record.positions("A") == 0


def test_a_swap_twice_recomputes_nothing() -> None:
    requests = [ask("A", 3, 8), ask("B", 3, 4)]
    actions = [act(2, "preempt", "B"), act(4, "preempt", "B")]
    record = run(pool(8, method="swap"), requests, actions)
    assert [method for _, _, method in record.preempted] == ["swap", "swap"]
    assert record.recomputed == 0


def test_an_actions_method_goes_before_the_engines() -> None:
    requests = [ask("A", 3, 8), ask("B", 3, 8)]
    actions = [act(2, "preempt", "B", "swap"), act(5, "preempt", "B", "recompute")]
    record = run(pool(8, method="recompute"), requests, actions)
    assert [method for _, _, method in record.preempted] == ["swap", "recompute"]


def test_the_host_pool_serves_who_fits() -> None:
    """3 host blocks: B(7) stores 2, C(7) finds 1 and is recomputed."""
    requests = [ask("A", 3, 9), ask("B", 7, 4), ask("C", 7, 4)]
    actions = [act(3, "preempt", "B"), act(3, "preempt", "C")]
    record = run(pool(8, method="swap", host_blocks=3), requests, actions)
    assert [(v.id, v.method, v.fallback) for _, v in record.victims] == [
        ("B", "swap", None), ("C", "recompute", "host_full"),
    ]  # fmt: skip


def test_no_host_pool_at_all() -> None:
    record = run(pool(method="swap", host_blocks=0), STORY)
    assert [(v.method, v.fallback) for _, v in record.victims] == [("recompute", "host_full")]


# Copies that break off: what they should have kept is given up, the tokens stay the oracle's.


@pytest.mark.parametrize("rate", [None, 1, 2])
@pytest.mark.parametrize("call", [0, 1])
def test_a_failed_copy_out_falls_back_to_recompute(rate: int | None, call: int) -> None:
    runner = CellRunner(4, fail_out=[call])
    record = run(pool(method="swap", copy_blocks_per_step=rate), STORY, runner=runner)
    failed = record.events("copy_failed")
    assert [event.why for event in failed] == ["out"] * (runner.calls["out"] > call)
    assert record.recomputed == 8 * len(failed)
    assert record.finish("A") == record.finish("B") == "length"
    assert (record.free[-1], record.states[-1].host_free) == (4, 4)
    if rate is None and failed:
        # The event says what was tried, the summary what became of it.
        ((step, victim),) = record.victims
        assert (victim.method, victim.fallback) == ("swap", None)
        events = [event.as_json() for event in record.report(step).events]
        (entry,) = what_happened(events)["preempted"]
        assert (entry["method"], entry["why"]) == ("recompute", "copy_failed")
        assert record.emitted("A") == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("rate", [None, 1, 2])
@pytest.mark.parametrize("call", [0, 1])
def test_a_failed_copy_in_falls_back_to_recompute(rate: int | None, call: int) -> None:
    runner = CellRunner(4, fail_in=[call])
    record = run(pool(method="swap", copy_blocks_per_step=rate), STORY, runner=runner)
    failed = record.events("copy_failed")
    assert [event.why for event in failed] == ["in"] * (runner.calls["in"] > call)
    assert record.recomputed == 8 * len(failed)
    assert record.finish("A") == record.finish("B") == "length"
    assert (record.free[-1], record.states[-1].host_free) == (4, 4)


def test_a_copy_in_that_fails_at_once_is_recomputed_in_the_same_step() -> None:
    record = run(pool(method="swap"), STORY, runner=CellRunner(4, fail_in=[0]))
    assert record.report(7).scheduled == {"B": 9}
    assert record.report(7).resumed == ("B",)
    assert record.emitted("B") == [1, 2, 7, 8]


def test_a_failure_in_an_otherwise_idle_step_does_not_end_the_run() -> None:
    """A stalls while B's blocks are copied out; the copy breaks off, which frees them at once."""
    runner = CellRunner(4, fail_out=[1])
    record = run(pool(method="swap", copy_blocks_per_step=1), STORY, runner=runner)
    assert record.report(4).scheduled == {}
    assert record.state(4).free == 2
    assert record.report(5).scheduled == {"A": 1}
    assert record.finish("A") == record.finish("B") == "length"


def test_every_copy_fails() -> None:
    """A link that never works: all is recomputed, as if there were no host pool."""
    runner = CellRunner(4, fail_out=range(99), fail_in=range(99))
    requests = [ask(id, 5, 8) for id in "ABCD"]
    record = run(pool(6, method="swap", copy_blocks_per_step=1), requests, runner=runner)
    assert record.swapped == (0, 0)
    assert all(record.finish(id) == "length" for id in "ABCD")
