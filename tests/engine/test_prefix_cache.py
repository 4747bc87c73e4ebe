"""The prefix cache: when a block can be shared, what is looked up, what ends an entry."""

from __future__ import annotations

from typing import Any

import pytest

from kvlab.engine.config import EngineConfig
from tests.engine.harness import (
    MakeRunner,
    Record,
    act,
    ask,
    cells,
    model_runner,
    own_tokens,
    pool,
    run,
)

SAME = own_tokens("same", 12)


def cached_pool(num_blocks: int = 12, **settings: Any) -> EngineConfig:
    return pool(num_blocks, prefix_cache=True, **settings)


@pytest.fixture(params=["cells", "model"])
def on(request: pytest.FixtureRequest) -> MakeRunner:
    return cells if request.param == "cells" else model_runner


def from_cache(record: Record) -> dict[str, int]:
    return {id: record.from_cache(id) for id in record.engine.requests}


def test_a_full_block_is_shareable_in_the_very_step(on: MakeRunner) -> None:
    """A and B arrive together: B's first two blocks are A's, whose tokens the step processes."""
    config = cached_pool()
    requests = [ask("A", (*SAME[:8], 1), 3), ask("B", (*SAME[:8], 2, 3), 3)]
    record = run(config, requests, runner=on(config))
    assert record.report(1).admitted == ("A", "B")
    assert record.report(1).scheduled == {"A": 9, "B": 2}
    assert record.state(1).blocks == {"A": (0, 1, 2), "B": (0, 1, 3)}
    assert record.report(1).tokens_from_cache == 8
    assert from_cache(record) == {"A": 0, "B": 8}


def test_a_partial_block_is_not_shared() -> None:
    requests = [ask("A", SAME[:7], 3), ask("B", SAME[:7], 3)]
    record = run(cached_pool(), requests)
    assert record.state(1).blocks == {"A": (0, 1), "B": (0, 2)}


def test_at_least_one_token_is_always_processed(on: MakeRunner) -> None:
    """B's whole prompt of 8 is in A's two full blocks: only the first is taken, (8 - 1) // 4."""
    config = cached_pool()
    record = run(config, [ask("A", SAME[:8], 3), ask("B", SAME[:8], 3)], runner=on(config))
    assert record.report(1).scheduled == {"A": 8, "B": 4}
    assert record.state(1).blocks == {"A": (0, 1), "B": (0, 2)}
    assert record.outputs("A") == record.outputs("B")


def test_lookup_ends_at_the_first_miss() -> None:
    """B's second block differs, its third is equal to A's: a prefix is all that is before it, too."""
    other = (*SAME[:4], 0, 0, 0, 0, *SAME[8:12], 5)
    record = run(cached_pool(), [ask("A", (*SAME, 5), 2), ask("B", other, 2)])
    assert from_cache(record) == {"A": 0, "B": 4}


def test_the_hash_is_of_all_tokens_before() -> None:
    """The second block of both is the same, the first is not: nothing is shared."""
    requests = [ask("A", (1, 1, 1, 1, *SAME[:5]), 2), ask("B", (2, 2, 2, 2, *SAME[:5]), 2)]
    record = run(cached_pool(), requests)
    assert from_cache(record) == {"A": 0, "B": 0}


def test_outputs_are_shared_too() -> None:
    """A's block of its last prompt tokens and first outputs serves B, whose prompt continues it."""
    outputs = run(cached_pool(), [ask("A", SAME[:6], 6)]).outputs("A")
    longer = (*SAME[:6], *outputs[:4])
    record = run(cached_pool(), [ask("A", SAME[:6], 6), ask("B", longer, 2, arrival_step=6)])
    assert from_cache(record)["B"] == 8


def test_lookup_is_at_admission_only_and_equal_blocks_stay_apart() -> None:
    """Chunked, A and B run side by side: B takes A's first block and is then a block ahead of it; A
    fills its second with the same tokens, and both blocks stay."""
    requests = [ask("A", SAME[:9], 2), ask("B", SAME[:9], 2)]
    record = run(cached_pool(chunk_tokens=4), requests)
    assert record.state(1).blocks == {"A": (0,), "B": (0, 1)}
    assert record.state(2).blocks == {"A": (0, 2), "B": (0, 1, 3)}


def test_freed_blocks_stay_shareable() -> None:
    record = run(cached_pool(), [ask("A", SAME[:9], 2), ask("B", SAME[:9], 2, arrival_step=5)])
    assert record.state(2).free == 12
    assert record.state(2).cached == 2  # the third block was never full
    assert from_cache(record)["B"] == 8
    assert record.report(6).scheduled == {"B": 1}
    assert record.state(6).blocks["B"][:2] == (0, 1)  # in other places of the free list


def test_taking_a_free_cached_block_ends_its_entry() -> None:
    """Pool 3: A's two cached blocks are taken by C, so that B finds nothing."""
    requests = [
        ask("A", SAME[:9], 1),
        ask("C", 12, 1, arrival_step=1),
        ask("B", SAME[:9], 2, arrival_step=2),
    ]
    record = run(cached_pool(3), requests)
    assert record.state(1).cached == 2
    assert record.state(2).cached == 3  # C's own
    assert from_cache(record)["B"] == 0
    assert record.finish("B") == "length"


