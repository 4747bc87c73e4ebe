"""What one step did, seen through its events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from kvlab.engine.events import (
    Admitted,
    Event,
    Finished,
    KvWritten,
    Preempted,
    Resumed,
    TokenDelivered,
)

E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True)
class StepReport:
    """The events of one step. Lists keep the order in which things happened; counts are tokens."""

    step: int
    events: tuple[Event, ...]

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def scheduled(self) -> dict[str, int]:
        """Rows of each request that went through the model."""
        rows: dict[str, int] = {}
        for event in self.of(KvWritten):
            rows[event.id] = rows.get(event.id, 0) + event.last - event.first + 1
        return rows

    @property
    def tokens(self) -> int:
        """Rows that went through the model."""
        return _positions(self.of(KvWritten))

    @property
    def tokens_again(self) -> int:
        """Those of them that had been computed before."""
        return _positions(event for event in self.of(KvWritten) if event.why == "rebuilt")

    @property
    def tokens_from_cache(self) -> int:
        """History that needed no computing, since its blocks were found by their prefix."""
        found = [event.from_cache for event in self.of(Admitted)]
        return sum(found) + sum(event.from_cache for event in self.of(Resumed))

    @property
    def preempted(self) -> list[str]:
        return [event.id for event in self.of(Preempted)]

    @property
    def finished(self) -> list[str]:
        return [event.id for event in self.of(Finished)]

    @property
    def emitted(self) -> dict[str, list[int]]:
        """The tokens that each user received."""
        sent: dict[str, list[int]] = {}
        for event in self.of(TokenDelivered):
            sent.setdefault(event.id, []).append(event.token)
        return sent


def _positions(written: Iterable[KvWritten]) -> int:
    return sum(event.last - event.first + 1 for event in written)
