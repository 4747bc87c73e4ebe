"""Which questions are put about a run. One system for the player, the notebooks and the pages.

A lesson lists `{at: {step: 3, kind: preempted, id: B, …}, ask: …, text: …, options: […], answer: …,
explain: …}`. `at` names the first event that has all those fields; the question is put just before
that event is shown. `ask` is one of

    who_is_paused     the request of the next preemption or pause
    free_after        blocks that are free after the event
    tokens_processed  tokens of the event's request that go through the model when it runs next
    tokens_sent       outputs that the user of the event's request receives in the step
    blocks_allocated  blocks that the event's request is given next

or a text of the teacher's own with `options` and an `answer`: one of them, or `{field: free}` for
what the event says there. `text` is another wording, `explain` another explanation than the sentence
of the event that answers. An entry that does not fit is passed over. `lesson.predict: lesson` leaves
out the built-in questions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kvlab.course.question import Question, Situation, Text, situations
from kvlab.course.question_kinds import KINDS, MOST_OPTIONS
from kvlab.errors import BadInput
from kvlab.trace.document import Trace

MOST_ASKED_ABOUT = 3
MOST_OF_A_LESSON = 100
OF_A_LESSON = (
    "who_is_paused",
    "free_after",
    "tokens_processed",
    "tokens_sent",
    "blocks_allocated",
)
"""Kinds that a lesson may name."""

Event = dict[str, Any]


def question(trace: Trace, name: str) -> Question:
    """The question of a kind, where that kind has its place in the run.

    Raises BadInput for a kind that there is not, and for a run in which it makes no sense.
    """
    if name not in KINDS:
        raise BadInput(f"there is no question {name!r}: {', '.join(KINDS)}.")
    kind, at = KINDS[name], len(trace.events)
    if kind.place:
        at = place(trace, kind.place, name)
        if kind.end:
            at = trace.cursor_of(trace.events[at]["step"])
    made = make(situations(trace, [at])[at], name)
    if made is None:
        raise BadInput(f"run {trace.name}: the question {name!r} makes no sense in it.")
    return made


def place(trace: Trace, fields: Any, name: str) -> int:
    """The index of the first event with these fields. Raises BadInput without one."""
    for at, event in enumerate(trace.events):
        if fields.items() <= event.items():
            return at
    wanted = " ".join(f"{key}={value}" for key, value in fields.items())
    raise BadInput(f"run {trace.name}: nothing like {wanted} happened in it ({name}).")


def make(now: Situation, name: str) -> Question | None:
    """A question of a kind at a place."""
    asked = KINDS[name].make(now)
    if asked is None:
        return None
    step = now.event["step"]
    return Question(name, now.at, step, asked.text, asked.options, asked.answer, asked.look)


def questions(trace: Trace) -> list[Question]:
    """What the player asks, in the order of the run: the lesson's questions and built-in ones."""
    lesson = trace.document["scenario"].get("lesson") or {}
    listed = lesson.get("questions")
    own = listed[:MOST_OF_A_LESSON] if isinstance(listed, list) else []
    wanted: list[tuple[int, Callable[[Situation], Question | None]]] = []
    for entry in own:
        at = entry_place(trace, entry)
        if at is not None:
            wanted.append((at, of_entry(entry)))
    if lesson.get("predict") != "lesson":
        wanted += [(at, of_kind(name)) for at, name in built_in(trace.events)]
    seen = situations(trace, [at for at, _ in wanted])
    found: dict[str, Question] = {}
    for at, maker in sorted(wanted, key=lambda one: one[0]):
        made = maker(seen[at])
        if made and 2 <= len(made.options) <= MOST_OPTIONS:
            found.setdefault(made.key, made)
    return list(found.values())


def of_kind(name: str) -> Callable[[Situation], Question | None]:
    return lambda now: make(now, name)


def entry_place(trace: Trace, entry: Any) -> int | None:
    """The index of a lesson's entry's event; None for one that does not fit."""
    if not isinstance(entry, dict) or not isinstance(entry.get("ask"), str):
        return None
    at = entry.get("at")
    if not isinstance(at, dict) or not at:
        return None
    fitting = (i for i, event in enumerate(trace.events) if at.items() <= event.items())
    return next(fitting, None)


def of_entry(entry: dict[str, Any]) -> Callable[[Situation], Question | None]:
    """A lesson's entry: a kind with its own wording, or a question of the teacher's own."""

    def maker(now: Situation) -> Question | None:
        ask = entry["ask"]
        made = make(now, ask) if ask in OF_A_LESSON else custom(now, entry)
        if made is None:
            return None
        text, look = entry.get("text"), entry.get("explain")
        return replace(
            made,
            own=True,
            text=made.text if text is None else str(text),
            look=made.look if look is None else str(look),
        )

    return maker


def custom(now: Situation, entry: dict[str, Any]) -> Question:
    """A question in the teacher's own words."""
    listed, right = entry.get("options"), entry.get("answer")
    options = [as_text(value) for value in listed] if isinstance(listed, list) else []
    if isinstance(right, dict):
        right = now.event.get(str(right.get("field")))
    answer = None if right is None else as_text(right)
    if answer is not None and answer not in options:
        options.append(answer)
    look: Text = "" if answer is None else now.at
    ask, step = entry["ask"], now.event["step"]
    return Question(ask, now.at, step, ask, tuple(dict.fromkeys(options)), answer, look)


def as_text(value: Any) -> str:
    """A value of a scenario as one writes it there."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def built_in(events: list[Event]) -> list[tuple[int, str]]:
    """What is asked when the lesson says nothing: about the first shortages and what follows them,
    as (index of the event, kind)."""
    found: list[tuple[int, str]] = []
    gone: dict[str, str] = {}
    times = 0
    for at, event in enumerate(events):
        kind, id = event["kind"], event.get("id")
        if kind in ("preempted", "paused"):
            if times >= MOST_ASKED_ABOUT:
                continue
            times += 1
            gone[event["id"]] = kind
            if event["need_of"] is not None:
                found.append((at, "who_is_paused"))
            if kind == "paused":
                found.append((at, "free_after"))
        elif id not in gone:
            continue
        elif kind == "block_released" and gone[id] == "preempted":
            gone[id] = "released"
            found.append((at, "free_after"))
        elif kind == "resumed":
            gone[id] = "resumed"
            if event["why"] != "pause":
                found.append((at, "tokens_processed"))
        elif kind == "token_delivered" and gone[id] == "resumed":
            del gone[id]
            found.append((at, "tokens_sent"))
    return found
