"""The step table against the table of the article's run, written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from kvlab.runs.step_table import columns, heading, step_table, totals


def step(
    number: int,
    scheduled: dict[str, int],
    free: int,
    blocks: dict[str, list[int]],
    kv: dict[str, int],
    emitted: dict[str, list[int]],
    **more: Any,
) -> dict[str, Any]:
    empty: dict[str, Any] = {
        key: []
        for key in ("paused", "admitted", "resumed", "finished", "preempted", "stalled", "copies")
    }
    state = {"scheduled": scheduled, "free": free, "blocks": blocks, "kv": kv, "emitted": emitted}
    return {"step": number, **empty, "host_blocks": {}, **state, **more}


def request(output: list[int], text: str | None, gaps: list[int], **more: Any) -> dict[str, Any]:
    return {
        "output": output,
        "text": text,
        "finish_reason": "length",
        "message": None,
        "ttft_steps": 1,
        "gaps_steps": gaps,
        "waiting_steps": 0,
        "recovery_steps": 0,
        **more,
    }


@pytest.fixture
def story() -> dict[str, Any]:
    """figure-5: A and B in four blocks of four positions, B recomputed."""
    victim = {"id": "B", "method": "recompute", "reclaimable": 2, "blocks": 2, "why": "newest"}
    a = {"A": [0, 1, 2]}
    return {
        "scenario": "figure-5",
        "model": "story",
        "device": "cpu",
        "dtype": "float32",
        "seconds": 0.0123,
        "steps": 8,
        "per_step": [
            step(
                1,
                {"A": 7, "B": 7},
                0,
                {"A": [0, 1], "B": [2, 3]},
                {"A": 7, "B": 7},
                {"A": [10], "B": [20]},
                admitted=["A", "B"],
            ),
            step(
                2,
                {"A": 1, "B": 1},
                0,
                {"A": [0, 1], "B": [2, 3]},
                {"A": 8, "B": 8},
                {"A": [11], "B": [21]},
            ),
            step(3, {"A": 1}, 1, a, {"A": 9}, {"A": [12]}, preempted=[victim]),
            step(4, {"A": 1}, 1, a, {"A": 10}, {"A": [13]}),
            step(5, {"A": 1}, 1, a, {"A": 11}, {"A": [14]}),
            step(6, {"A": 1}, 4, {}, {}, {"A": [15]}, finished=["A"]),
            step(
                7,
                {"B": 9},
                1,
                {"B": [3, 0, 1]},
                {"B": 9},
                {"B": [22]},
                admitted=["B"],
                resumed=["B"],
            ),
            step(8, {"B": 1}, 4, {}, {}, {"B": [23]}, finished=["B"]),
        ],
        "preemptions": 1,
        "tokens_processed": 30,
        "tokens_recomputed": 8,
        "tokens_from_cache": 0,
        "blocks_swapped_out": 0,
        "blocks_swapped_in": 0,
        "bytes_swapped_out": 0,
        "bytes_swapped_in": 0,
        "requests": {
            "A": request(list(range(10, 16)), " behind the\nkitchen", [1, 1, 1, 1, 1]),
            "B": request(
                list(range(20, 24)), " near", [1, 5, 1], waiting_steps=4, recovery_steps=1
            ),
        },
    }


STORY = """\
figure-5
model story, float32 on cpu  8 steps in 0.012 s

step  scheduled  free  blocks            KV        delivered   what happened
   1  A 7  B 7      0  A P0 P1  B P2 P3  A 7  B 7  A x0  B x0  A, B admitted
   2  A 1  B 1      0  A P0 P1  B P2 P3  A 8  B 8  A x1  B x1
   3  A 1           1  A P0 P1 P2        A 9       A x2        B preempted (recompute), 2 freed
   4  A 1           1  A P0 P1 P2        A 10      A x3
   5  A 1           1  A P0 P1 P2        A 11      A x4
   6  A 1           4                              A x5        A finished
   7  B 9           1  B P3 P0 P1        B 9       B x2        B resumed
   8  B 1           4                              B x3        B finished

1 preemption, 30 tokens processed, 8 of them again

