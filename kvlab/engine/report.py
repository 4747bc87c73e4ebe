"""What one step did and what it left behind, immutable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvlab.engine.events import Event


@dataclass(frozen=True, slots=True)
class Victim:
    """A preemption: who, by which method, why, and what it freed.

    `reclaimable` of its `blocks` became free (or will, when a copy is complete). `need_of` is the
    request that needed a block; None when an action asked. `fallback` says why another method than
    the engine's was used. Estimates are seconds, given by method `auto`.
    """

    id: str
    method: str
    why: str
    need_of: str | None
    reclaimable: int
    blocks: int
    fallback: str | None = None
    recompute_s: float | None = None
    swap_s: float | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    """A running request that could not be scheduled: the blocks it needs and why it has none."""

    id: str
    needs: int
    why: str


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """Blocks moved in this step for a request. direction: out | in; done: the copy is complete."""

    id: str
    direction: str
    blocks: int
    done: bool


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step of the engine. Lists keep the order in which things happened; counts are tokens."""

    step: int
    scheduled: Mapping[str, int]
    admitted: tuple[str, ...]
    resumed: tuple[str, ...]
    finished: tuple[str, ...]
    victims: tuple[Victim, ...]
    stalled: tuple[Stall, ...]
    copies: tuple[CopyProgress, ...]
    tokens_first: int
    tokens_again: int
    tokens_from_cache: int
    emitted: Mapping[str, tuple[int, ...]]
    events: tuple[Event, ...]

    @property
    def tokens(self) -> int:
        """Rows that went through the model."""
        return self.tokens_first + self.tokens_again


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Who holds what between two steps. Block counts; tables in logical order; lengths in tokens.

    free + blocks in any table + in_flight = all blocks. `cached` of the free ones can still be found
    by their prefix. `reserved_unused` blocks are held for positions not scheduled yet.
    """

    running: tuple[str, ...]
    waiting: tuple[str, ...]
    paused: tuple[str, ...]
    free: int
    cached: int
    in_flight: int
    reserved_unused: int
    host_free: int
    blocks: Mapping[str, tuple[int, ...]]
    kv: Mapping[str, int]
    host_blocks: Mapping[str, tuple[int, ...]]
    host_kv: Mapping[str, int]
    history: Mapping[str, int]
