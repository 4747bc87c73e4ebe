"""n > 1: samples of one prompt share its blocks until they write, and are judged by what is theirs."""

from __future__ import annotations

import pytest

from kvlab.engine.config import EngineConfig
from kvlab.engine.request import Request
from kvlab.engine.runner import Runner
from tests.engine.harness import (
    CellRunner,
    Lab,
    MakeRunner,
    Record,
    act,
    ask,
    cells,
    model_runner,
    pool,
    run,
)


@pytest.fixture(params=["cells", "model"])
def on(request: pytest.FixtureRequest) -> MakeRunner:
    return cells if request.param == "cells" else model_runner


SEEDED = {"temperature": 1.0, "seed": 5}


def test_samples_share_the_prompts_blocks(on: MakeRunner) -> None:
    config = pool(8)
    record = run(config, [ask("A", 7, 3, n=3, **SEEDED)], runner=on(config))
    assert record.report(1).scheduled == {"A": 7}  # the prompt is processed once
    assert list(record.report(1).emitted) == ["A", "A.2", "A.3"]
    assert record.state(1).blocks == dict.fromkeys(("A", "A.2", "A.3"), (0, 1))
    assert record.state(1).free == 6
    assert [fork.id for fork in record.engine.forks.of("A")] == ["A.2", "A.3"]


def test_each_sample_has_a_seed_of_its_own(on: MakeRunner) -> None:
    """Sample k of seed s is the one sample of seed s + k - 1."""
    config = pool(8)
    record = run(config, [ask("A", 7, 5, n=3, **SEEDED)], runner=on(config))
    for number, id in enumerate(("A", "A.2", "A.3")):
        alone = run(config, [ask("A", 7, 5, temperature=1.0, seed=5 + number)], runner=on(config))
        assert record.outputs(id) == alone.outputs("A")


def test_who_writes_first_copies_the_shared_last_block(on: MakeRunner) -> None:
    """Step 2: A and A.2 copy block 1, the partial one; A.3 is then its only owner and writes into it."""
    config = pool(8)
    record = run(config, [ask("A", 7, 3, n=3, **SEEDED)], runner=on(config))
    assert [(e.id, e.source, e.block) for e in record.events("block_copied")] == [
        ("A", 1, 2), ("A.2", 1, 3),
    ]  # fmt: skip
    assert record.state(2).blocks == {"A": (0, 2), "A.2": (0, 3), "A.3": (0, 1)}


def test_full_blocks_are_never_copied() -> None:
    """8 prompt tokens fill two blocks: each sample takes a third of its own."""
    record = run(pool(8), [ask("A", 8, 3, n=3)])
    assert record.events("block_copied") == []
    assert record.state(2).blocks == {"A": (0, 1, 2), "A.2": (0, 1, 3), "A.3": (0, 1, 4)}


def test_reclaimable_k_of_n(on: MakeRunner) -> None:
    """Two samples share one full block; each has one of its own: preempting yields 1 of 2."""
    config = pool(4)
    record = run(config, [ask("A", 7, 5, n=2, **SEEDED)], runner=on(config))
    ((step, victim), *_) = record.victims
    # After step 2 A has (0, 2) and A.2 (0, 1), 8 positions each, and 1 of 4 is free. In step 3 A
    # takes it, and A.2, the newest, needs one.
    assert (step, victim.id, victim.reclaimable, victim.blocks) == (3, "A.2", 1, 2)


@pytest.mark.parametrize("method", ["recompute", "swap"])
@pytest.mark.parametrize("rate", [None, 1])
@pytest.mark.parametrize("num_blocks", [3, 4, 5])
def test_preempted_samples_equal_the_oracle(
    on: MakeRunner, method: str, rate: int | None, num_blocks: int
) -> None:
    config = pool(num_blocks, method=method, copy_blocks_per_step=rate)
    record = run(config, [ask("A", 5, 6, n=3, **SEEDED)], runner=on(config))
    assert record.victims
    assert [record.finish(id) for id in ("A", "A.2", "A.3")] == ["length"] * 3


def preempt_the_second(config: EngineConfig, requests: list[Request], runner: Runner) -> Record:
    """A.2 alone is preempted in step 2: an action of a scenario would reach A, too."""
    lab = Lab(config, requests, runner=runner)
    lab.step()
    lab.engine.add_action(act(2, "preempt", "A.2"))
    return lab.run()


