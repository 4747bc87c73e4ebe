"""The five figures as chapters: what notebooks and the dashboard say and ask about each.

No answer stands here: questions and answers are filled in from a trace, so that they stay true when
the run is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvlab.errors import BadInput
from kvlab.trace.document import Trace
from kvlab.trace.facts import entry_of, first, free_after, happened, longest_gap
from kvlab.trace.speech import ENGLISH, Speech

METHODS = ("recompute", "swap")


@dataclass(frozen=True, slots=True)
class Prediction:
    """A question to answer before the run is shown. Both parts are read off a trace."""

    ask: Callable[[Trace], str]
    options: Callable[[Trace], tuple[int, ...]]
    answer: Callable[[Trace], int]
    look: Callable[[Trace], str]
    """Where in the run the answer can be seen."""


@dataclass(frozen=True, slots=True)
class Change:
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
    prediction: Prediction
    change: Change
    preempts_by_action: tuple[int, str] | None = None
    """(step, request) where the scenario itself asks for the preemption."""

    def text(self, what: str, speech: Speech = ENGLISH) -> str:
        """What the catalogue says of the chapter: short (its name in a menu), title, question, why (it
        in one sentence), change (what is changed) and look (the question to the change)."""
        return speech(f"chapters.{self.scenario}.{what}")

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


def around(answer: int, others: Sequence[int]) -> tuple[int, ...]:
    """The answer among others, in order, so that its place gives nothing away."""
    return tuple(sorted({answer, *others}))


# Chapter 1


def slots_left(trace: Trace) -> int:
    """Slots that each request still has after the first step (the fewest of all)."""
    entry, size = entry_of(trace, 1), trace.document["pool"]["block_size"]
    return min(len(table) * size - entry["kv"][id] for id, table in entry["blocks"].items())


def ask_slots(trace: Trace) -> str:
    entry, size = entry_of(trace, 1), trace.document["pool"]["block_size"]
    id = next(iter(entry["blocks"]))
    return (
        f"After step 1 each request has KV for {entry['kv'][id]} positions in "
        f"{len(entry['blocks'][id])} blocks of {size} slots, and {entry['free']} blocks are free. "
        "How many more inputs can each process before it needs a new block?"
    )


# Chapter 2


def skip_step(trace: Trace) -> int:
    """The step that leaves a request out without releasing anything."""
    return int(first(trace, "paused")["step"])


def ask_skip(trace: Trace) -> str:
    paused = first(trace, "paused")
    return (
        f"In step {paused['step']}, {paused['id']} is left out of the batch and nothing else is "
        "done. How many blocks are free after that step?"
    )


# Chapters 3 and 4


def resumed_tokens(trace: Trace) -> int:
    """Tokens that go through the model when the preempted request comes back."""
    back = first(trace, "resumed")
    return int(first(trace, "scheduled", step=back["step"], id=back["id"])["tokens"])


def ask_resumed(trace: Trace) -> str:
    gone = first(trace, "preempted")
    return (
        f"{gone['id']} was paused with a history of {gone['history']} tokens and KV for "
        f"{gone['kv']} positions. How many of its tokens go through the model in the step that "
        "resumes it?"
    )


def look_resumed(trace: Trace) -> str:
    back = first(trace, "resumed")
    again = first(trace, "scheduled", step=back["step"], id=back["id"])["again"]
    tokens = resumed_tokens(trace)
    how = f"{again} of them a second time" if again else "none of them a second time"
    return f"Step {back['step']}: {tokens} of {back['history']} tokens, {how}."


def kept_options(trace: Trace) -> tuple[int, ...]:
    gone = first(trace, "preempted")
    return around(resumed_tokens(trace), (1, gone["kv"], gone["history"]))


# Chapter 5


def waiting_user(trace: Trace) -> str:
    """The request that was preempted: its user waits."""
    return str(first(trace, "preempted")["id"])


def ask_gap(trace: Trace) -> str:
    gone = first(trace, "preempted")
    last = gone["delivered"] - 1
    return (
        f"The user of {gone['id']} received x{last} in step {gone['step'] - 1}; in step "
        f"{gone['step']} {gone['id']} is paused. How many steps after x{last} does x{last + 1} "
        "arrive?"
    )


def look_gap(trace: Trace) -> str:
    gap = longest_gap(trace, waiting_user(trace))
    return f"That is {gap.waiting} of waiting and {gap.recovery} of recovery."


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


def told(change: Change, before: Trace, after: Trace, speech: Speech = ENGLISH) -> str:
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
        Prediction(
            ask=ask_slots,
            options=lambda trace: around(slots_left(trace), (0, 1, 2)),
            answer=slots_left,
            look=lambda trace: (
                f"Each has {slots_left(trace)} empty slot; the next need after it is for position "
                f"{first(trace, 'block_needed')['position']}."
            ),
        ),
        Change(("engine.num_blocks=6",), ("unmet",)),
    ),
    Chapter(
        2,
        "figure-2",
        Prediction(
            ask=ask_skip,
            options=lambda trace: around(free_after(trace, skip_step(trace)), (0, 1, 2)),
            answer=lambda trace: free_after(trace, skip_step(trace)),
            look=lambda trace: (
                f"B still holds {first(trace, 'paused')['held']} blocks. The release in step "
                f"{first(trace, 'preempted')['step']} raises the count to "
                f"{first(trace, 'block_released')['free']}, and A takes one of them at once."
            ),
        ),
        Change((), ("gap A",), preempt_step=6),
        preempts_by_action=(4, "B"),
    ),
    Chapter(
        3,
        "figure-3",
        Prediction(ask=ask_resumed, options=kept_options, answer=resumed_tokens, look=look_resumed),
        Change(("engine.block_size=2", "engine.num_blocks=8"), ("recomputed", "blocks_moved")),
    ),
    Chapter(
        4,
        "figure-4",
        Prediction(ask=ask_resumed, options=kept_options, answer=resumed_tokens, look=look_resumed),
        Change(("engine.host_blocks=1",), ("recomputed", "bytes_moved")),
    ),
    Chapter(
        5,
        "figure-5",
        Prediction(
            ask=ask_gap,
            options=lambda trace: around(
                longest_gap(trace, waiting_user(trace)).steps,
                (1, longest_gap(trace, waiting_user(trace)).waiting),
            ),
            answer=lambda trace: longest_gap(trace, waiting_user(trace)).steps,
            look=look_gap,
        ),
        Change(("requests.A.max_tokens=4",), ("waiting B", "recovery B")),
    ),
)
