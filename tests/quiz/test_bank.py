"""The quiz's right answers are those worked out on paper; its options never coincide."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from kvlab.course.quiz.bank import CONSTRUCTS, FORMS, Shortage, form
from kvlab.errors import BadInput
from kvlab.trace.speech import Speech


def on_paper(construct: str, of: Shortage) -> int:
    """The answer without an engine: KV lags the history by one; a block more for the next input."""
    prompt = of.size * of.held - of.sent + 1
    history = prompt + of.sent
    return {
        "blocks_held": of.held + 1,
        "kv_lags": history - 1,
        "without_newcomers": 1,
        "skipped": 0,
        "released": of.held - 1,
        "history": history,
        "computed_again": history,
        "next_output": of.sent,
        "moved": history - 1,
        "processed_after_swap": 1,
        "blocks_to_return": of.held + 1,
        "gap": of.outputs
        + 1
        - of.sent,  # A's last output is in step `outputs`; B's first in the next
    }[construct]


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_the_runs_say_what_paper_says(construct: str) -> None:
    rng = Random(7)
    for _ in range(20):
        of = Shortage.drawn(rng)
        values, right, wrong = CONSTRUCTS[construct](of)
        assert right == on_paper(construct, of), (of, values)
        assert right not in wrong.values() or construct == "kv_lags", of


def test_every_question_of_fifty_seeds_has_four_options_and_one_is_right() -> None:
    places: Counter[int] = Counter()
    for seed in range(1, 26):
        for name in FORMS:
            items = form(name, seed)
            assert [item.construct for item in items] == list(CONSTRUCTS)
            for item in items:
                assert len(set(item.options)) == 4
                assert set(item.options) == {item.right, *item.misconceptions}
                places[item.options.index(item.right)] += 1
    assert set(places) == {0, 1, 2, 3}
    assert max(places.values()) < 2 * min(places.values())


def test_the_forms_ask_the_same_with_other_numbers_and_a_seed_is_a_form() -> None:
    one, other = form("A", 3), form("B", 3)
    assert [item.values for item in one] != [item.values for item in other]
    assert form("A", 3) == one
    assert form("A", 4) != one


@pytest.mark.parametrize("language", ["en", "de"])
def test_every_misconception_is_explained(language: str) -> None:
    speech = Speech(language)
    kinds = {kind for item in form("A") for kind in item.misconceptions.values()}
    assert set(speech.text("quiz.why")) == kinds
    assert set(speech.text("quiz.items")) == set(CONSTRUCTS)


@pytest.mark.parametrize(("name", "seed"), [("C", 1), ("", 1), ("A", -1), ("A", 10**9)])
def test_another_form_or_seed_is_refused(name: str, seed: int) -> None:
    with pytest.raises(BadInput, match="quiz: --"):
        form(name, seed)
