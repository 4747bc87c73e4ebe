"""The differences of two runs, against numbers that were worked out on paper.

Without a change (figures.md): B is paused in step 3, 8 tokens are computed again, its gaps are 1, 5,
1, it ends in step 8 and A in step 6. With A named as the victim: A is paused instead, 8 tokens again,
gaps of A 1, 3, 1, 1, 1, it ends in step 8 and B in step 4. With swap from step 3 on: none again, 2
blocks out and 2 back.
"""

from __future__ import annotations

from functools import cache

import pytest

from kvlab.course.record import recorded
from kvlab.runs.fork import Fork, scenario_of
from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import load_scenario
from kvlab.trace.differences import difference_table, differences, seconds_to
from kvlab.trace.document import Trace
from kvlab.trace.narration import languages, load_words


@cache
def forked(setting: str, value: str | int, step: int = 3) -> Trace:
    """The story with a change, on the scheduler alone: what is compared needs no model."""
    return run_scenario(Fork(step, setting, value).scenario(scenario_of(story()))).trace


@cache
def story() -> Trace:
    stand_ins = [f"requests.{id}.prompt=[1,2,3,4,5,6,{n}]" for n, id in enumerate("AB")]
    return run_scenario(load_scenario("figure-5", ["model=null", *stand_ins])).trace


def numbers(other: Trace) -> dict[tuple[str, str | None], tuple[int | None, int | None]]:
    return {
        (found.what, found.id): (found.one, found.other) for found in differences(story(), other)
    }


def test_another_victim() -> None:
    assert numbers(forked("next_victim", "A")) == {
        ("recomputed", None): (8, 8),
        ("blocks_moved", None): (0, 0),
        ("preemptions", None): (1, 1),
        ("steps", None): (8, 8),
        ("outputs", None): (10, 10),
        ("gap", "A"): (1, 3),
        ("finish", "A"): (6, 8),
        ("gap", "B"): (5, 1),
        ("finish", "B"): (8, 4),
    }


def test_another_method() -> None:
    found = numbers(forked("method", "swap"))
    assert found["recomputed", None] == (8, 0)
    assert found["blocks_moved", None] == (0, 4)
    assert found["gap", "B"] == (5, 5)


def test_bytes_are_named_where_a_model_has_some() -> None:
    """4 blocks of 4 slots move; K and V of every layer and head, 4 bytes a value."""
    one, other = recorded("figure-5"), recorded("figure-4")
    model = one.document["model"]
    values = 2 * model["layers"] * model["kv_heads"] * model["head_dim"]
    found = {d.what: (d.one, d.other) for d in differences(one, other)}
    assert found["bytes_moved"] == (0, 4 * 4 * values * 4)


def test_a_plain_sentence_for_every_row() -> None:
    table = difference_table(story(), forked("next_victim", "A"), load_words())
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["Longest gap of A"] == (
        "1 step",
        "3 steps",
        "The user of A waits 2 steps longer in the longest gap.",
    )
    assert rows["End of B"][2] == "B ends 4 steps earlier."
    seconds = seconds_to(story().steps, 8)
    assert rows["End of B"][0] == f"step 8, {seconds:.3f} s"
    assert rows["Tokens computed again"] == ("8 tokens", "8 tokens", "No difference.")
    assert rows["Tokens put out"][2] == "Every request gets the same tokens in both runs."
    first = rows["First event that differs"]
    assert first[0].startswith("A needs a block and too few are free, so B is paused")
    assert first[1].startswith("A needs a block and too few are free. It is itself the request")
    assert first[2] == "The runs part in step 3."
    assert "measured" in table.note


def test_a_change_without_consequence_makes_no_difference() -> None:
    table = difference_table(story(), forked("method", "swap", step=4), load_words())
    assert table.rows[0][3].startswith("None")
    assert {row[3] for row in table.rows[1:]} == {
        "No difference.",
        "Every request gets the same tokens in both runs.",
        "A ends in the same step.",
        "B ends in the same step.",
    }


def test_runs_that_end_otherwise_say_how() -> None:
    """pause_only in step 3 leaves both without a block: 2 tokens each, and an end for want of KV."""
    table = difference_table(story(), forked("method", "pause_only"), load_words())
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["End of A"][1].endswith("no KV space")
    assert rows["Tokens put out"] == (
        "10 output tokens",
        "4 output tokens",
        "Other tokens, or another number of them: A and B.",
    )
    assert rows["Length of the run"][2] == "The run takes 5 steps less."


@pytest.mark.parametrize("language", languages())
def test_every_language_has_every_row(language: str) -> None:
    words = load_words(language)
    for other in (
        forked("method", "swap"),
        forked("num_blocks", 6),
        forked("method", "pause_only"),
    ):
        for one, two in ((story(), other), (other, story())):
            for row in difference_table(one, two, words).rows:
                assert len(row) == 4
                assert all(text and "{" not in text for text in row), row


def test_of_many_requests_the_most_changed_are_listed() -> None:
    requests = (
        "[" + ",".join(f"{{id: R{n}, prompt: [1,{n}], max_tokens: 9}}" for n in range(20)) + "]"
    )
    base = run_scenario(
        load_scenario("figure-5", ["model=null", "engine.num_blocks=12", f"requests={requests}"])
    ).trace
    other = run_scenario(Fork(1, "victim", "oldest").scenario(scenario_of(base))).trace
    named = {found.id for found in differences(base, other) if found.id}
    assert len(named) == 8
    table = difference_table(base, other, load_words())
    assert "12 further requests" in table.note
