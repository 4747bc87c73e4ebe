"""The five figures as chapters: what notebooks and the dashboard say and ask about each.

No answer stands here: questions and answers are filled in from a trace, so that they stay true when
the run is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvlab.errors import BadInput
from kvlab.trace.document import Trace
from kvlab.trace.facts import entry_of, first, free_after, happened, longest_gap, method_of

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
    """One thing to change: scenario settings, what they mean, and what to watch for."""

    settings: tuple[str, ...]
    label: str
    watch: str
    told: Callable[[Trace, Trace], str]
    """What came of it, from the run before the change and the one after it."""
    preempt_step: int | None = None
    """Another step for the scenario's own preemption."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """One figure of the story."""

    number: int
    scenario: str
    short: str
    title: str
    question: str
    look_for: tuple[str, ...]
    prediction: Prediction
    why: str
    change: Change
    preempts_by_action: tuple[int, str] | None = None
    """(step, request) where the scenario itself asks for the preemption."""

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


def chapter_of(trace: Trace) -> Chapter:
    """The chapter that a run belongs to. Raises BadInput for a scenario of another name."""
    return chapter(trace.name)


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


# What came of a change: the answer to `watch`, read off both runs.


def told_need(before: Trace, after: Trace) -> str:
    if not happened(after, "block_needed"):
        return "No: every need is met, and nobody is paused."
    need = first(after, "block_needed")
    return f"Yes: in step {need['step']}, {need['id']} needs a block and none is free."


def told_stall(before: Trace, after: Trace) -> str:
    late, soon = longest_gap(after, "A"), longest_gap(before, "A")
    return (
        f"A's user waits {late.steps} steps between x{late.after} and x{late.after + 1} instead of "
        f"{soon.steps}, although A was never paused."
    )


def told_recomputed(before: Trace, after: Trace) -> str:
    now, then = (trace.summary["tokens_recomputed"] for trace in (after, before))
    if now == then:
        return f"No: {now} tokens are computed again, as before. Blocks only hand out the space."
    return f"{now} tokens are computed again instead of {then}."


def told_no_room(before: Trace, after: Trace) -> str:
    now, moved = after.summary["tokens_recomputed"], after.summary["bytes_swapped_out"]
    bill = f"{now} tokens are computed again and {moved:,} bytes are moved."
    if method_of(before) == "recompute":
        return f"Nothing changes, because recompute stores nothing there: {bill}"
    how = "falls back to recompute" if method_of(after) == "recompute" else "still uses swap"
    return f"It {how}: {bill}"


def told_gap(before: Trace, after: Trace) -> str:
    now, then = (longest_gap(trace, waiting_user(trace)) for trace in (after, before))
    return (
        f"The waiting: {now.waiting} steps instead of {then.waiting}. Recovery takes "
        f"{now.recovery}, before it took {then.recovery}."
    )


