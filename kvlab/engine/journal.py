"""The record of one step, filled while it happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kvlab.engine.events import Event

E = TypeVar("E", bound=Event)


class Journal:
    """Events in the order in which they happened; `step` is the number of the current step.

    `witness` is told of each event at the moment when it is recorded, before anything else happens:
    the only time at which the values that it speaks of are sure to lie in memory.
    """

    def __init__(self) -> None:
        self.step = 0
        self.witness: Callable[[Event], None] | None = None
        self._events: list[Event] = []

    def record(self, event: type[E], /, **facts: object) -> E:
        """Append an event of the current step, and return it."""
        made = event(step=self.step, **facts)
        self._events.append(made)
        if self.witness is not None:
            self.witness(made)
        return made

    def take(self) -> tuple[Event, ...]:
        """The events since the last call."""
        events, self._events = tuple(self._events), []
        return events
