"""One system of questions: the answers are the story's own numbers, stated by hand."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kvlab.course.question import Said, in_words
from kvlab.course.question_kinds import KINDS
from kvlab.course.questions import question, questions
from kvlab.course.record import recorded
from kvlab.errors import BadInput
from kvlab.trace.document import Trace
from kvlab.trace.narration import languages, load_words

ANSWERS = {
    ("figure-1", "slots_left"): ("1", ("0", "1", "2")),
    ("figure-2", "free_after_skip"): ("0", ("0", "1", "2")),
    ("figure-3", "tokens_on_return"): ("9", ("1", "8", "9")),
    ("figure-4", "tokens_on_return"): ("1", ("1", "8", "9")),
    ("figure-5", "gap_of_the_preempted"): ("5", ("1", "4", "5")),
    ("figure-5", "who_is_paused"): ("B", ("A", "B")),
    ("figure-5", "steps of waiting"): ("4", ()),
    ("figure-5", "steps of recovery"): ("1", ()),
    ("figure-3", "positions rebuilt"): ("8", ()),
    ("figure-3", "history while paused"): ("9", ()),
    ("figure-1", "slots filled"): ("16", ()),
    ("figure-1", "position without a place"): ("8", ()),
    ("figure-2", "free after the release"): ("2", ()),
    ("figure-4", "blocks copied out"): ("2", ()),
    ("figure-4", "blocks held after the return"): ("3", ()),
    ("figure-3", "tokens computed again"): ("8", ()),
    ("figure-3", "step of the pause"): ("3", ()),
}


@pytest.mark.parametrize(("name", "kind"), ANSWERS, ids=" ".join)
def test_the_storys_answers(name: str, kind: str) -> None:
    made = question(recorded(name), kind)
    assert (made.answer, made.options) == ANSWERS[name, kind]


def test_what_the_player_asks_of_the_story() -> None:
    """Who is paused, what becomes free, what is computed, what is sent; each before its event."""
    trace = recorded("figure-5")
    asked = questions(trace)
    assert [(one.ask, one.answer) for one in asked] == [
        ("who_is_paused", "B"),
        ("free_after", "2"),
        ("tokens_processed", "9"),
        ("tokens_sent", "x2"),
    ]
    kinds = [trace.events[one.at]["kind"] for one in asked]
    assert kinds == ["preempted", "block_released", "resumed", "token_delivered"]
    assert all(one.answer in one.options for one in asked)
    text = in_words(asked[0].text, trace, load_words())
    assert text == "A needs a block and no block is free. Which request is paused?"


@pytest.mark.parametrize("language", languages())
def test_every_kind_has_words_and_its_words_are_filled(language: str) -> None:
    words = load_words(language)
    runs = [recorded(f"figure-{number}") for number in range(1, 6)]
    for kind in KINDS:
        for trace in runs:
            try:
                made = question(trace, kind)
            except BadInput:
                continue
            for text in (made.text, made.look):
                assert text
                assert "{" not in in_words(text, trace, words)
            assert isinstance(made.text, Said)
            break
        else:
            raise AssertionError(f"{kind} makes sense in no figure")


def test_a_kind_that_there_is_not_and_one_without_sense() -> None:
    with pytest.raises(BadInput, match="there is no question 'what'"):
        question(recorded("figure-1"), "what")
    with pytest.raises(BadInput, match="swap_out_started happened"):
        question(recorded("figure-3"), "blocks copied out")


def with_lesson(name: str, **lesson: Any) -> Trace:
    document = copy.deepcopy(recorded(name).document)
    document["scenario"]["lesson"] = lesson
    return Trace(document)


def test_a_teachers_question_and_wording() -> None:
    own: list[Any] = [
        {"at": {"step": 6, "kind": "block_released"}, "ask": "Free?", "options": [1, 3],
         "answer": {"field": "free"}},
        {"at": {"step": 3, "kind": "preempted"}, "ask": "who_is_paused", "text": "Who?"},
        {"at": {"step": 99}, "ask": "free_after"},
        "nonsense",
    ]  # fmt: skip
    asked = questions(with_lesson("figure-5", questions=own, predict="lesson"))
    assert [(one.text, one.options, one.answer, one.own) for one in asked] == [
        ("Who?", ("A", "B"), "B", True),
        ("Free?", ("1", "3", "4"), "4", True),
    ]


def test_the_predictions_of_a_changed_run_are_its_own() -> None:
    """A pool that never runs out: nobody is paused, nothing is asked."""
    trace = with_lesson("figure-5")
    trace.document["events"][:] = [e for e in trace.events if e["kind"] != "preempted"]
    assert [one.ask for one in questions(trace)] == []
