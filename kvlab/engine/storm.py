"""Preemption storms: much work redone, little new output."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

WINDOW = 16
"""Steps that are looked at together."""

LEAST_PREEMPTIONS = 3
"""A storm has at least so many preemptions in its window: one long recovery is none."""


@dataclass(frozen=True, slots=True)
class Storm:
    """Steps `first` .. `last`, in which `redone` tokens of work bought `new` output tokens."""

    first: int
    last: int
    redone: int
    new: int


class StormWatch:
    """Looks back over the last WINDOW steps after each step.

    It is a storm while at least LEAST_PREEMPTIONS happened in the window and the tokens redone in it
    (computed again, or brought back from the host pool) exceed the tokens newly put out.
    Overlapping windows are one storm.
    """

    def __init__(self) -> None:
        self._window: deque[tuple[int, int, int, int]] = deque(maxlen=WINDOW)
        self._first: int | None = None
        self._redone = 0
        self._new = 0
        self._storms: list[Storm] = []

    @property
    def raging(self) -> bool:
        return self._first is not None

    @property
    def preemptions(self) -> int:
        """Preemptions in the window."""
        return sum(counts[1] for counts in self._window)

    def storms(self) -> list[Storm]:
        """All storms so far, the one that rages included."""
        return [*self._storms, *([self._current()] if self.raging else [])]

    def _current(self) -> Storm:
        assert self._first is not None
        return Storm(self._first, self._window[-1][0], self._redone, self._new)

    def see(self, step: int, preemptions: int, redone: int, new: int) -> Storm | None:
        """Add a step's counts; returns the storm if one begins with it."""
        ended = self._current() if self.raging else None
        self._window.append((step, preemptions, redone, new))
        in_window = [sum(column) for column in zip(*self._window, strict=True)]
        storm = in_window[1] >= LEAST_PREEMPTIONS and in_window[2] > in_window[3]
        if storm and self.raging:
            self._redone += redone
            self._new += new
            return None
        if storm:
            self._first, self._redone, self._new = self._window[0][0], in_window[2], in_window[3]
            return self._current()
        if ended:
            self._storms.append(ended)
            self._first = None
        return None
