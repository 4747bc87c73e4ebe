"""Small questions at a chapter's end. The right answer is read off the learner's own run or table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from numbers import Integral
from typing import Any

from kvlab.course.crossover import Crossovers, recompute_is_cheaper
from kvlab.errors import BadInput
from kvlab.trace.document import Trace
from kvlab.trace.facts import entry_of, first, longest_gap


@dataclass(frozen=True, slots=True)
class Check:
    """A question about a run or a table of crossovers, its answer, and where to look for it."""

    name: str
    question: str
    answer: Callable[[Any], int]
    hint: str
    of: type = Trace
    """What the question is about."""


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


def check(asked: Trace | Crossovers, name: str, answer: object) -> Verdict:
    """Compare an answer with the run, or the table. None: not answered yet.

    Raises BadInput for an unknown question, one about something else, or an answer that is not a
    whole number.
    """
    question = question_of(name)
    if answer is None or answer is ...:
        return Verdict(None, f"{question.question} Write your answer in place of None.")
    if isinstance(answer, bool) or not isinstance(answer, Integral):
        raise BadInput(f"check {name}: answer with a whole number, not {answer!r}.")
    if not isinstance(asked, question.of):
        what = "a run" if question.of is Trace else "a table of crossovers"
        raise BadInput(f"check {name}: the question is about {what}; give one first.")
    right = question.answer(asked)
    if int(answer) == right:
        return Verdict(True, f"Right: {right}. {question.hint}")
    return Verdict(False, f"Not {int(answer)}. {question.hint}")


def question_of(name: str) -> Check:
    """Raises BadInput for a name that no question has."""
    for question in CHECKS:
        if question.name == name:
            return question
    raise BadInput(f"there is no question {name!r}: {', '.join(q.name for q in CHECKS)}.")


def slots_filled(trace: Trace) -> int:
    """Positions with KV on the GPU before the step in which a block is first needed in vain."""
    need = first(trace, "block_needed")
    return sum(entry_of(trace, need["step"] - 1)["kv"].values())


def blocks_swapped(trace: Trace, kind: str) -> int:
    return len(first(trace, kind)["blocks"])


def first_cheaper(crossovers: Crossovers, block_size: int) -> int:
    """Raises BadInput where recompute is cheaper at no length."""
    found = recompute_is_cheaper(crossovers.costs(block_size))
    if found is None:
        raise BadInput(f"recompute is cheaper at no length with blocks of {block_size} tokens.")
    return found.first


def step_of_pause(trace: Trace) -> int:
    return int(first(trace, "preempted")["step"])


CHECKS = (
    Check(
        "steps of the run",
        "How many steps does the run have, from its beginning to its end?",
        lambda trace: len(trace.steps),
        "The line at the top of the player says it.",
    ),
    Check(
        "blocks in the pool",
        "How many blocks does the GPU pool have?",
        lambda trace: int(trace.document["pool"]["num_blocks"]),
        "Count the boxes, or read the line above them.",
    ),
    Check(
        "slots filled",
        "How many slots of the pool hold KV just before the first need that is not met?",
        slots_filled,
        "Count the filled cells at the end of the step before that need.",
    ),
    Check(
        "position without a place",
        "Which position is the first that has no block to go to?",
        lambda trace: int(first(trace, "block_needed")["position"]),
        "Positions count from 0; the event with the unmet need names it.",
    ),
    Check(
        "free after the release",
        "How many blocks are free right after B has released its own?",
        lambda trace: int(first(trace, "block_released", id="B")["free"]),
        "The count stands in the event that releases them, before A receives one.",
    ),
    Check(
        "history while paused",
        "How many tokens of history does B keep while it is paused?",
        lambda trace: int(first(trace, "preempted", id="B")["history"]),
        "Prompt tokens and outputs count; KV does not.",
    ),
    Check(
        "positions rebuilt",
        "How many positions of B are rebuilt when it comes back?",
        lambda trace: int(first(trace, "resumed", id="B")["rebuild"]),
        "Rebuilt cells carry the sign of a turning arrow; the one with a dot is computed first.",
    ),
    Check(
        "first output after the pause",
        "What is the number of the output that B's user receives first after the pause?",
        lambda trace: int(first(trace, "preempted", id="B")["delivered"]),
        "Outputs count from x0; those that were sent before are not sent again.",
    ),
    Check(
        "blocks copied out",
        "How many blocks are copied to the CPU pool before B's are released?",
        lambda trace: blocks_swapped(trace, "swap_out_started"),
        "The event that starts the copy names them.",
    ),
    Check(
        "blocks held after the return",
        "How many GPU blocks does B hold once it has processed x1?",
        lambda trace: len(entry_of(trace, first(trace, "resumed", id="B")["step"])["blocks"]["B"]),
        "Count B's rows in the block table at the end of the step that resumes it.",
    ),
    Check(
        "steps of waiting",
        "How many steps of B's longest gap are waiting?",
        lambda trace: longest_gap(trace, "B").waiting,
        "Waiting ends with the step before the one that resumes B.",
    ),
    Check(
        "steps of recovery",
        "How many steps of B's longest gap are recovery?",
        lambda trace: longest_gap(trace, "B").recovery,
        "Recovery runs from the step that resumes B to the one that delivers.",
    ),
    Check(
        "copies with blocks of 64",
        "How many copies does a swap of 2,048 tokens take with blocks of 64 tokens and 32 layers?",
        lambda crossovers: int(crossovers.copies(64)),
        "Blocks, times layers, times 2: out and back.",
        Crossovers,
    ),
    Check(
        "recompute begins to pay",
        "With blocks of 4 tokens: from which length on is recompute cheaper?",
        lambda crossovers: first_cheaper(crossovers, 4),
        "The table's last column names the first and the last length.",
        Crossovers,
    ),
    Check(
        "step of the pause",
        "In which step is a request of your scenario paused for the first time?",
        step_of_pause,
        "“next preemption” in the player goes there.",
    ),
    Check(
        "tokens computed again",
        "How many tokens of your scenario are computed a second time?",
        lambda trace: int(trace.summary["tokens_recomputed"]),
        "With swap nothing need be computed again, unless the CPU pool is full.",
    ),
)