request  outputs  first in step  gaps       waited  recovery  end     text
A              6              1  1 1 1 1 1       0         0  length  " behind the\\nkitchen"
B              4              1  1 5 1           4         1  length  " near"
"""


def test_the_story_reads_as_in_the_article(story: dict[str, Any]):
    assert step_table(story) == STORY


def test_the_text_of_tokens_is_shown_beside_their_names(story: dict[str, Any]):
    table = step_table(story, token_text=lambda token: f" t{token}")
    assert 'A x0 " t10"' in table
    assert 'B x3 " t23"' in table


@pytest.mark.parametrize("width", [80, 90, 100])
def test_it_fits_the_page_and_no_request_is_torn_apart(story: dict[str, Any], width: int):
    table = step_table(story, width, token_text=lambda token: f" kitchen{token}")
    assert max(map(len, table.splitlines())) <= width
    assert 'A x5 " kitchen15"' in table
    assert "A P0 P1 P2" in table


def test_swapped_blocks_and_copies_are_shown(story: dict[str, Any]):
    kept = story["per_step"][2]
    kept["preempted"][0]["method"] = "swap"
    kept["host_blocks"] = {"B": [0, 1]}
    kept["copies"] = [{"id": "B", "direction": "out", "blocks": 2, "done": True}]
    back = story["per_step"][6]
    back["copies"] = [{"id": "B", "direction": "in", "blocks": 1, "done": False}]
    story |= {"blocks_swapped_out": 2, "bytes_swapped_out": 20480, "bytes_swapped_in": 20480}
    story |= {"blocks_swapped_in": 2, "tokens_processed": 22, "tokens_recomputed": 0}
    table = " ".join(step_table(story).split())
    assert "A P0 P1 P2 B H0 H1" in table
    assert "B preempted (swap), 2 freed; B copied out, 2" in table
    assert "B is being copied in, 1; B resumed" in table
    assert "2 blocks copied out (20,480 bytes), 2 blocks copied in (20,480 bytes)" in table


def test_a_pause_keeps_its_blocks_and_a_stall_says_what_is_needed(story: dict[str, Any]):
    third = story["per_step"][2]
    third |= {"preempted": [], "paused": ["B"], "scheduled": {}, "emitted": {}}
    third["stalled"] = [{"id": "A", "needs": 1, "why": "no block is free"}]
    story["per_step"][3]["paused"] = ["B"]
    table = " ".join(step_table(story).split())
    assert "B paused, keeps its blocks; A stalled, needs 1" in table
    assert table.count("B paused") == 1


def test_who_ends_without_all_outputs_is_not_called_finished(story: dict[str, Any]):
    story["requests"]["A"]["finish_reason"] = "kv_capacity"
    table = " ".join(step_table(story).split())
    assert "A ended (kv_capacity)" in table
    assert "A finished" not in table
    assert "B finished" in table


def test_a_shared_block_is_not_counted_as_freed(story: dict[str, Any]):
    story["per_step"][2]["preempted"][0] |= {"blocks": 3, "reclaimable": 1}
    assert "1 of 3 freed" in " ".join(step_table(story).split())


def test_stand_in_tokens_are_called_that(story: dict[str, Any]):
    assert "model story, float32 on cpu" in heading(story)
    story |= {"model": None, "dtype": "none", "device": "none"}
    assert "no model: scheduling only, the tokens are stand-ins" in heading(story)


def test_messages_of_requests_are_printed(story: dict[str, Any]):
    story["requests"]["B"] |= {"finish_reason": "rejected", "message": "needs 9 blocks of 4"}
    story["requests"]["B"] |= {"ttft_steps": None, "gaps_steps": [], "output": [], "text": None}
    table = step_table(story)
    assert "B: needs 9 blocks of 4" in table
    assert "rejected  -" in table


def test_long_runs_of_blocks_are_shortened(story: dict[str, Any]):
    story["per_step"][3]["blocks"] = {"A": [0, 1, 2, 3, 4, 9, 7, 8]}
    assert "A P0..P4 P9 P7 P8" in step_table(story)


def test_empty_columns_are_left_out():
    assert columns(("a", "b", "c"), [("1", "", "x"), ("22", "", "y")], 80) == "a   c\n1   x\n22  y"


def test_samples_that_ended_for_different_reasons_are_all_named() -> None:
    entry = {"output": [1], "finish_reason": "stop", "sample_reasons": ["stop", "aborted"]}
    assert "stop aborted" in totals(summary_with({"A": entry}))
    same = entry | {"sample_reasons": ["stop", "stop"]}
    assert "stop stop" not in totals(summary_with({"A": same}))


def summary_with(requests: dict[str, Any]) -> dict[str, Any]:
    return {"preemptions": 0, "tokens_processed": 1, "tokens_recomputed": 0, "requests": requests}