CHAPTERS: tuple[Chapter, ...] = (
    Chapter(
        number=1,
        scenario="figure-1",
        short="Running out",
        title="Running out of KV space",
        question="No new request arrives. Can the two that are running still run out of space?",
        look_for=(
            "the last slot of each request, and the step that fills it",
            "the count of free blocks: it does not change while slots are left",
            "the first need that nothing can meet, drawn as a “?” in the block table",
        ),
        prediction=Prediction(
            ask=ask_slots,
            options=lambda trace: around(slots_left(trace), (0, 1, 2)),
            answer=slots_left,
            look=lambda trace: (
                f"Each has {slots_left(trace)} empty slot; the next need after it is for position "
                f"{first(trace, 'block_needed')['position']}."
            ),
        ),
        why="Every output becomes an input and needs a slot, so running requests fill the pool by "
        "themselves; keeping newcomers out frees nothing.",
        change=Change(
            settings=("engine.num_blocks=6",),
            label="Give the pool 6 blocks",
            watch="Is there still a need that cannot be met?",
            told=told_need,
        ),
    ),
    Chapter(
        number=2,
        scenario="figure-2",
        short="Skip or release",
        title="Skipping is not releasing",
        question="B is left out of the batch. Does that give A the block it needs?",
        look_for=(
            "the step in which B is skipped: who holds which block after it",
            "the step in which B's blocks are released: what is still written in them",
            "the row that A's block table gains, and the slot that is written first",
        ),
        prediction=Prediction(
            ask=ask_skip,
            options=lambda trace: around(free_after(trace, skip_step(trace)), (0, 1, 2)),
            answer=lambda trace: free_after(trace, skip_step(trace)),
            look=lambda trace: (
                f"B still holds {first(trace, 'paused')['held']} blocks. The release in step "
                f"{first(trace, 'preempted')['step']} raises the count to "
                f"{first(trace, 'block_released')['free']}, and A takes one of them at once."
            ),
        ),
        why="Leaving a request out of a step saves computation; only a release makes its blocks "
        "available to others.",
        change=Change(
            settings=(),
            preempt_step=6,
            label="Release in step 6 instead of step 4",
            watch="How long does A stall, although it is the request that may run?",
            told=told_stall,
        ),
        preempts_by_action=(4, "B"),
    ),
    Chapter(
        number=3,
        scenario="figure-3",
        short="Recompute",
        title="Recompute KV from the token history",
        question="B's KV is gone. What is left to continue from?",
        look_for=(
            "B's history while it is paused: it stays, and so do the outputs that were sent",
            "the one pass that brings B back: rebuilt positions, and one computed first",
            "what is sent after it, and what is not sent again",
        ),
        prediction=Prediction(
            ask=ask_resumed, options=kept_options, answer=resumed_tokens, look=look_resumed
        ),
        why="KV is what the model computes from the tokens, so whoever keeps the tokens can "
        "compute it again, in one pass because all of them are known.",
        change=Change(
            settings=("engine.block_size=2", "engine.num_blocks=8"),
            label="Use 8 blocks of 2 slots",
            watch="Are fewer tokens computed again?",
            told=told_recomputed,
        ),
    ),
    Chapter(
        number=4,
        scenario="figure-4",
        short="Swap",
        title="Restore KV stored outside the GPU",
        question="What if B's KV is kept somewhere else instead of being given up?",
        look_for=(
            "the order: copied first, released only when the copy is complete",
            "the CPU pool while B is paused",
            "the physical blocks that B gets back, and the one token that is still processed",
        ),
        prediction=Prediction(
            ask=ask_resumed, options=kept_options, answer=resumed_tokens, look=look_resumed
        ),
        why="Stored KV need not be computed again; the price is memory outside the GPU and a "
        "transfer in each direction.",
        change=Change(
            settings=("engine.host_blocks=1",),
            label="Leave 1 block in the CPU pool",
            watch="What does the engine do when B's KV does not fit there?",
            told=told_no_room,
        ),
    ),
    Chapter(
        number=5,
        scenario="figure-5",
        short="Delay",
        title="Output delays from pausing and recovery",
        question="Everything B computed is safe or can be made again. What does its user notice?",
        look_for=(
            "B's outputs as they are received, under the lanes",
            "what makes room for B in the end",
            "the gap, and which part of it is waiting",
        ),
        prediction=Prediction(
            ask=ask_gap,
            options=lambda trace: around(
                longest_gap(trace, waiting_user(trace)).steps,
                (1, longest_gap(trace, waiting_user(trace)).waiting),
            ),
            answer=lambda trace: longest_gap(trace, waiting_user(trace)).steps,
            look=look_gap,
        ),
        why="The gap is waiting for room plus recovery; a faster recovery shortens only the second "
        "part.",
        change=Change(
            settings=("requests.A.max_tokens=4",),
            label="Let A stop after 4 outputs",
            watch="Which part of B's gap becomes shorter?",
            told=told_gap,
        ),
    ),
)
