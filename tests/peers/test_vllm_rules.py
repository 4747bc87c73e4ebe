"""`preset: vllm_v1` does what vLLM's V1 engine did, block ids included.

The source is one recorded run of vLLM 0.32.0 (CPU, V1 engine, fp32, prefix cache off): two requests
of 31 and 32 prompt tokens and 150 outputs each, on 8 usable blocks of 32 slots, at most 256 tokens
and 8 requests a step. Its steps are restated below by the moments at which something changed; ids
are vLLM's less one, because its block 0 is a dummy. State is that right after scheduling.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kvlab.engine.block_pool import BlockPool
from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import scenario_from

BLOCKS, BLOCK_SIZE = 8, 32


class Change(NamedTuple):
    """From this step on (vLLM counts from 0) the free blocks and the tables are these."""

    step: int
    free: int
    r0: list[int]
    r1: list[int]


RECORDED = (
    Change(0, 6, [0], [1]),
    Change(1, 5, [0], [1, 2]),
    Change(2, 4, [0, 3], [1, 2]),
    Change(33, 3, [0, 3], [1, 2, 4]),
    Change(34, 2, [0, 3, 5], [1, 2, 4]),
    Change(65, 1, [0, 3, 5], [1, 2, 4, 6]),
    Change(66, 0, [0, 3, 5, 7], [1, 2, 4, 6]),
    Change(97, 4, [0, 3, 5, 7], []),  # r1 needs a fifth block, is the last of running, and goes
    Change(98, 3, [0, 3, 5, 7, 6], []),  # r0 gets the block that r1's table ended with
    Change(130, 2, [0, 3, 5, 7, 6, 4], []),
    Change(150, 3, [], [4, 6, 7, 5, 3]),  # r0 has finished: r1 is computed again in one pass
    Change(182, 2, [], [4, 6, 7, 5, 3, 0]),
)
STEPS = 203
PREEMPTED, RESUMED, R0_ENDS, R1_ENDS = 97, 150, 149, 202
REPLAY = 129  # r1's 32 prompt tokens and the 97 outputs that it had


def recorded_at(step: int) -> Change:
    return [change for change in RECORDED if change.step <= step][-1]


def recorded_schedule(step: int) -> dict[str, int]:
    """Tokens of each request in a step."""
    if step == 0:
        return {"r0": 31, "r1": 32}
    if step < PREEMPTED:
        return {"r0": 1, "r1": 1}
    if step < RESUMED:
        return {"r0": 1}
    return {"r1": REPLAY if step == RESUMED else 1}


@pytest.fixture(scope="module")
def summary() -> dict[str, Any]:
    """The same requests here, on lengths alone."""
    document = {
        "name": "vllm-two",
        "model": None,
        "engine": {
            "preset": "vllm_v1",
            "num_blocks": BLOCKS,
            "block_size": BLOCK_SIZE,
            "host_blocks": 0,
            "method": "recompute",
            "prefix_cache": False,
            "step_tokens": 256,
            "max_running": 8,
        },
        "requests": [
            {"id": "r0", "prompt": list(range(31)), "max_tokens": 150},
            {"id": "r1", "prompt": list(range(100, 132)), "max_tokens": 150},
        ],
    }
    return run_scenario(scenario_from(document, Path(), "vllm-two")).summary


def test_the_restated_run_adds_up() -> None:
    """The table below is held against itself: blocks are free or held, and tables fit lengths."""
    for step in range(STEPS):
        change = recorded_at(step)
        held = [*change.r0, *change.r1]
        assert len(set(held)) == len(held) == BLOCKS - change.free
    for id, prompt, replayed in (("r0", 31, 0), ("r1", 32, REPLAY - 1)):
        rows = sum(recorded_schedule(step).get(id, 0) for step in range(STEPS))
        assert rows == prompt + 149 + replayed


def test_every_step_schedules_the_same_tokens(summary: dict[str, Any]) -> None:
    assert [entry["scheduled"] for entry in summary["per_step"]] == [
        recorded_schedule(step) for step in range(STEPS)
    ]


def test_every_step_has_the_same_free_count_and_physical_blocks(summary: dict[str, Any]) -> None:
    """Ours is the state after the step: a request that ends in it has given its blocks back."""
    for step, entry in enumerate(summary["per_step"]):
        change = recorded_at(step)
        tables = {"r0": change.r0, "r1": change.r1}
        free = change.free
        for id, end in (("r0", R0_ENDS), ("r1", R1_ENDS)):
            if step == end:
                free += len(tables.pop(id))
        assert entry["blocks"] == {id: table for id, table in tables.items() if table}, step
        assert entry["free"] == free, step


def test_the_one_preemption_is_where_it_was(summary: dict[str, Any]) -> None:
    victims = {
        step: [victim["id"] for victim in entry["preempted"]]
        for step, entry in enumerate(summary["per_step"])
        if entry["preempted"]
    }
    assert victims == {PREEMPTED: ["r1"]}
    for step, entry in enumerate(summary["per_step"]):
        waits = PREEMPTED <= step < RESUMED
        assert entry["waiting"] == (["r1"] if waits else [])
        assert entry["resumed"] == (["r1"] if step == RESUMED else [])
        running = [] if step >= R0_ENDS else ["r0"]
        assert entry["running"] == running + ([] if waits or step == R1_ENDS else ["r1"])
    assert summary["preemptions"] == 1
    assert [len(summary["requests"][id]["output"]) for id in ("r0", "r1")] == [150, 150]


# The free list alone.


def pool_with(free: list[int], table: list[int], hashed: set[int]) -> BlockPool:
    """A pool of the blocks 0 .. n - 1 whose free list is `free` and in which `table` is held.

    A last-in first-out list gives back what it is given: releasing the table of all blocks in the
    wanted order leaves any order on it.
    """
    pool = BlockPool(len(free) + len(table), "vllm_v1")
    everything = pool.allocate(pool.num_blocks)
    assert sorted(everything) == sorted([*free, *table])
    pool.release(list(reversed(free)))  # released in reverse: `free` is the list's order
    for block in hashed:
        pool.remember(block, f"prefix of {block}".encode())
    return pool


def drained(pool: BlockPool) -> list[int]:
    return [pool.allocate(1)[0] for _ in range(pool.free)]


def test_blocks_without_a_hash_go_to_the_front_as_one_batch() -> None:
    """Free [5, 7, 3, 2] and release of [1, 8, 6, 4] give [4, 6, 8, 1, 5, 7, 3, 2].

    The blocks of the example are 1 .. 8; block 0 is held by nobody who matters here.
    """
    pool = pool_with([5, 7, 3, 2], [1, 8, 6, 4, 0], set())
    assert pool.release([1, 8, 6, 4]) == [1, 8, 6, 4]
    assert drained(pool) == [4, 6, 8, 1, 5, 7, 3, 2]


def test_blocks_with_a_hash_go_to_the_back() -> None:
    """1 and 8 are full blocks with a hash, 6 and 4 are not: front 4 6, back 8 1."""
    pool = pool_with([5, 7, 3, 2], [1, 8, 6, 4, 0], {1, 8})
    pool.release([1, 8, 6, 4])
    assert pool.cached == 2
    assert drained(pool) == [4, 6, 5, 7, 3, 2, 8, 1]


def test_taking_a_hashed_block_deletes_its_hash() -> None:
    pool = pool_with([2], [1, 0], {1})
    pool.release([1])
    assert pool.find(b"prefix of 1") == 1
    assert drained(pool) == [2, 1]
    assert pool.find(b"prefix of 1") is None


def test_a_block_that_others_share_stays_where_it_is() -> None:
    pool = pool_with([3], [1, 2, 0], {1})
    pool.share([1])
    assert pool.release([1, 2]) == [2]
    assert drained(pool) == [2, 3]


def test_equal_hashes_are_not_merged_and_the_first_stays() -> None:
    pool = BlockPool(3, "vllm_v1")
    first, second, _ = pool.allocate(3)
    pool.remember(first, b"same")
    pool.remember(second, b"same")
    assert pool.find(b"same") == first
    pool.release([first])
    assert pool.find(b"same") == first  # free, and still to be found
    pool.allocate(1)
    assert pool.find(b"same") == second


@pytest.mark.parametrize("seed", range(5))
def test_random_releases_against_the_rule_written_out(seed: int) -> None:
    """With a plain list: reversed; without a hash to the front as one batch, with one back."""
    draw = random.Random(seed)
    pool, free = BlockPool(12, "vllm_v1"), list(range(12))
    tables: list[list[int]] = []
    hashed: set[int] = set()
    for _ in range(300):
        count = draw.randint(1, 4)
        if count <= len(free) and draw.random() < 0.5:
            taken, free = free[:count], free[count:]
            assert pool.allocate(count) == taken
            hashed -= set(taken)
            tables.append(taken)
            for block in taken:
                if draw.random() < 0.5:
                    hashed.add(block)
                    pool.remember(block, str(block).encode())
        elif tables:
            table = tables.pop(draw.randrange(len(tables)))
            pool.release(table)
            backwards = table[::-1]
            front = [block for block in backwards if block not in hashed]
            free = front + free + [block for block in backwards if block in hashed]
        assert pool.free == len(free)
    assert drained(pool) == free
