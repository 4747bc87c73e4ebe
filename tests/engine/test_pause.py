"""Skipping is not releasing: pause_only, pauses by action, and runs in which nothing can happen."""

from __future__ import annotations

import pytest

from tests.engine.harness import STORY, Lab, act, ask, pool, run, snapshot


def test_figure_2_pause_then_preempt_by_action() -> None:
    """Free after the steps: 0 0 0 1 1 1 4 1 4; step 3 pauses B and A stalls, step 4 releases B."""
    record = run(pool(method="pause_only"), STORY, [act(4, "preempt", "B", "recompute")])
    assert record.free == [0, 0, 0, 1, 1, 1, 4, 1, 4]
    assert record.state(3).paused == ("B",)
    assert record.state(3).blocks == {"A": (0, 1), "B": (2, 3)}
    assert [(s.id, s.needs, s.why) for s in record.report(3).stalled] == [
        ("A", 1, "nothing_released")
    ]
    assert record.report(3).victims == ()  # a pause is no preemption
    assert record.state(4).blocks == {"A": (0, 1, 2)}
    assert record.preempted == [(4, "B", "recompute")]


def test_pause_only_ends_when_nothing_can_happen() -> None:
    """Step 3: A stalls, B is paused, nothing was scheduled and nothing is to come."""
    record = run(pool(method="pause_only"), STORY)
    assert record.steps == 3
    assert record.finish("A") == record.finish("B") == "kv_capacity"
    assert record.free[-1] == 4
    for id in "AB":
        message = record.request(id).message
        assert message is not None
        assert "A holds 2" in message
        assert "B holds 2" in message
        assert len(record.outputs(id)) == 2


def test_an_action_to_come_keeps_the_run_alive() -> None:
    record = run(pool(method="pause_only"), STORY, [act(7, "abort", "B")])
    assert record.steps > 7
    assert record.finish("A") == "length"
    assert record.emitted("A") == [1, 2, 7, 8, 9, 10]


def test_an_arrival_to_come_keeps_the_run_alive() -> None:
    record = run(pool(method="pause_only"), [*STORY, ask("C", 3, 2, arrival_step=6)])
    assert record.steps == 7  # C arrives in step 7 and finds nothing free
    assert record.finish("C") == "kv_capacity"


def test_a_pause_for_need_ends_when_the_need_does() -> None:
    """A ends in step 3 and frees a block: H has in step 4 what it asked for in step 3. P, which needs
    one too by now, goes on when H has ended in step 5."""
    requests = [ask("H", 7, 4), ask("A", 2, 3), ask("P", 3, 6)]
    record = run(pool(method="pause_only"), requests)
    assert [state.paused for state in record.states[1:6]] == [(), ("P",), ("P",), ("P",), ()]
    assert record.emitted("H") == [1, 2, 4, 5]
    assert record.report(6).resumed == ("P",)
    assert record.finish("H") == record.finish("A") == record.finish("P") == "length"
    assert record.victims == []
    assert record.recomputed == 0


def test_the_paused_stay_paused_while_the_needy_is_short() -> None:
    """With the oldest as the victim the paused one comes before the needy in running order; it is
    not resumed in one step and paused again in the same."""
    requests = [ask("P", 5, 9), ask("H", 8, 5)]
    record = run(pool(method="pause_only", victim="oldest"), requests, [act(6, "abort", "P")])
    assert [(event.id, event.step) for event in record.events("paused")] == [("P", 2)]
    assert [state.paused for state in record.states[1:5]] == [("P",)] * 4
    assert record.events("resumed") == []
    assert record.finish("H") == "length"


def test_a_pause_by_action_skips_and_releases_nothing() -> None:
    requests = [ask("A", 3, 6), ask("B", 5, 4)]
    record = run(pool(8), requests, [act(2, "pause", "B"), act(5, "resume", "B")])
    for step in (2, 3, 4):
        assert record.state(step).paused == ("B",)
        assert record.state(step).kv["B"] == 5
        assert "B" not in record.report(step).scheduled
    assert record.emitted("B") == [1, 5, 6, 7]
    assert record.report(5).resumed == ("B",)
    assert record.recomputed == 0


def test_a_paused_request_may_be_preempted_for_need() -> None:
    """By action B is paused before the story's step 3; its blocks are still to be had."""
    record = run(pool(), STORY, [act(2, "pause", "B")])
    assert record.preempted == [(3, "B", "recompute")]
    assert record.finish("B") == "length"


