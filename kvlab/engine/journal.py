"""The record of one step, filled while it happens."""

from __future__ import annotations

from typing import TypeVar

from kvlab.engine.events import Event

E = TypeVar("E", bound=Event)


class Journal:
    """Events in the order in which they happened; `step` is the number of the current step."""

    def __init__(self) -> None:
        self.step = 0
        self._events: list[Event] = []

    def record(self, event: type[E], /, **facts: object) -> E:
        """Append an event of the current step, and return it."""
        made = event(step=self.step, **facts)
        self._events.append(made)
        return made

    def take(self) -> tuple[Event, ...]:
        """The events since the last call."""
        events, self._events = tuple(self._events), []
        return events
