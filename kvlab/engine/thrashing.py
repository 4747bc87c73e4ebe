"""Thrashing: much work redone, little new output."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from kvlab.engine.event_log import EventLog
from kvlab.engine.events import (
    Event,
    KvWritten,
    Preempted,
    StormDetected,
    SwapInAdvanced,
    TokenDelivered,
)

WINDOW = 16
"""Steps that are looked at together."""

LEAST_PREEMPTIONS = 3
"""There are at least so many preemptions in the window: one long recovery is no thrashing."""


@dataclass(frozen=True, slots=True)
class Thrashing:
    """Steps `first` .. `last`, in which `redone` tokens of work bought `new` output tokens."""

    first: int
    last: int
    redone: int
    new: int


class ThrashingWatch:
    """Looks back over the last WINDOW steps after each step.

    It is thrashing while at least LEAST_PREEMPTIONS happened in the window and the tokens redone in it
    (computed again, or brought back from the host pool) exceed the tokens newly put out.
    Overlapping windows are one spell of it.
    """

    counted: ClassVar = (
        Preempted,
        KvWritten,
        SwapInAdvanced,
        TokenDelivered,
    )  # the rest is nothing to it

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._window: deque[tuple[int, int, int, int]] = deque(maxlen=WINDOW)
        self._now: Thrashing | None = None
        self._ended: list[Thrashing] = []

    @property
    def preemptions(self) -> int:
        """Preemptions in the window."""
        return sum(counts[1] for counts in self._window)

    @property
    def found(self) -> list[Thrashing]:
        """All spells so far, the one that goes on included."""
        return [*self._ended, *([self._now] if self._now else [])]

    def look(self, log: EventLog) -> None:
        """See the step of an engine that runs, and tell of thrashing that begins with it."""
        if begun := self.see(log.step, log.events):
            log.record(
                StormDetected(
                    since=begun.first,
                    redone=begun.redone,
                    new=begun.new,
                    preemptions=self.preemptions,
                )
            )

    def see(self, step: int, events: Iterable[Event]) -> Thrashing | None:
        """Add a step by its events; returns the spell of thrashing that begins with it, if one does."""
        counts = self._counts(events)
        self._window.append((step, *counts))
        preemptions, redone, new = (
            sum(column) for column in list(zip(*self._window, strict=True))[1:]
        )
        if preemptions < LEAST_PREEMPTIONS or redone <= new:
            self._ended, self._now = self.found, None
            return None
        if self._now:
            before = self._now
            self._now = Thrashing(
                before.first, step, before.redone + counts[1], before.new + counts[2]
            )
            return None
        self._now = Thrashing(self._window[0][0], step, redone, new)
        return self._now

    def _counts(self, events: Iterable[Event]) -> tuple[int, int, int]:
        """(preemptions, tokens redone, tokens newly put out) of a step."""
        preemptions = redone = new = 0
        for event in events:
            if isinstance(event, Preempted):
                preemptions += 1
            elif isinstance(event, KvWritten) and event.why == "rebuilt":
                redone += event.last - event.first + 1
            elif isinstance(event, SwapInAdvanced):
                redone += len(event.blocks) * self._block_size
            elif isinstance(event, TokenDelivered):
                new += 1
        return preemptions, redone, new