def test_paused_for_ever_ends_the_run_with_a_message() -> None:
    record = run(pool(8), STORY, [act(2, "pause", "B")])
    assert record.finish("A") == "length"
    assert record.finish("B") == "kv_capacity"
    assert "B holds 2" in (record.request("B").message or "")
    assert record.free[-1] == 8


def test_a_step_alone_does_not_end_the_stuck() -> None:
    """A visitor who steps by hand may still act: only a run ends them."""
    lab = Lab(pool(method="pause_only"), [ask("A", 7, 6), ask("B", 7, 4)])
    for _ in range(6):
        lab.step(end_if_stuck=False)
    assert snapshot(lab.engine).paused == ("B",)
    lab.engine.abort("B")
    record = lab.run()
    assert record.finish("A") == "length"


def test_block_needed_precedes_every_preemption_pause_and_stall() -> None:
    for config in (pool(), pool(method="pause_only"), pool(method="swap", copy_blocks_per_step=1)):
        record = run(config, [ask(id, 7, 6) for id in "ABC"])
        asked: set[tuple[int, str]] = set()
        for report in record.reports:
            for event in report.events:
                if event.kind == "block_needed":
                    asked.add((event.step, event.id))  # type: ignore[attr-defined]
                elif event.kind in ("preempted", "paused"):
                    assert (event.step, event.need_of) in asked  # type: ignore[attr-defined]
                elif event.kind == "stalled":
                    assert (event.step, event.id) in asked  # type: ignore[attr-defined]
        assert asked


@pytest.mark.parametrize("admission", ["first_chunk", "whole_sequence"])
@pytest.mark.parametrize("blocks", [2, 3])
def test_a_request_beside_a_paused_one_does_not_pause_itself_for_ever(
    admission: str, blocks: int
) -> None:
    """A is paused by an action and keeps a block. B is short, and would be its own victim: what it
    gives up it would need again, so the paused one is preempted, and both end."""
    record = run(
        pool(num_blocks=blocks, block_size=1, chunk_tokens=1, admission=admission),
        [ask("A", 1, 2), ask("B", 1, blocks)],
        [act(2, "pause", "A")],
    )
    assert {record.request(id).finish_reason for id in "AB"} == {"length"}


# A paused request holds its blocks and takes no part: pairs with what bounds the batch.


def test_the_watermark_is_for_those_that_take_part() -> None:
    """A is paused at 2 with one block; B needs 3 of the 3 that are free, and nobody else runs."""
    requests = [ask("A", 3, 20), ask("B", 10, 2, arrival_step=2)]
    record = run(pool(watermark_blocks=1), requests, [act(2, "pause", "A")])
    assert record.finish("B") == "length"
    assert record.emitted("B") == [3, 4]
    assert record.finish("A") == "kv_capacity"
    assert record.request("A").message == "is paused, and nothing to come resumes it: A holds 1"


def test_a_paused_request_leaves_its_place_and_takes_one_again() -> None:
    """max_running 1: B runs in A's place from step 2 on, so A's resume at 3 waits for B's end in 5."""
    requests = [ask("A", 3, 4), ask("B", 3, 4, arrival_step=1)]
    record = run(pool(max_running=1), requests, [act(2, "pause", "A"), act(3, "resume", "A")])
    assert record.emitted("A") == [1, 6, 7, 8]
    assert record.emitted("B") == [2, 3, 4, 5]
    assert all(len(state.running) <= 1 for state in record.states)


def test_a_resume_that_waits_for_a_place_is_forgotten_at_a_preemption() -> None:
    requests = [ask("A", 3, 4), ask("B", 3, 6, arrival_step=1)]
    actions = [act(2, "pause", "A"), act(3, "resume", "A"), act(4, "preempt", "A")]
    record = run(pool(max_running=1), requests, actions)
    assert record.preempted == [(4, "A", "recompute")]
    assert record.finish("A") == record.finish("B") == "length"


def test_who_waits_behind_a_stuck_request_is_told_so() -> None:
    requests = [ask("A", 15, 20), ask("B", 8, 2, arrival_step=1), ask("C", 1, 1, arrival_step=1)]
    record = run(pool(), requests, [act(2, "pause", "A")])
    assert record.request("B").message == (
        "needs 2 more of 4 blocks, 0 are free and nothing will release one: A holds 4"
    )
    assert record.request("C").message == "waits behind B, which cannot go on: A holds 4"