def test_hits_on_the_free_list_count_as_blocks_to_take() -> None:
    """Pool 3, all cached or free: B takes its two hits and one more, 3 of 3."""
    requests = [ask("A", SAME[:9], 1), ask("B", SAME[:9], 2, arrival_step=1)]
    record = run(cached_pool(3), requests)
    assert record.report(2).admitted == ("B",)
    assert record.state(2).free == 0


def test_off_by_default() -> None:
    record = run(pool(12), [ask("A", SAME[:9], 2), ask("B", SAME[:9], 2)])
    assert from_cache(record) == {"A": 0, "B": 0}
    assert {state.cached for state in record.states} == {0}


# Resumption.


def test_a_resume_uses_what_is_cached_and_is_shorter(on: MakeRunner) -> None:
    """B(7) has a history of 9 after two outputs and 8 positions, two full blocks. Preempted by action
    in step 3 of a large pool it comes back in step 4: (9 - 1) // 4 = 2 hits, one token to process
    instead of nine."""
    requests = [ask("A", 3, 9), ask("B", 7, 6)]
    plain_config, config = pool(12), cached_pool(12)
    plain = run(plain_config, requests, [act(3, "preempt", "B")], on(plain_config))
    record = run(config, requests, [act(3, "preempt", "B")], on(config))
    assert plain.report(4).scheduled["B"] == 9
    assert record.report(4).scheduled["B"] == 1
    assert (plain.recomputed, record.recomputed) == (8, 0)
    assert record.from_cache("B") == 8
    (resumed,) = record.events("resumed")
    assert (resumed.from_cache, resumed.kv, resumed.rebuild) == (8, 8, 0)


def test_hits_of_a_resume_are_below_the_history() -> None:
    """For every position at which B is preempted: hits <= history - 1, in whole blocks."""
    for step in range(2, 10):
        record = run(cached_pool(12), [ask("B", 7, 9)], [act(step, "preempt", "B")])
        (resumed,) = record.events("resumed")
        assert resumed.from_cache == (resumed.history - 1) // 4 * 4
        assert record.report(step + 1).scheduled["B"] == resumed.history - resumed.from_cache
        assert record.recomputed == resumed.history - 1 - resumed.from_cache


def test_under_pressure_only_what_was_not_taken_is_found() -> None:
    """The story with the cache on: A took P2, B's first block; so P3, its second, is of no use."""
    record = run(pool(prefix_cache=True), [ask("A", 7, 6), ask("B", 7, 4)])
    assert record.preempted == [(3, "B", "recompute")]
    assert from_cache(record)["B"] == 0
    assert record.recomputed == 8


def test_tail_first_keeps_prefixes_useful_longer() -> None:
    """The same run with the tail released first: A takes P3, and B finds its first block again."""
    record = run(pool(prefix_cache=True, free_order="tail_first"), [ask("A", 7, 6), ask("B", 7, 4)])
    assert from_cache(record)["B"] == 4
    assert record.recomputed == 4


# What must not be found.


def test_a_victims_unwritten_block_is_not_found() -> None:
    """pause_only, chunks of 8: in step 2 L is given its third and fourth block, H finds 1 free block
    of the 2 it needs, and L is paused before it has written. C, which starts as L does, may use only
    L's first two blocks, so that it needs 2 more and has to wait."""
    prompt = own_tokens("same", 16)
    config = cached_pool(
        7, method="pause_only", chunk_tokens=8, victim="oldest", admission="first_chunk"
    )
    requests = [
        ask("L", prompt, 2),
        ask("H", 16, 1),
        ask("C", (*prompt[:12], 0), 2, arrival_step=1),
    ]
    record = run(config, requests, [act(4, "abort", "L")])
    assert record.state(2).paused == ("L",)
    assert record.report(2).scheduled == {}
    assert [(event.id, event.needs) for event in record.events("kept_waiting", step=2)] == [
        ("C", 2)
    ]
    assert record.finish("H") == record.finish("C") == "length"


def test_restored_blocks_are_shareable_again() -> None:
    requests = [ask("A", SAME[:9], 9), ask("B", (*SAME[:9], 1), 2, arrival_step=5)]
    record = run(cached_pool(12, method="swap"), requests, [act(3, "preempt", "A")])
    assert record.preempted == [(3, "A", "swap")]
    assert from_cache(record)["B"] == 8


@pytest.mark.parametrize("rate", [None, 1])
def test_swap_leaves_shared_blocks_where_they_are(rate: int | None) -> None:
    """B shares two blocks with A: only its third goes to the host pool and comes back."""
    requests = [ask("A", SAME[:9], 9), ask("B", (*SAME[:8], 1, 2), 6)]
    config = cached_pool(12, method="swap", copy_blocks_per_step=rate)
    record = run(config, requests, [act(3, "preempt", "B")])
    ((_, victim),) = record.victims
    assert (victim.reclaimable, victim.blocks) == (1, 3)
    assert record.swapped == (1, 1)
    assert record.recomputed == 0
