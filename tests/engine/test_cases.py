"""The cases that real engines got wrong, each without torch and again with a small real model.

Common setup unless said otherwise: block size 4, greedy, prefix cache off, newest-running victim,
head-first free order. The numbers are those of the written cases; where one follows by counting, the
counting is beside it. `run` compares every output with the oracle's and looks after every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kvlab.engine.config import EngineConfig
from kvlab.engine.engine import Engine
from kvlab.engine.request import Request
from tests.engine.harness import (
    STORY,
    CellRunner,
    Lab,
    MakeRunner,
    Record,
    act,
    again,
    ask,
    cells,
    fresh_like,
    model_runner,
    oracle_outputs,
    pool,
    run,
    snapshot,
)


@pytest.fixture(params=["cells", "model"])
def on(request: pytest.FixtureRequest) -> MakeRunner:
    """What the case runs on: slots that remember without torch, or the tiny model."""
    return cells if request.param == "cells" else model_runner


# 1 and 2: the article.


def test_case_1_the_article_by_recompute(on: MakeRunner) -> None:
    config = pool()
    record = run(config, STORY, runner=on(config))
    assert record.preempted == [(3, "B", "recompute")]
    assert (record.processed, record.recomputed) == (30, 8)
    assert record.free == [0, 0, 1, 1, 1, 4, 1, 4]  # figure-5
    assert record.emitted("A") == [1, 2, 3, 4, 5, 6]
    assert record.emitted("B") == [1, 2, 7, 8]  # gaps 1, 5, 1
    assert record.state(3).blocks == {"A": (0, 1, 2)}  # A receives P2, as in the article
    assert record.state(7).blocks == {"B": (3, 0, 1)}
    assert record.waited("B") == (4, 1)


def test_case_2_the_article_by_swap(on: MakeRunner) -> None:
    config = pool(method="swap", host_blocks=2)
    record = run(config, STORY, runner=on(config))
    assert record.preempted == [(3, "B", "swap")]
    assert record.swapped == (2, 2)
    assert (record.processed, record.recomputed) == (22, 0)
    assert [state.host_free for state in record.states] == [2, 2, 0, 0, 0, 0, 2, 2]
    assert record.emitted("B") == [1, 2, 7, 8]


def test_case_2_host_pool_too_small_falls_back(on: MakeRunner) -> None:
    config = pool(method="swap", host_blocks=1)
    record = run(config, STORY, runner=on(config))
    ((step, victim),) = record.victims
    assert (step, victim.id, victim.method, victim.fallback) == (3, "B", "recompute", "host_full")
    assert record.swapped == (0, 0)
    assert (record.processed, record.recomputed) == (30, 8)
    assert record.emitted("A") == [1, 2, 3, 4, 5, 6]
    assert {record.finish("A"), record.finish("B")} == {"length"}


# 3 and 4: what cannot fit.


def test_case_3_a_lone_request_outgrows_the_pool(on: MakeRunner) -> None:
    config = pool()
    record = run(config, [ask("A", 7, 20)], runner=on(config))
    assert record.finish("A") == "kv_capacity"
    assert len(record.outputs("A")) == 10
    assert (record.state(10).kv["A"], record.state(10).history["A"]) == (16, 17)
    assert record.victims == []
    assert record.steps == 11  # ten with a token, one that finds no room
    assert record.processed == 16
    assert record.free[-1] == 4
    message = record.request("A").message
    assert message is not None
    assert "needs 5 blocks, the pool has 4" in message


def test_case_4_a_prompt_that_can_never_fit(on: MakeRunner) -> None:
    config = pool()
    requests = [ask("A", 20, 2), ask("B", 3, 2)]
    record = run(config, requests, runner=on(config))
    assert record.finish("A") == "rejected"
    message = record.request("A").message
    assert message is not None
    assert "needs 5 blocks, the pool has 4" in message
    assert record.outputs("A") == []
    assert record.finish("B") == "length"
    assert record.emitted("B") == [1, 2]


# 5: abort while parked.


def test_case_5_abort_while_parked(on: MakeRunner) -> None:
    config = pool(method="swap", host_blocks=2)
    record = run(config, STORY, [act(5, "abort", "B")], on(config))
    assert record.state(4).host_free == 0
    assert record.state(5).host_free == 2  # in that same step
    assert record.finish("B") == "aborted"
    assert record.emitted("B") == [1, 2]  # x0 and x1 only
    assert record.emitted("A") == [1, 2, 3, 4, 5, 6]
    assert record.finish("A") == "length"


# 6: reuse around an unfinished copy.

SLOW: dict[str, Any] = {"method": "swap", "host_blocks": 2, "copy_blocks_per_step": 1}


def stored(record: Record | Lab, id: str, positions: int) -> Any:
    """What lies in the slots of a request's first positions: cells, or bytes of every layer."""
    runner, engine = record.runner, record.engine
    table = engine.requests[id].table
    if isinstance(runner, CellRunner):
        return runner.read(table, positions)
    size = engine.config.block_size
    slots = [table[at // size] * size + at % size for at in range(positions)]
    layers = range(runner.cache.data.shape[0])
    return [
        [half[slots].numpy().tobytes() for half in runner.cache.slots(layer)] for layer in layers
    ]


def test_case_6_a_slow_swap_is_safe(on: MakeRunner) -> None:
    """Two blocks, one a step: released at the start of step 5, A stalls in steps 3 and 4."""
    config = pool(**SLOW)
    runner = on(config)
    expected = oracle_outputs(config, STORY, fresh_like(runner, config))
    lab = Lab(config, map(again, STORY), runner=runner, expected=expected)
    for _ in range(2):
        lab.step()
    before = stored(lab, "B", 8)
    while lab.engine.has_work:
        report = lab.step()
        if report.step in (3, 4):
            assert [(stall.id, stall.why) for stall in report.stalled] == [("A", "copy_in_flight")]
            assert lab.record.state(report.step).in_flight == 2
        if report.step == 10:
            assert stored(lab, "B", 8) == before  # all 8 positions, every layer, K and V
    record = lab.record
    assert record.emitted("A") == [1, 2, 5, 6, 7, 8]  # the stall is visible: x2 two steps late
    assert record.state(5).blocks["A"] == (0, 1, 2)
    assert record.emitted("B") == [1, 2, 11, 12]  # the copy in takes steps 9 and 10
    assert record.events("damage_found") == []
    copies = [(copy.id, copy.direction, copy.blocks, copy.done) for r in record.reports
              for copy in r.copies]  # fmt: skip
    assert copies == [
        ("B", "out", 1, False), ("B", "out", 1, True), ("B", "in", 1, False), ("B", "in", 1, True),
    ]  # fmt: skip


def test_case_6_reuse_before_copied(on: MakeRunner) -> None:
    """P2 is handed out at once: A's position 8 lies in it when its copy is made."""
    config = pool(**SLOW, unsafe=("reuse_before_copied",))
    runner = on(config)
    lab = Lab(config, map(again, STORY), runner=runner)
    for _ in range(2):
        lab.step()
    before = stored(lab, "B", 8)
    lab.step()
    assert lab.record.report(3).stalled == []
    assert lab.record.state(3).blocks["A"] == (0, 1, 2)
    while "B" not in snapshot(lab.engine).kv:
        lab.step()
    assert stored(lab, "B", 8) != before
    lab.run()
    found = lab.record.events("damage_found")
    assert {(event.id, event.why) for event in found} == {("B", "reuse_before_copied")}
    assert all(event.restored for event in found)
    assert {event.logical for event in found} == {0}  # P2, which A wrote into
    # All of A is as it should be, and usually B's x2 is another one.
    oracle = oracle_outputs(config, STORY, fresh_like(runner, config))
    assert lab.record.outputs("A") == oracle["A"]
    assert lab.record.outputs("B")[:2] == oracle["B"][:2]
    assert lab.record.outputs("B") != oracle["B"]


def test_case_6_write_before_copy_out() -> None:
    """The copy does not wait for the last write: position 7 comes back as it was before it."""
    config = pool(**SLOW, unsafe=("write_before_copy_out",))
    runner = model_runner(config)
    lab = Lab(config, map(again, STORY), runner=runner)
    for _ in range(2):
        lab.step()
    before = stored(lab, "B", 8)
    while "B" not in snapshot(lab.engine).kv or lab.engine.steps < 3:
        lab.step()
    after = stored(lab, "B", 8)
    lab.run()
    width = len(before[0][0]) // 8
    for old, new in zip(before, after, strict=True):
        for k_or_v, came_back in zip(old, new, strict=True):
            assert came_back[: 7 * width] == k_or_v[: 7 * width]
            assert came_back[7 * width :] != k_or_v[7 * width :]
    found = lab.record.events("damage_found")
    assert {(event.id, event.why, event.logical) for event in found} == {
        ("B", "write_before_copy_out", 1)
    }
    assert {layer for event in found for layer in event.layers} == {0, 1}


@pytest.mark.parametrize("rate", [None, 1])
def test_case_6_read_before_copy_in(on: MakeRunner, rate: int | None) -> None:
    """B's blocks are copied over A's in the step in which A reads them for the last time."""
    config = pool(
        method="swap", host_blocks=2, copy_blocks_per_step=rate, unsafe=("read_before_copy_in",)
    )
    runner = on(config)
    lab = Lab(config, map(again, STORY), runner=runner)
    lab.run()
    found = lab.record.events("damage_found")
    assert {(event.id, event.why) for event in found} == {("A", "read_before_copy_in")}
    assert not any(event.restored for event in found)
    oracle = oracle_outputs(config, STORY, fresh_like(runner, config))
    assert lab.record.outputs("A")[:5] == oracle["A"][:5]
    assert lab.record.outputs("B") == oracle["B"]
    assert lab.record.finish("B") == "length"


@pytest.mark.parametrize("rate", [None, 1])
@pytest.mark.parametrize(
    "switch", ["write_before_copy_out", "reuse_before_copied", "read_before_copy_in"]
)
def test_case_6_a_broken_ordering_leaks_nothing(
    on: MakeRunner, switch: str, rate: int | None
) -> None:
    config = pool(method="swap", host_blocks=4, copy_blocks_per_step=rate, unsafe=(switch,))
    record = Lab(config, map(again, STORY), runner=on(config)).run()
    assert {record.finish("A"), record.finish("B")} == {"length"}
    assert (record.free[-1], record.states[-1].host_free) == (4, 4)


# 7: seeds.


def seeded(seed: int) -> list[Request]:
    return [again_with(request, temperature=1.0, seed=seed) for request in STORY]


def again_with(request: Request, **options: Any) -> Request:
    return ask(request.id, request.prompt, request.max_tokens, **options)


@pytest.mark.parametrize("method", ["recompute", "swap"])
@pytest.mark.parametrize("seed", [3, 4])
def test_case_7_seeds(on: MakeRunner, method: str, seed: int) -> None:
    config = pool(method=method)
    record = run(config, seeded(seed), runner=on(config))
    assert record.preempted == [(3, "B", method)]


@pytest.mark.parametrize("method", ["recompute", "swap"])
@pytest.mark.parametrize("step", range(2, 9))
def test_case_7_preempted_at_every_position(on: MakeRunner, method: str, step: int) -> None:
    """B(7,8) has eight outputs, and is preempted after each but the last in turn."""
    config = pool(8, method=method)
    requests = [
        ask("A", 7, 6, temperature=1.0, seed=3),
        ask("B", 7, 8, temperature=1.0, seed=4),
    ]
    record = run(config, requests, [act(step, "preempt", "B")], on(config))
    assert record.preempted == [(step, "B", method)]
    assert record.count("preempted", "B") == 1
    assert len(record.outputs("B")) == 8


def test_two_seeds_give_two_outputs() -> None:
    """Else case 7 would hold for a sampler that ignores the seed."""
    config = pool()
    first, second = (run(config, seeded(s), runner=model_runner(config)) for s in (3, 4))
    assert first.outputs("B") != second.outputs("B")


# 8: chunked recompute.


def test_case_8_chunked_recompute(on: MakeRunner) -> None:
    config = pool(chunk_tokens=4)
    record = run(config, STORY, runner=on(config))
    assert record.report(1).scheduled == {"A": 4, "B": 4}
    assert record.report(2).scheduled == {"A": 3, "B": 3}
    assert record.preempted == [(4, "B", "recompute")]  # one step later than the story
    assert record.report(7).finished == ("A",)
    replay = [record.report(step).scheduled.get("B") for step in (8, 9, 10)]
    assert replay == [4, 4, 1]
    assert [record.state(step).kv["B"] for step in (8, 9, 10)] == [4, 8, 9]
    assert record.emitted("B") == [2, 3, 10, 11]
    samples = [event.samples for event in record.events("scheduled", "B") if event.step >= 8]
    assert samples == [False, False, True, True]


# 9: log-probabilities.


def test_case_9_logprobs(on: MakeRunner) -> None:
    config = pool()
    requests = [again_with(request, logprobs=True) for request in STORY]
    record = run(config, requests, runner=on(config))
    assert record.preempted == [(3, "B", "recompute")]
    oracle = Engine(EngineConfig(num_blocks=64, block_size=4), fresh_like(on(config), config))
    for request in requests:
        oracle.add_request(again(request))
    oracle.run()
    for id, count in (("A", 6), ("B", 4)):
        scores = record.request(id).logprobs
        assert len(scores) == count
        assert scores == pytest.approx(oracle.requests[id].logprobs, abs=1e-4)
        assert all(score <= 0 for score in scores)


def test_case_9_the_first_values_stay(on: MakeRunner) -> None:
    config = pool()
    requests = [again_with(request, logprobs=True) for request in STORY]
    lab = Lab(config, requests, runner=on(config))
    for _ in range(2):
        lab.step()
    first = list(lab.engine.requests["B"].logprobs)
    assert len(first) == 2
    while lab.engine.has_work:
        lab.step()
        scores = lab.engine.requests["B"].logprobs
        assert scores[:2] == first
        assert len(scores) == len(lab.engine.requests["B"].outputs)


# 10: the victim was already scheduled in this step.


def test_case_10_the_victim_was_already_scheduled(on: MakeRunner) -> None:
    config = pool(victim="lowest_priority")
    requests = [ask("L", 5, 9, priority=1), ask("H", 8, 9, arrival_step=1)]
    record = run(config, requests, runner=on(config))
    assert record.state(2).kv == {"L": 6, "H": 8}
    assert record.state(2).free == 0
    third = record.report(3)
    assert third.scheduled == {"H": 1}
    assert list(third.emitted) == ["H"]
    assert [(victim.id, victim.need_of) for victim in third.victims] == [("L", "H")]
    assert [(event.id, event.tokens) for event in record.events("unscheduled", step=3)] == [
        ("L", 1)
    ]
    assert third.tokens == 1
    assert record.finish("L") == record.finish("H") == "length"


def test_case_10_the_budget_is_given_back(on: MakeRunner) -> None:
    """Budget 3, running L, H, C: L's chunk of 2 and H's token leave C nothing in steps 3 and 4; in
    step 5 H needs a block, L is the victim, and its 2 tokens serve C."""
    config = pool(victim="lowest_priority", step_tokens=3, chunk_tokens=2)
    requests = [
        ask("L", 12, 2, priority=1),
        ask("H", 2, 5, arrival_step=1),
        ask("C", 1, 5, arrival_step=1),
    ]
    actions = [act(2, "pause", "L"), act(3, "resume", "L")]  # so that C gets in at all
    record = run(config, requests, actions, on(config))
    assert [dict(record.report(step).scheduled) for step in (1, 2, 3, 4)] == [
        {"L": 2}, {"H": 2, "C": 1}, {"L": 2, "H": 1}, {"L": 2, "H": 1},
    ]  # fmt: skip
    fifth = record.report(5)
    assert [(victim.id, victim.need_of) for victim in fifth.victims] == [("L", "H")]
    assert fifth.scheduled == {"H": 1, "C": 1}
    assert list(fifth.emitted) == ["H", "C"]


def test_case_10_the_lowest_preempts_itself(on: MakeRunner) -> None:
    """L(7) is full after step 2 and asks first; H(6) has room and still runs in step 3."""
    config = pool(victim="lowest_priority")
    requests = [ask("L", 7, 9, priority=1), ask("H", 6, 5, arrival_step=1)]
    record = run(config, requests, runner=on(config))
    third = record.report(3)
    assert [(victim.id, victim.need_of) for victim in third.victims] == [("L", "L")]
    assert third.scheduled == {"H": 1}
    assert list(third.emitted) == ["H"]


# 11: preempting frees less than it seems.

PREFIX = (9, 8, 7, 6)


def sharing() -> list[Request]:
    """A, C, B: A and B start with the same full block."""
    return [ask("A", (*PREFIX, 1, 1, 1), 5), ask("C", 3, 5), ask("B", (*PREFIX, 2, 2, 2), 5)]


def test_case_11_preempting_frees_less_than_it_seems(on: MakeRunner) -> None:
    config = pool(prefix_cache=True)
    runner = on(config)
    expected = oracle_outputs(config, sharing(), fresh_like(runner, config))
    lab = Lab(config, sharing(), runner=runner, expected=expected)
    for _ in range(2):
        lab.step()
    two = lab.record.state(2)
    assert two.running == ("A", "C", "B")
    assert two.blocks == {"A": (0, 1), "C": (2,), "B": (0, 3)}
    assert two.kv == {"A": 8, "C": 4, "B": 8}
    assert two.free == 0
    third = lab.step()
    first = third.victims[0]
    assert (first.id, first.reclaimable, first.blocks) == ("B", 1, 2)
    assert lab.engine.kv.pool.references(0) == 1  # the shared block stays, with A
    assert lab.record.state(3).blocks["A"] == (0, 1, 3)
    record = lab.run()
    assert {record.finish(id) for id in "ABC"} == {"length"}


def test_case_11_a_candidate_that_yields_nothing_is_not_touched(on: MakeRunner) -> None:
    """A and A.2 hold the same two full blocks and nothing else: the oldest that yields is C."""
    config = pool(3, victim="oldest")
    record = run(config, [ask("A", 8, 2, n=2), ask("C", 3, 4)], runner=on(config))
    first = record.report(2).victims[0]
    assert (first.id, first.need_of, first.reclaimable, first.blocks) == ("C", "A", 1, 1)


def test_case_11_when_all_yield_nothing_the_step_stalls(on: MakeRunner) -> None:
    """Two samples share both blocks of a full pool; whoever writes next needs a copy of the last."""
    config = pool(2)
    lab = Lab(config, [ask("A", 7, 2, n=2)], runner=on(config))
    lab.step()
    second = lab.step(end_if_stuck=False)
    assert [(stall.id, stall.why) for stall in second.stalled] == [
        ("A", "none_reclaimable"),
        ("A.2", "none_reclaimable"),
    ]
    assert second.victims == ()


def test_case_11_a_copy_in_flight_yields_nothing_now(on: MakeRunner) -> None:
    """Pool 5, rate 1: B's two blocks are on their way, A waits for them and touches nobody else."""
    config = pool(5, method="swap", copy_blocks_per_step=1)
    requests = [ask("A", 7, 6), ask("C", 2, 8), ask("B", 7, 4)]
    record = run(config, requests, runner=on(config))
    third = record.report(3)
    assert [victim.id for victim in third.victims] == ["B"]
    assert [(stall.id, stall.why) for stall in third.stalled] == [("A", "copy_in_flight")]
    assert "C" in third.scheduled
    assert record.report(4).victims == ()


# 12: a finished request is no victim.


def test_case_12_a_finished_request_is_no_victim(on: MakeRunner) -> None:
    """7 + 1 tokens of A and 7 + 5 of B are processed: 20."""
    config = pool()
    record = run(config, [ask("A", 7, 2), ask("B", 7, 6)], runner=on(config))
    assert record.victims == []
    assert record.processed == 20
    assert record.report(2).finished == ("A",)
    assert record.state(2).free == 2
    assert record.state(3).blocks == {"B": (2, 3, 0)}


def test_a_function_policy_is_never_offered_an_ended_request() -> None:
    offered: list[list[str]] = []

    def choose(candidates: Sequence[Any], need: str) -> str:
        offered.append([candidate.id for candidate in candidates])
        return str(candidates[-1].id)

    config = pool(6, victim=choose)
    requests = [ask("A", 7, 2), ask("B", 7, 9), ask("C", 7, 9)]
    record = run(config, requests)
    assert offered
    assert all("A" not in ids for ids in offered)
    assert record.finish("B") == record.finish("C") == "length"
