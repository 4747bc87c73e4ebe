"""Arrival, the order in a step, admission, budgets: one rule of the contract a test.

Stand-in slots (no torch); block size 4 unless said otherwise. Expected numbers follow by counting
from the rule that the test is named after.
"""

from __future__ import annotations

import pytest

from kvlab.engine.engine import Engine
from kvlab.engine.events import Admitted
from kvlab.engine.stand_in import StandInRunner
from kvlab.errors import BadInput
from tests.engine.harness import STORY, Record, act, ask, pool, run


def kept(record: Record, step: int) -> list[tuple[str, str]]:
    return [(event.id, event.why) for event in record.events("kept_waiting", step=step)]


# Arrival.


@pytest.mark.parametrize("arrival", [0, 1, 4])
def test_a_request_first_runs_in_the_step_after_its_arrival(arrival: int) -> None:
    record = run(pool(), [ask("A", 3, 1, arrival_step=arrival)])
    assert [report.step for report in record.reports if report.admitted] == [arrival + 1]
    assert record.emitted("A") == [arrival + 1]


def test_equal_arrivals_keep_their_order() -> None:
    requests = [ask(id, 3, 2, arrival_step=2) for id in "DBCA"]
    record = run(pool(), requests)
    assert record.report(3).admitted == ("D", "B", "C", "A")


def test_requests_may_be_added_in_any_order_of_arrival() -> None:
    requests = [ask("late", 3, 2, arrival_step=5), ask("early", 3, 2, arrival_step=1)]
    record = run(pool(), requests)
    assert record.report(2).admitted == ("early",)
    assert record.report(6).admitted == ("late",)


def test_a_request_added_while_running_arrives_at_once() -> None:
    engine = Engine(pool(), StandInRunner())
    engine.add_request(ask("A", 3, 6))
    for _ in range(3):
        engine.step()
    engine.add_request(ask("B", 3, 2, arrival_step=1))  # that step is over
    assert [event.id for event in engine.step().of(Admitted)] == ["B"]


def test_an_id_is_used_once() -> None:
    engine = Engine(pool(), StandInRunner())
    engine.add_request(ask("A", 3, 2))
    with pytest.raises(BadInput, match="'A': the id is used twice"):
        engine.add_request(ask("A", 5, 2))
    engine.run()
    assert engine.requests["A"].finish_reason == "length"  # the engine goes on


@pytest.mark.parametrize("first_forks", [True, False])
def test_an_id_that_a_sample_will_have_is_taken(first_forks: bool) -> None:
    """Samples of A are A.2 and A.3; another request of that name would be lost."""
    engine = Engine(pool(), StandInRunner())
    pair = [ask("A", 3, 2, n=3), ask("A.3", 3, 2)]
    first, second = pair if first_forks else pair[::-1]
    engine.add_request(first)
    with pytest.raises(BadInput, match=r"'A.3': the id is used twice"):
        engine.add_request(second)
    engine.run()
    assert engine.requests[first.id].finish_reason == "length"


def test_a_prompt_token_outside_the_vocabulary_is_refused() -> None:
    class Small(StandInRunner):
        vocab_size = 10

    engine = Engine(pool(), Small())
    engine.add_request(ask("A", [1, 2], 2))
    for prompt in ([1, 10], [-1]):
        with pytest.raises(BadInput, match="outside the vocabulary of 10"):
            engine.add_request(ask("B", prompt, 2))
    engine.run()
    assert engine.requests["A"].finish_reason == "length"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": []}, "prompt is empty"),
        ({"max_tokens": 0}, "max_tokens = 0"),
        ({"n": 0}, "n = 0"),
        ({"temperature": -1.0}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_k": -1}, "top_k"),
    ],
)
def test_a_request_that_cannot_work_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        ask(**{"id": "A", "prompt": 3, "max_tokens": 2} | options)  # type: ignore[arg-type]


