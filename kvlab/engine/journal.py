"""The record of one step, filled while it happens."""

from __future__ import annotations

from kvlab.engine.events import Event


class Journal:
    """Events in the order in which they happened; `step` is the number of the current step."""

    def __init__(self) -> None:
        self.step = 0
        self._events: list[Event] = []

    def record(self, event: type[Event], /, **facts: object) -> None:
        """Append an event of the current step."""
        self._events.append(event(step=self.step, **facts))

    def take(self) -> tuple[Event, ...]:
        """The events since the last call."""
        events, self._events = tuple(self._events), []
        return events
