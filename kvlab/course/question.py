"""What a question about a run is: where it is put, its options, the right answer, and where to look.

Text comes from the words of a language, so that one question can be put in any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvlab.trace import replay
from kvlab.trace.document import Trace
from kvlab.trace.narration import Words, fill, narrate

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """An entry of the catalogue's `questions`, and what fills it."""

    key: str
    values: Mapping[str, Any] = field(default_factory=dict)


Text = str | int | Said
"""A text of a teacher's own, the index of an event whose sentence it is, or words of the catalogue."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question that is put at the cursor `at`, before the event of that index is seen.

    `ask` is its kind, or the teacher's own wording; `options` may be empty where a number is to be
    given; `answer` is what the run says, None where nothing is checked; `look`: where to see it.
    `own`: a lesson asks it.
    """

    ask: str
    at: int
    step: int
    text: Text
    options: tuple[str, ...]
    answer: str | None
    look: Text
    own: bool = False

    @property
    def key(self) -> str:
        """One name for each question of a run."""
        return f"{self.at}:{self.ask}"[:200]


def in_words(text: Text, trace: Trace, words: Words) -> str:
    """A question's text, or where to look, in a language."""
    if isinstance(text, int):
        return narrate(trace.events[text], words)
    if isinstance(text, Said):
        return fill(words["questions"][text.key], text.values, words)
    return text


@dataclass(frozen=True, slots=True)
class Situation:
    """A run at a cursor: what a question is made from.

    `free` blocks of `total`; `free_after` the event that comes next; `requests` as in a state.
    """

    trace: Trace
    at: int
    free: int
    free_after: int
    total: int
    requests: dict[str, dict[str, Any]]

    @property
    def event(self) -> Event:
        """The event that comes next; the last one at the end of the run."""
        return self.trace.events[min(self.at, len(self.trace.events) - 1)]

    def next(self, *kinds: str, **fields: Any) -> tuple[int, Event] | None:
        """The first event from here on that fits, with its index."""
        for at in range(self.at, len(self.trace.events)):
            event = self.trace.events[at]
            if event["kind"] in kinds and fields.items() <= event.items():
                return at, event
        return None

    def of(self, id: str) -> dict[str, Any]:
        """A request's part of the state; nothing before it has arrived."""
        return self.requests.get(id, {})


def situations(trace: Trace, cursors: Iterable[int]) -> dict[int, Situation]:
    """The run at these cursors, in one walk over it."""
    wanted, found = set(cursors), {}
    last = max(wanted, default=-1)
    before: dict[int, tuple[int, dict[str, dict[str, Any]]]] = {}
    if not wanted:
        return {}
    for cursor, state in enumerate(replay.states(trace.document)):
        total, free = len(state["blocks"]), state["free"]
        if cursor - 1 in before:
            then, requests = before[cursor - 1]
            found[cursor - 1] = Situation(trace, cursor - 1, then, free, total, requests)
        if cursor in wanted:
            before[cursor] = free, {id: dict(one) for id, one in state["requests"].items()}
            found[cursor] = Situation(trace, cursor, free, free, total, before[cursor][1])
        if cursor > last:
            break
    return found