def test_a_sample_writes_while_the_shared_block_is_copied_out(on: MakeRunner) -> None:
    """A.2's copy of block 0 is under way in step 2, so that A takes a copy before it writes; block 0
    then belongs to the swap alone, in flight until step 3."""
    config = pool(4, method="swap", copy_blocks_per_step=1)
    record = preempt_the_second(config, [ask("A", 3, 3, n=2, **SEEDED)], on(config))
    assert [(e.id, e.source) for e in record.events("block_copied")] == [("A", 0)]
    assert record.state(2).in_flight == 1
    assert record.state(2).blocks == {"A": (1,)}
    assert record.finish("A") == record.finish("A.2") == "length"


def test_what_a_sample_shares_is_not_copied_out(on: MakeRunner) -> None:
    """Both blocks of the prompt are full and in both tables: nothing is copied, A.2 keeps its
    references, and they are all that is left when A ends in step 2."""
    config = pool(6, method="swap", copy_blocks_per_step=1)
    record = preempt_the_second(config, [ask("A", 8, 2, n=2, **SEEDED)], on(config))
    assert record.report(2).finished == ("A",)
    assert (record.state(2).in_flight, record.state(2).free) == (0, 4)
    assert record.state(2).blocks == {"A.2": (0, 1)}
    assert record.swapped == (0, 0)
    assert record.positions("A.2") == 0  # none was computed again
    assert record.finish("A.2") == "length"


def test_a_copy_on_write_counts_as_a_block_needed() -> None:
    """Pool 3: B holds one block, the samples two. A must copy block 1 and nothing is free."""
    record = run(pool(3), [ask("A", 6, 2, n=2), ask("B", 3, 4)])
    assert record.state(1).free == 0
    (needed, *_) = record.events("block_needed", step=2)
    assert (needed.id, needed.needs) == ("A", 1)
    assert [victim.id for victim in record.report(2).victims] == ["B"]
    assert [record.finish(id) for id in ("A", "A.2", "B")] == ["length"] * 3


def test_a_request_preempted_before_its_first_token_still_forks() -> None:
    config = pool(8, chunk_tokens=3)
    record = run(config, [ask("A", 7, 3, n=2), ask("B", 3, 6)], [act(2, "preempt", "A")])
    assert [record.finish(id) for id in ("A", "A.2")] == ["length"] * 2
    assert record.count("preempted", "A") == 1


def test_a_sample_that_stops_at_once_leaves_the_others() -> None:
    whole = run(pool(8), [ask("A", 7, 5, n=3)])
    first = whole.outputs("A")[0]
    record = run(pool(8), [ask("A", 7, 5, n=3, stop=(first,))])
    assert record.report(1).finished == ("A",)
    assert record.outputs("A.2") == whole.outputs("A.2")


def test_one_output_each() -> None:
    record = run(pool(8), [ask("A", 7, 1, n=4)])
    assert record.steps == 1
    assert record.free[-1] == 8


def test_a_failed_copy_on_write_ends_that_sample_alone() -> None:
    runner = CellRunner(4, fail_block=[0])
    record = run(pool(8), [ask("A", 7, 4, n=3), ask("B", 3, 4)], runner=runner)
    assert record.finish("A") == "error"
    assert "could not be copied" in (record.request("A").message or "")
    assert [record.finish(id) for id in ("A.2", "A.3", "B")] == ["length"] * 3
    assert record.free[-1] == 8


def test_a_failed_copy_on_write_ends_what_the_block_had_kept_of_a_prefix() -> None:
    """2 blocks of 2, released backwards. A leaves its first block, P0, to be found; B takes P1, and
    for its sample a copy in P0, which breaks off: P0 is free again, and there is no prefix in it."""
    config = pool(2, 2, prefix_cache=True, free_order="tail_first")
    first, later = ask("A", [1, 2, 3], 1), ask("B", 1, 3, n=2, arrival_step=1)
    record = run(config, [first, later], runner=CellRunner(2, fail_block=[0]))
    # `run` folds the events and compares what is said to be cached with the pool, step by step.
    assert [record.state(step).cached for step in (1, 2, 3)] == [1, 1, 0]
    assert record.finish("B") == "error"
    assert record.finish("B.2") == "length"
    assert record.free[-1] == 2


def test_logprobs_of_samples_are_their_own(on: MakeRunner) -> None:
    config = pool(8)
    record = run(config, [ask("A", 7, 3, n=2, logprobs=True, **SEEDED)], runner=on(config))
    for id in ("A", "A.2"):
        assert len(record.request(id).logprobs) == 3


def test_samples_with_the_prefix_cache(on: MakeRunner) -> None:
    config = pool(5, prefix_cache=True)
    record = run(config, [ask("A", 9, 6, n=2, **SEEDED)], runner=on(config))
    assert record.victims
    assert record.from_cache(record.victims[0][1].id) >= 8  # its sibling kept the prompt


