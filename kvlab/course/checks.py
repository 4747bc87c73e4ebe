"""Small questions at a chapter's end. The right answer is read off the learner's own run or table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from numbers import Integral

from kvlab.course.crossover import Crossovers, recompute_is_cheaper
from kvlab.course.question import in_words
from kvlab.course.question_kinds import KINDS
from kvlab.course.questions import question
from kvlab.errors import BadInput
from kvlab.trace.document import Trace
from kvlab.trace.narration import load_words


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of an answer; shows itself in a notebook. `right` is None without an answer."""

    right: bool | None
    text: str

    def __str__(self) -> str:
        return self.text

    def as_html(self) -> str:
        """The text, escaped, with a bar at its side; the first word says how it went."""
        colour = {True: "success", False: "warn", None: "border"}[self.right]
        return (
            f'<p style="margin:0;padding:6px 12px;line-height:1.5;border-left:4px solid '
            f'var(--jp-{colour}-color1,#7d8694)">{escape(self.text)}</p>'
        )

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        return {"text/html": self.as_html(), "text/plain": self.text}


def first_cheaper(crossovers: Crossovers) -> int:
    """The first length at which recompute is cheaper with blocks of 4 tokens.

    Raises BadInput where it is cheaper at no length.
    """
    found = recompute_is_cheaper(crossovers.costs(4))
    if found is None:
        raise BadInput("recompute is cheaper at no length with blocks of 4 tokens.")
    return found.first


ABOUT_COSTS: dict[str, tuple[str, Callable[[Crossovers], int]]] = {
    "copies with blocks of 64": ("copies_with_64", lambda crossovers: int(crossovers.copies(64))),
    "recompute begins to pay": ("recompute_pays", first_cheaper),
}
"""Questions about a table of crossovers: their words in the catalogue, and the answer."""

CHECKS = (*(name for name, kind in KINDS.items() if kind.is_number), *ABOUT_COSTS)
"""The names of all questions that are answered with a number."""


def check(asked: Trace | Crossovers, name: str, answer: object) -> Verdict:
    """Compare an answer with the run, or the table. None: not answered yet.

    Raises BadInput for an unknown question, one about something else, or an answer that is not a
    whole number.
    """
    if name not in CHECKS:
        raise BadInput(f"there is no question {name!r}: {', '.join(CHECKS)}.")
    given = answer is not None and answer is not ...
    if given and (isinstance(answer, bool) or not isinstance(answer, Integral)):
        raise BadInput(f"check {name}: answer with a whole number, not {answer!r}.")
    if isinstance(asked, Crossovers) != (name in ABOUT_COSTS):
        what = "a table of crossovers" if name in ABOUT_COSTS else "a run"
        raise BadInput(f"check {name}: the question is about {what}; give one first.")
    text, right, look = facts_of(asked, name)
    if not given:
        return Verdict(None, f"{text} Write your answer in place of None.")
    if answer == right:
        return Verdict(True, f"Right: {right}. {look}")
    return Verdict(False, f"Not {answer}. {look}")


def facts_of(asked: Trace | Crossovers, name: str) -> tuple[str, int, str]:
    """The question's text, its answer, and where to look for it."""
    words = load_words("en")
    if isinstance(asked, Crossovers):
        key, answer = ABOUT_COSTS[name]
        return words["questions"][key], answer(asked), words["questions"][f"{key}_look"]
    one = question(asked, name)
    text, look = (in_words(part, asked, words) for part in (one.text, one.look))
    return text, int(one.answer or 0), look