# Settings that contradict each other.


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"watermark_blocks": 4}, "watermark_blocks = 4 must be less than"),
        ({"chunk_tokens": 0}, "chunk_tokens = 0"),
        ({"step_tokens": 0}, "step_tokens = 0"),
        ({"max_running": 0}, "max_running = 0"),
        ({"copy_blocks_per_step": 0}, "copy_blocks_per_step = 0"),
        ({"host_blocks": -1}, "host_blocks = -1"),
        ({"num_blocks": 0}, "num_blocks = 0"),
        ({"block_size": 0}, "block_size = 0"),
        ({"method": "hope"}, "method = 'hope'"),
        ({"victim": "tallest"}, "victim = 'tallest'"),
        ({"unsafe": ("everything",)}, "unsafe = 'everything'"),
        ({"num_blocks": True}, "num_blocks = True"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        pool(**settings)  # type: ignore[arg-type]


# Order in a step.


def test_running_come_first_in_the_order_of_admission() -> None:
    """C is admitted in step 2, B waits for room until A has ended; C was admitted before B."""
    requests = [ask("A", 7, 3), ask("B", 9, 2, arrival_step=1, priority=1), ask("C", 3, 6)]
    record = run(pool(5), requests)
    assert list(record.report(1).scheduled) == ["A", "C"]
    assert record.state(2).waiting == ("B",)
    assert record.report(3).finished == ("A",)
    assert list(record.report(4).scheduled) == ["C", "B"]


def test_actions_come_before_scheduling() -> None:
    record = run(pool(), STORY, [act(3, "abort", "B")])
    third = record.report(3)
    assert third.finished == ("B",)
    assert third.victims == ()  # B's blocks are free before A asks
    assert third.scheduled == {"A": 1}


def test_a_step_that_preempted_for_need_admits_nobody() -> None:
    """Step 3 of the story preempts B; one block is free, but C, which needs one, has to wait."""
    record = run(pool(), [*STORY, ask("C", 2, 1, arrival_step=2, priority=-1)])
    assert record.report(3).victims[0].id == "B"
    assert record.state(3).free == 1
    assert record.report(3).admitted == ()
    assert kept(record, 3) == [("C", "preempted_this_step")]
    assert record.report(4).admitted == ("C",)


def test_a_step_that_preempted_by_action_admits_nobody() -> None:
    requests = [ask("A", 3, 6), ask("B", 3, 6), ask("C", 3, 2, arrival_step=1)]
    record = run(pool(8), requests, [act(2, "preempt", "B")])
    assert record.report(2).admitted == record.report(2).resumed == ()
    assert kept(record, 2) == [("B", "preempted_this_step")]
    assert record.report(3).resumed == ("B",)  # in front of C, which is fresh
    assert record.report(3).admitted == ("C",)
    assert list(record.report(3).scheduled) == ["A", "B", "C"]


def test_a_pause_is_no_preemption_and_admission_goes_on() -> None:
    requests = [ask("A", 3, 6), ask("C", 3, 2, arrival_step=1)]
    record = run(pool(8), requests, [act(2, "pause", "A"), act(4, "resume", "A")])
    assert record.report(2).admitted == ("C",)


def test_admission_is_head_of_line() -> None:
    """B needs 3 blocks and 2 are free; C needs one and stays behind B."""
    requests = [ask("A", 7, 3), ask("B", 9, 2), ask("C", 2, 2)]
    record = run(pool(), requests)
    assert record.report(1).admitted == ("A",)
    assert record.state(2).waiting == ("B", "C")
    assert kept(record, 2) == [("B", "no_room")]
    assert record.report(4).admitted == ("B", "C")


def test_the_preempted_go_to_the_front() -> None:
    requests = [*STORY, ask("C", 3, 2, arrival_step=2), ask("D", 3, 2)]
    record = run(pool(), requests)
    assert record.state(3).waiting == ("B", "D", "C")  # D arrived first; B was preempted


def test_two_victims_of_one_step_keep_their_order() -> None:
    """A needs two blocks at once in step 2 (chunk of 8); C and then B are paused for it: B is first."""
    requests = [ask("A", 12, 2), ask("B", 3, 4), ask("C", 3, 4)]
    record = run(pool(3, step_tokens=12, chunk_tokens=4, admission="first_chunk"), requests)
    assert [victim.id for victim in record.report(2).victims] == ["C"]
    assert [victim.id for victim in record.report(3).victims] == ["B"]
    assert record.state(3).waiting == ("B", "C")


def test_smaller_priority_numbers_come_first_in_the_queue() -> None:
    requests = [
        ask("A", 14, 2),
        ask("late", 3, 1, priority=5),
        ask("first", 3, 1, priority=-2),
        ask("second", 3, 1, priority=-2),
        ask("third", 3, 1),
    ]
    record = run(pool(max_running=1), requests)
    order = [id for report in record.reports for id in report.admitted]
    assert order == ["first", "second", "A", "third", "late"]


def test_priority_goes_before_having_been_preempted() -> None:
    """B (priority 0) was preempted; C (priority -1) is fresh and still ahead of it."""
    record = run(pool(), [*STORY, ask("C", 9, 2, arrival_step=4, priority=-1)])
    assert record.state(5).waiting == ("C", "B")


def test_running_requests_keep_their_order_whatever_their_priority() -> None:
    requests = [ask("A", 3, 4, priority=3), ask("B", 3, 4, arrival_step=1, priority=-3)]
    record = run(pool(), requests)
    assert list(record.report(3).scheduled) == ["A", "B"]


# Admission.


def test_whole_sequence_asks_for_room_for_all_of_the_history() -> None:
    """9 prompt tokens are 3 blocks; 2 are free, though the first chunk needs only one."""
    requests = [ask("A", 7, 3), ask("B", 9, 2)]
    record = run(pool(chunk_tokens=7), requests)
    assert kept(record, 1) == [("B", "no_room")]
    assert [event.needs for event in record.events("kept_waiting", "B", 1)] == [3]


def test_whole_sequence_allocates_only_the_chunk() -> None:
    record = run(pool(chunk_tokens=4), [ask("A", 12, 2)])
    assert [len(record.state(step).blocks["A"]) for step in (1, 2, 3)] == [1, 2, 3]


def test_first_chunk_asks_for_room_for_the_chunk() -> None:
    requests = [ask("A", 7, 3), ask("B", 9, 2)]
    record = run(pool(chunk_tokens=7, admission="first_chunk"), requests)
    assert record.report(1).admitted == ("A", "B")
    assert record.report(1).scheduled == {"A": 7, "B": 7}


def test_first_chunk_counts_the_budget_that_is_left() -> None:
    """Budget 8: A takes 5, B's chunk is 3 tokens, one block."""
    requests = [ask("A", 5, 3), ask("B", 9, 2)]
    record = run(pool(3, step_tokens=8, admission="first_chunk"), requests)
    assert record.report(1).scheduled == {"A": 5, "B": 3}
    assert record.state(1).free == 0


def test_the_watermark_counts_for_the_fresh_while_another_runs() -> None:
    """B needs 2 blocks, 2 are free, the watermark is 1."""
    requests = [ask("A", 7, 2), ask("B", 7, 2)]
    record = run(pool(watermark_blocks=1), requests)
    assert kept(record, 1) == [("B", "watermark")]
    assert record.report(3).admitted == ("B",)


def test_the_watermark_does_not_count_when_nothing_runs() -> None:
    record = run(pool(watermark_blocks=3), [ask("A", 14, 2)])
    assert record.report(1).admitted == ("A",)
    assert record.finish("A") == "length"


@pytest.mark.parametrize("method", ["recompute", "swap"])
def test_the_watermark_counts_for_the_resumed_too(method: str) -> None:
    """B is preempted by action in step 2 and could come back in step 3: it needs 2 blocks, 2 are free
    of 4 and A runs, so that a watermark of 1 keeps it waiting until A has ended."""
    requests = [ask("A", 5, 4), ask("B", 5, 4)]
    record = run(pool(watermark_blocks=1, num_blocks=5, method=method), requests,
                 [act(2, "preempt", "B")])  # fmt: skip
    assert record.report(3).resumed == ("B",)  # 2 + 1 of 3 free
    tight = run(pool(watermark_blocks=1, method=method), [requests[0], ask("B", 3, 4)],
                [act(2, "preempt", "B")])  # fmt: skip
    assert tight.report(3).resumed == ("B",)  # a block for 4 tokens, and 1 of 2 free is left
    later = run(pool(watermark_blocks=2, method=method, num_blocks=5), [requests[0], ask("B", 3, 4)],
                [act(3, "preempt", "B")])  # fmt: skip
    assert kept(later, 4) == [("B", "watermark")]  # 5 tokens are 2 blocks, 3 are free
    assert later.report(4).finished == ("A",)
    assert later.report(5).resumed == ("B",)


@pytest.mark.parametrize("settings", [{}, {"allocation": "reserve_max"}, {"method": "swap"}])
def test_what_never_fits_is_rejected_with_both_numbers(settings: dict[str, str]) -> None:
    record = run(pool(**settings), [ask("A", 17, 2), ask("B", 3, 2)])  # type: ignore[arg-type]
    assert record.finish("A") == "rejected"
    assert record.request("A").message == "needs 5 blocks, the pool has 4"
    assert record.finish("B") == "length"


def test_a_run_of_rejections_alone_has_one_step() -> None:
    record = run(pool(), [ask("A", 17, 2), ask("B", 40, 2)])
    assert record.steps == 1
    assert record.report(1).finished == ("A", "B")


def test_max_running_limits_the_batch() -> None:
    requests = [ask(id, 3, 3) for id in "ABC"]
    record = run(pool(8, max_running=2), requests)
    assert record.report(1).admitted == ("A", "B")
    assert kept(record, 1) == [("C", "batch_full")]
    assert max(len(state.running) for state in record.states) == 2
    assert record.report(4).admitted == ("C",)


# Budgets.


def test_the_step_budget_covers_all_requests() -> None:
    """Budget 5: A(7) takes 5, then 2; B gets the 3 that are left, then its last token beside A's."""
    requests = [ask("A", 7, 3), ask("B", 4, 3)]
    record = run(pool(8, step_tokens=5), requests)
    assert record.report(1).scheduled == {"A": 5}
    assert record.report(2).scheduled == {"A": 2, "B": 3}
    assert record.report(3).scheduled == {"A": 1, "B": 1}
    assert all(report.tokens <= 5 for report in record.reports)


def test_a_chunk_and_a_budget_together_take_the_smaller() -> None:
    requests = [ask("A", 7, 2), ask("B", 7, 2)]
    record = run(pool(8, step_tokens=5, chunk_tokens=3), requests)
    assert record.report(1).scheduled == {"A": 3, "B": 2}
    assert record.report(2).scheduled == {"A": 3, "B": 2}
    assert record.report(3).scheduled == {"A": 1, "B": 3}


def test_one_token_a_step_still_ends() -> None:
    record = run(pool(step_tokens=1), STORY)
    assert all(report.tokens <= 1 for report in record.reports)
    assert record.finish("A") == record.finish("B") == "length"


def test_a_token_is_sampled_only_when_all_of_the_history_is_computed() -> None:
    record = run(pool(8, chunk_tokens=2), [ask("A", 7, 2)])
    assert record.emitted("A") == [4, 5]
    assert [event.samples for event in record.events("scheduled")] == [
        False, False, False, True, True,
    ]  # fmt: skip


# Reserving the maximum.


def test_reserve_max_takes_the_blocks_of_the_longest_kv_at_once() -> None:
    """A(7,6) may have KV for 7 + 5 = 12 positions: 3 blocks, of which 2 hold 7; the last output is
    never processed."""
    record = run(pool(8, allocation="reserve_max"), [ask("A", 7, 6)])
    assert len(record.state(1).blocks["A"]) == 3
    assert [state.reserved_unused for state in record.states] == [1, 1, 0, 0, 0, 0]


def test_reserve_max_never_preempts_and_admits_fewer() -> None:
    """The story: A reserves 3 of 4 blocks, B needs 3 for 7 + 3 positions and waits for A."""
    record = run(pool(allocation="reserve_max"), STORY)
    assert record.victims == []
    assert record.report(1).admitted == ("A",)
    assert record.report(7).admitted == ("B",)
    assert record.processed == 22


def test_on_demand_reserves_nothing() -> None:
    record = run(pool(), STORY)
    assert {state.reserved_unused for state in record.states} == {0}


# Free list.


def test_head_first_gives_blocks_back_in_the_tables_order() -> None:
    """figure-5: B comes back in P3 P0 P1."""
    record = run(pool(), STORY)
    assert record.state(7).blocks["B"] == (3, 0, 1)


def test_tail_first_gives_blocks_back_in_reverse() -> None:
    """B's P2 P3 come back as P3 P2: A takes P3. A's P0 P1 P3 come back as P3 P1 P0 behind P2."""
    record = run(pool(free_order="tail_first"), STORY)
    assert record.state(3).blocks["A"] == (0, 1, 3)
    assert record.state(7).blocks["B"] == (2, 3, 1)


def test_vllm_v1_puts_a_release_in_front() -> None:
    """The table's last block is handed out next: A takes P3; at its end P3 P1 P0 go before P2."""
    record = run(pool(free_order="vllm_v1"), STORY)
    assert record.state(3).blocks["A"] == (0, 1, 3)
    assert record.state(7).blocks["B"] == (3, 1, 0)


def test_vllm_v1s_written_example() -> None:
    """Free [5,7,3,2] and release of [1,8,6,4] give [4,6,8,1,5,7,3,2]."""
    from kvlab.engine.block_pool import BlockPool

    blocks = BlockPool(9, "vllm_v1")
    blocks.allocate(9)
    for block in (2, 3, 7, 5):
        blocks.release([block])
    assert list(blocks._free) == [5, 7, 3, 2]
    blocks.release([1, 8, 6, 4])
    assert list(blocks._free) == [4, 6, 8, 1, 5, 7, 3, 2]


def test_vllm_v1_sends_blocks_with_a_hash_to_the_back() -> None:
    from kvlab.engine.block_pool import BlockPool

    blocks = BlockPool(6, "vllm_v1")
    table = blocks.allocate(4)
    blocks.remember(table[0], b"first")
    blocks.remember(table[1], b"second")
    blocks.release(table)
    assert list(blocks._free) == [3, 2, 4, 5, 1, 0]


def test_a_request_that_finishes_releases_at_the_end_of_its_step() -> None:
    """A ends in step 2 with 2 blocks; B, which needs 3, is not admitted before step 3."""
    record = run(pool(), [ask("A", 7, 2), ask("B", 9, 2)])
    assert record.state(2).free == 4
    assert record.report(2).admitted == ()
    assert record.report(3).admitted == ("B",)
