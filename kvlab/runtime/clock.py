"""What the seconds of a step are made of."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple


class StepSeconds(NamedTuple):
    """Seconds of one step. `whole`: the model, the copies and `scheduling`, which is what the engine
    itself took of it; not what the lab looked at beside."""

    whole: float
    scheduling: float


class StepClock:
    """Splits a step's time on the wall clock: work (the model's passes and the copies), what the lab
    does aside to show it (checksums, values read back, rates measured), and scheduling, the rest.

    `finish` waits until the device has done all that it was given; `now` tells the time
    (seconds).
    """

    def __init__(
        self,
        finish: Callable[[], None] = lambda: None,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._finish = finish
        self._now = now or time.perf_counter
        self._doing = "scheduling"
        self._since = 0.0
        self._seconds: dict[str, float] = {}

    def start(self) -> None:
        """A step begins."""
        self._seconds = {"scheduling": 0.0, "work": 0.0, "aside": 0.0}
        self._doing, self._since = "scheduling", self._now()

    def stop(self) -> StepSeconds:
        """The step is over, on the device too: its copies have arrived."""
        with self.work():
            self._finish()
        self._turn_to(self._doing)
        scheduling, work = self._seconds["scheduling"], self._seconds["work"]
        return StepSeconds(scheduling + work, scheduling)

    def work(self) -> AbstractContextManager[None]:
        """What is done inside is the model's or a copy's."""
        return self._while("work")

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is done inside is the lab's own. What the device had still to do is not."""
        with self.work():
            self._finish()
        with self._while("aside"):
            yield

    @contextmanager
    def _while(self, doing: str) -> Iterator[None]:
        before = self._turn_to(doing)
        try:
            yield
        finally:
            self._turn_to(before)

    def _turn_to(self, doing: str) -> str:
        """Note the time for what was done until now."""
        now = self._now()
        self._seconds[self._doing] = self._seconds.get(self._doing, 0.0) + now - self._since
        before, self._doing, self._since = self._doing, doing, now
        return before
