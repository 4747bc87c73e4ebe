"""Swap: when copies run, when blocks come back, what happens when a copy breaks off."""

from __future__ import annotations

from typing import Any

import pytest

from kvlab.trace.summary import what_happened
from tests.engine.harness import STORY, CellRunner, Record, act, ask, own_tokens, pool, run


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


# Swap leaves on the GPU what others hold; a waiting request gives up what only it holds any more.

SAME = own_tokens("same", 12)


@pytest.mark.parametrize("rate", [None, 1])
def test_only_what_the_victim_alone_holds_is_copied(rate: int | None) -> None:
    """A and B share 3 blocks of 4 each. The host pool has a single block: it is enough for B, which
    is back as soon as one block is free."""
    config = pool(5, method="swap", prefix_cache=True, host_blocks=1, copy_blocks_per_step=rate)
    requests = [ask("A", (*SAME, 1), 4), ask("B", (*SAME, 2, 3), 3)]
    record = run(config, requests, [act(2, "preempt", "B")])
    ((_, victim),) = record.victims
    assert (victim.method, victim.reclaimable, victim.blocks) == ("swap", 1, 4)
    assert record.swapped == (1, 1)
    assert (record.recomputed, record.from_cache("B")) == (0, 12)
    waits = record.state(2)
    assert waits.blocks == {"A": (0, 1, 2, 3), "B": (0, 1, 2)}  # its references, kept
    assert waits.kv["B"] == 12
    assert record.emitted("B") == ([1, 3, 4] if rate is None else [1, 4, 5])
    assert [e.blocks for e in record.events("swap_in_finished", "B")] == [(4,)]


def chunked_newcomer(host_blocks: int, **settings: Any) -> Record:
    """B, preempted in step 2, keeps the two blocks that it shares with A. A ends in that step; E, a
    long prompt in chunks of 3 blocks, needs 3 in step 3 and finds 1 free."""
    config = pool(
        9,
        method="swap",
        prefix_cache=True,
        chunk_tokens=12,
        admission="first_chunk",
        host_blocks=host_blocks,
        **settings,
    )
    requests = [ask("A", (*SAME[:8], 1), 2), ask("B", (*SAME[:8], *range(9)), 4), ask("E", 36, 1)]
    record = run(config, requests, [act(2, "preempt", "B")])
    assert record.state(2).blocks["B"] == (0, 1)
    assert all(record.finish(id) == "length" for id in "ABE")
    assert [id for _, id, _ in record.preempted] == ["B"]  # nobody who runs made room
    return record


def test_a_waiting_request_copies_out_what_only_it_holds_any_more() -> None:
    record = chunked_newcomer(host_blocks=5)
    assert [(e.step, e.id, e.why, e.need_of, e.blocks) for e in record.events("reclaimed")] == [
        (3, "B", "swap", "E", (0, 1))
    ]
    assert "B" not in record.state(3).blocks
    assert record.state(3).host_kv["B"] == 17
    assert record.swapped == (5, 5)
    assert record.recomputed == 0


def test_a_waiting_request_gives_up_its_kv_where_the_host_pool_is_full() -> None:
    record = chunked_newcomer(host_blocks=3)
    assert [(e.step, e.id, e.why) for e in record.events("reclaimed")] == [(3, "B", "recompute")]
    assert (record.state(3).host_kv, record.state(3).host_free) == ({}, 3)
    assert record.swapped == (3, 0)
    assert record.positions("B") > 0


def test_a_slow_copy_of_it_is_waited_for() -> None:
    """Two blocks a step: those of B are there in step 5, not before, and nobody is paused for them."""
    record = chunked_newcomer(host_blocks=5, copy_blocks_per_step=2)
    assert {e.why for e in record.events("stalled", "E")} == {"copy_in_flight"}


def test_the_head_of_the_queue_finds_what_others_in_it_hold_alone() -> None:
    """Nobody runs, and of 9 blocks B, which waits behind E, holds 2: E needs 8."""
    config = pool(9, method="swap", prefix_cache=True, host_blocks=8)
    requests = [
        ask("A", (*SAME[:8], 1), 3, priority=1),
        ask("B", (*SAME[:8], *range(9)), 4, priority=1),
        ask("E", 32, 2, arrival_step=3),
    ]
    record = run(config, requests, [act(3, "preempt", "B")])
    assert [(e.step, e.id, e.need_of) for e in record.events("reclaimed")] == [(4, "B", "E")]
    assert record.report(4).admitted == ("E",)
    assert all(record.finish(id) == "length" for id in "ABE")


def test_blocks_that_two_waiting_requests_share_are_not_lost() -> None:
    """B and C keep the same two blocks, and nobody else: both give them up for E."""
    config = pool(9, method="swap", prefix_cache=True, host_blocks=12)
    requests = [
        ask("A", (*SAME[:8], 1), 3, priority=1),
        ask("B", (*SAME[:8], 2, 3), 4, priority=1),
        ask("C", (*SAME[:8], 4, 5), 4, priority=1),
        ask("E", 32, 2, arrival_step=3),
    ]
    record = run(config, requests, [act(3, "preempt", "B"), act(3, "preempt", "C")])
    assert {e.id for e in record.events("reclaimed")} == {"B", "C"}
    assert record.report(4).admitted == ("E",)
    assert record.recomputed == 0


@pytest.mark.parametrize("call", [0, 1])
def test_a_failed_copy_gives_up_what_was_kept_too(call: int) -> None:
    """The first copy of B fails, or the one by which it gives up what it had kept."""
    config = pool(
        9, method="swap", prefix_cache=True, chunk_tokens=12, admission="first_chunk", host_blocks=5
    )
    requests = [ask("A", (*SAME[:8], 1), 2), ask("B", (*SAME[:8], *range(9)), 4), ask("E", 36, 1)]
    runner = CellRunner(4, fail_out=[call])
    record = run(config, requests, [act(2, "preempt", "B")], runner)
    assert len(record.events("copy_failed")) == 1
    assert "B" not in record.state(3).blocks
    assert (record.free[-1], record.states[-1].host_free) == (9, 5)
    assert all(record.finish(id) == "length" for id in "ABE")