# Places: a batch with fewer than a request has samples.


def test_samples_count_against_max_running() -> None:
    """n = 4 and two places: two samples run, two wait without KV, at the front of the queue."""
    config = pool(12, max_running=2)
    record = run(config, [ask("A", 7, 3, n=4, **SEEDED), ask("B", 3, 2)])
    assert record.report(1).scheduled == {"A": 7, "B": 3}
    assert record.state(1).running == ("A", "B")
    assert record.state(1).waiting == ("A.2", "A.3", "A.4")
    assert list(record.report(1).emitted) == ["A", "A.2", "A.3", "A.4", "B"]
    assert all(len({*state.running}) <= 2 for state in record.states)
    assert [e.blocks for e in record.events("forked")] == [()] * 3
    assert [record.positions(id) for id in ("A", "A.2", "A.3", "A.4")] == [0, 7, 7, 7]
    assert all(record.finish(id) == "length" for id in ("A", "A.2", "A.3", "A.4", "B"))
    assert [record.count("preempted", id) for id in ("A.2", "A.3", "A.4")] == [0, 0, 0]


def test_no_sample_runs_and_starves() -> None:
    """Two tokens a step and four samples: whoever is running is given one in every step."""
    config = pool(12, step_tokens=2)
    record = run(config, [ask("A", 4, 6, n=4, **SEEDED)])
    for step in range(3, record.steps + 1):
        before = record.state(step - 1)
        assert set(before.running) <= set(record.report(step).scheduled), step
    assert all(record.finish(id) == "length" for id in ("A", "A.2", "A.3", "A.4"))


def test_a_waiting_sample_finds_its_prompt_in_the_prefix_cache() -> None:
    config = pool(12, max_running=1, prefix_cache=True)
    record = run(config, [ask("A", 9, 3, n=2, **SEEDED)])
    assert record.events("admitted", "A.2")[0].from_cache == 8
    assert record.positions("A.2") == 1  # the ninth, which lay in A's last block


def test_a_sample_without_a_place_may_end_at_once() -> None:
    record = run(pool(8, max_running=1), [ask("A", 7, 1, n=3)])
    assert record.report(1).finished == ("A", "A.2", "A.3")
    assert record.free[-1] == 8


# Actions reach all samples that are left.


@pytest.mark.parametrize("method", ["recompute", "swap"])
def test_preempt_reaches_all_samples(method: str) -> None:
    requests = [ask("A", 6, 6, n=3), ask("B", 3, 9)]
    record = run(pool(16), requests, [act(3, "preempt", "A", method)])
    assert [id for _, id, _ in record.preempted] == ["A.3", "A.2", "A"]
    assert record.state(3).waiting == ("A", "A.2", "A.3")
    assert record.state(3).running == ("B",)


def test_pause_and_resume_reach_all_samples() -> None:
    requests = [ask("A", 6, 6, n=3), ask("B", 3, 9)]
    record = run(pool(16), requests, [act(3, "pause", "A"), act(5, "resume", "A")])
    assert record.state(3).paused == record.state(4).paused == ("A", "A.2", "A.3")
    assert record.report(4).scheduled == {"B": 1}
    assert set(record.report(5).scheduled) == {"A", "A.2", "A.3", "B"}


def test_an_action_reaches_the_samples_that_are_left() -> None:
    """A has stopped by itself; what the scenario asks of it is done to A.2."""
    whole = run(pool(16), [ask("A", 6, 9, n=2)])
    requests = [ask("A", 6, 9, n=2, stop=(whole.outputs("A")[0],)), ask("B", 3, 9)]
    actions = [act(3, "pause", "A"), act(4, "resume", "A"), act(5, "preempt", "A")]
    record = run(pool(16), requests, actions)
    assert [(e.action, e.why) for e in record.events("action_taken")] == [
        ("pause", "taken"), ("resume", "taken"), ("preempt", "taken"),
    ]  # fmt: skip
    assert record.state(3).paused == ("A.2",)
    assert [id for _, id, _ in record.preempted] == ["A.2"]


def test_the_next_victims_are_all_samples_each_once() -> None:
    """Pool of 6: A and A.2 hold 3 blocks, B and C 2 each less; C, the newest, would be paused."""
    requests = [ask("A", 7, 9, n=2), ask("B", 4, 9), ask("C", 4, 3)]
    record = run(pool(7), requests, [act(2, "next_victim", "A")])
    named = [(victim.id, victim.why) for _, victim in record.victims if victim.why == "action"]
    assert named[0] == ("A.2", "action")
    assert len({id for id, _ in named}) == len(named) <= 2
