"""The five figures as chapters: what notebooks and the dashboard say and ask about each.

No answer stands here: questions and answers are filled in from a trace, so that they stay true when
the run is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvlab.course.question import Question
from kvlab.course.questions import question
from kvlab.errors import BadInput
from kvlab.trace.document import Trace
from kvlab.trace.facts import first, happened, longest_gap
from kvlab.trace.speech import ENGLISH, Speech

METHODS = ("recompute", "swap")


@dataclass(frozen=True, slots=True)
class ChapterChange:
    """One thing to change: scenario settings, and what of the two runs says what came of it."""

    settings: tuple[str, ...]
    measures: tuple[str, ...]
    """Names in `MEASURES`, some with a request's id: `recomputed`, `waiting B`."""
    preempt_step: int | None = None
    """Another step for the scenario's own preemption."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """One figure of the story."""

    number: int
    scenario: str
    asks: str
    """The kind of the question to answer before the run is shown (kvlab.course.question_kinds)."""
    change: ChapterChange
    preempts_by_action: tuple[int, str] | None = None
    """(step, request) where the scenario itself asks for the preemption."""

    def text(self, what: str, speech: Speech = ENGLISH) -> str:
        """What the catalogue says of the chapter: short (its name in a menu), title, question, why (it
        in one sentence), change (what is changed) and look (the question to the change)."""
        return speech(f"chapters.{self.scenario}.{what}")

    def to_predict(self, trace: Trace) -> Question:
        """What to predict of a run of this chapter; options and answer are whole numbers.

        Raises BadInput for a run that was changed so much that it makes no sense there.
        """
        return question(trace, self.asks)

    def heading(self, speech: Speech = ENGLISH) -> str:
        """`Figure 2 · Skipping is not releasing`."""
        return speech("story.figure", number=self.number, title=self.text("title", speech))

    def watch(self, speech: Speech = ENGLISH) -> list[str]:
        """What to watch while stepping through."""
        found: list[str] = speech.text(f"chapters.{self.scenario}.watch")
        return found

    def settings_for(self, method: str, changed: bool = False) -> tuple[str, ...]:
        """Scenario settings that make the paused request come back by `method`, and with
        `changed` those of the chapter's one change.

        Raises BadInput for a method that the chapters do not have.
        """
        if method not in METHODS:
            raise BadInput(f"method {method!r}: choose recompute or swap.")
        settings = (f"engine.method={method}",)
        if self.preempts_by_action:
            step, id = self.preempts_by_action
            step = (changed and self.change.preempt_step) or step
            settings = (f"actions=[{{step: {step}, preempt: {id}, method: {method}}}]",)
        return (*settings, *self.change.settings) if changed else settings


def own_method(chapter: Chapter, trace: Trace) -> str:
    """The method of a chapter's recorded run."""
    if happened(trace, "preempted"):
        return str(first(trace, "preempted")["method"])
    return str(trace.document["scenario"]["engine"]["method"])


def chapter(which: int | str) -> Chapter:
    """A chapter by its number or its scenario's name. Raises BadInput for another one."""
    for one in CHAPTERS:
        if which in (one.number, one.scenario):
            return one
    raise BadInput(f"there is no chapter {which!r}: choose 1 to {len(CHAPTERS)}.")


# What came of a change: numbers of both runs, and no cause that was not looked for.


MEASURES: dict[str, Callable[[Trace, str], int]] = {
    "unmet": lambda trace, _: sum(event["kind"] == "block_needed" for event in trace.events),
    "recomputed": lambda trace, _: int(trace.summary["tokens_recomputed"]),
    "blocks_moved": lambda trace, _: int(trace.summary["blocks_swapped_out"]),
    "bytes_moved": lambda trace, _: int(trace.summary["bytes_swapped_out"]),
    "gap": lambda trace, id: longest_gap(trace, id).steps,
    "waiting": lambda trace, id: longest_gap(trace, id).waiting,
    "recovery": lambda trace, id: longest_gap(trace, id).recovery,
}


def outcome_of(change: ChapterChange, before: Trace, after: Trace, speech: Speech = ENGLISH) -> str:
    """Each measure of a change in both runs: `Tokens computed again: 8, as before the change.`"""
    sentences = []
    for measure in change.measures:
        name, _, id = measure.partition(" ")
        then, now = (MEASURES[name](trace, id) for trace in (before, after))
        what = speech(f"told.{name}", id=id)
        values = {"now": speech.number(now), "then": speech.number(then)}
        text = speech("told.same" if now == then else "told.now_then", what=what, **values)
        sentences.append(f"{text[0].upper()}{text[1:]}.")
    return " ".join(sentences)


CHAPTERS: tuple[Chapter, ...] = (
    Chapter(
        1,
        "figure-1",
        "slots_left",
        ChapterChange(("engine.num_blocks=6",), ("unmet",)),
    ),
    Chapter(
        2,
        "figure-2",
        "free_after_skip",
        ChapterChange((), ("gap A",), preempt_step=6),
        preempts_by_action=(4, "B"),
    ),
    Chapter(
        3,
        "figure-3",
        "tokens_on_return",
        ChapterChange(
            ("engine.block_size=2", "engine.num_blocks=8"), ("recomputed", "blocks_moved")
        ),
    ),
    Chapter(
        4,
        "figure-4",
        "tokens_on_return",
        ChapterChange(("engine.host_blocks=1",), ("recomputed", "bytes_moved")),
    ),
    Chapter(
        5,
        "figure-5",
        "gap_of_the_preempted",
        ChapterChange(("requests.A.max_tokens=4",), ("waiting B", "recovery B")),
    ),
)
