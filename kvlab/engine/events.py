"""What happened, as past-tense facts.

One immutable class an event; its name in a trace is its class name in snake case. An event holds
everything that is needed to replay the run without the engine: a trace is a list of events, a step
is a span of them, and the state at a cursor is a fold over the events before it (kvlab.trace.replay).

Ids: a request is its id (str), a GPU block its number in the pool, a host block its number in the
host pool. Positions and lengths count tokens. `why` is a reason code; the words for it are in the
narration catalogue. No event holds seconds: those are measured per step and kept apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events. `step` counts from 1."""

    step: int = 0  # the log stamps it

    kind: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        cls.kind = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def as_json(self) -> dict[str, Any]:
        """`kind` first, then the fields in order; tuples become lists when written."""
        facts: dict[str, Any] = {"kind": self.kind}
        for name in names_of(self.kind):
            value = getattr(self, name)
            facts[name] = list(value) if isinstance(value, tuple) else value
        return facts


@cache
def names_of(kind: str) -> tuple[str, ...]:
    """The fields of a kind of event, in order."""
    return tuple(field.name for field in fields(event_kinds()[kind]))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted(Event):
    """The scheduler began to decide; between two steps nothing runs on the device."""

    running: tuple[str, ...]
    waiting: tuple[str, ...]
    paused: tuple[str, ...]
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived(Event):
    """A request joined the waiting queue with `history` prompt tokens."""

    id: str
    history: int
    max_tokens: int
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionTaken(Event):
    """The scenario acted at the start of this step. why: taken | ended | not_running (both ignored)."""

    id: str
    action: str  # abort | preempt | pause | resume | next_victim
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChanged(Event):
    """From this step on an engine setting (method | victim | free_order) has another value.

    why: taken | same (it had that value before).
    """

    setting: str
    value: str
    before: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted(Event):
    """A fresh request left the waiting queue and joined the batch."""

    id: str
    history: int
    from_cache: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(Event):
    """A paused request is part of the batch again. why: recompute | swap | pause.

    `kv` positions are on the GPU (or on their way, for swap) already; of the rest, `rebuild` were
    computed before and `history - kv - rebuild` never were. By swap, `stays` of the `kv` positions
    never left the GPU, since other requests held their blocks, too.
    """

    id: str
    why: str
    history: int
    kv: int
    stays: int
    rebuild: int
    from_cache: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptWaiting(Event):
    """The head of the waiting queue was not admitted although it could have been looked at.

    why: no_room | watermark | preempted_this_step | copy_in_flight | batch_full. `needs` and `free`
    count blocks.
    """

    id: str
    why: str
    needs: int
    free: int
    history: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockNeeded(Event):
    """A request needs `needs` more blocks from logical index `logical` on; only `free` are free.

    Precedes every preemption for need, every pause for need and every stall.
    """

    id: str
    position: int
    logical: int
    needs: int
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockAllocated(Event):
    """Blocks left the free list and joined a block table at logical indices `logical`, +1, ...

    why: prefill | decode | recompute | restore | copy_on_write | reserve.
    """

    id: str
    why: str
    blocks: tuple[int, ...]
    logical: int
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockShared(Event):
    """Full blocks joined one more table: their prefix had been computed before (`refs` each)."""

    id: str
    blocks: tuple[int, ...]
    logical: int
    refs: tuple[int, ...]
    tokens: int
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCopied(Event):
    """Copy on write: a shared block was copied before its new owner writes into it."""

    id: str
    logical: int
    source: int
    block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked(Event):
    """One more sample of `parent`'s prompt runs: it shares all blocks (`refs` references each). One
    without blocks waits, since the batch has no place for it."""

    id: str
    parent: str
    history: int
    kv: int
    max_tokens: int
    blocks: tuple[int, ...]
    refs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockReleased(Event):
    """A table gave up blocks; those in `freed` had no other reference and can be allocated now.

    Their values stay in memory until somebody writes over them; `cached` ones of them can still be
    found by their prefix. why: finished | preempted | swapped_out | copy_unfinished (unsafe) |
    cut_short (it could not go on) | aborted. `next_id` waits at the head of the queue and needs
    `next_needs` blocks (None: nobody waits).
    """

    id: str
    why: str
    blocks: tuple[int, ...]
    freed: tuple[int, ...]
    cached: tuple[int, ...]
    free: int
    next_id: str | None
    next_needs: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempted(Event):
    """A running request lost its place in the batch.

    `need_of` is the request that needed a block, or waits with a better priority (None: an action
    asked for it). `victim` is the policy that chose it (`action`: a scenario named it; `priority`:
    it made way), with the sentence key `why`. `method` is
    what is tried (a CopyFailed says that it broke off); where the engine's method cannot be had,
    `fallback` says why (host_full). `reclaimable` of its `held` blocks become free. By swap, `stays`
    of them are kept: others hold them, too.
    """

    id: str
    need_of: str | None
    victim: str
    why: str
    method: str
    fallback: str | None
    reclaimable: int
    held: int
    stays: int
    history: int
    kv: int
    delivered: int
    recompute_s: float | None
    swap_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused(Event):
    """Execution is skipped, nothing is released. why: need | action."""

    id: str
    why: str
    need_of: str | None
    held: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled(Event):
    """A running request could not be scheduled. why: nothing_released | copy_in_flight |
    none_reclaimable."""

    id: str
    why: str
    needs: int
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unscheduled(Event):
    """A request that already had tokens in this step was chosen as a victim: they are given back."""

    id: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled(Event):
    """Positions `start` .. `start + tokens - 1` go through the model in this step.

    `again` of them were computed before. why: prefill | decode | recompute.
    `samples`: all of the history is then computed, so that a token is sampled.
    """

    id: str
    why: str
    start: int
    tokens: int
    again: int
    samples: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KvWritten(Event):
    """K and V of positions `first` .. `last` went into `block` from slot `slot` on, in every layer.

    why: first (computed for the first time) | rebuilt (computed before, then released).
    """

    id: str
    why: str
    block: int
    logical: int
    slot: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSampled(Event):
    """Output number `index` (x0, x1, ...) was selected; it has no KV until it is processed."""

    id: str
    index: int
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDelivered(Event):
    """The user received output number `index`; `gap` steps after the one before (None: the first)."""

    id: str
    index: int
    token: int
    text: str
    gap: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapOutStarted(Event):
    """KV is on its way to the host pool: blocks[i], entry places[i] of the table, to host_blocks[i];
    `kv` positions in all.

    The GPU blocks are in flight: neither held nor free. What else the table holds stays in it.
    """

    id: str
    copy: int
    places: tuple[int, ...]
    blocks: tuple[int, ...]
    host_blocks: tuple[int, ...]
    kv: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapOutAdvanced(Event):
    """`done` of `total` blocks have arrived in the host pool; these are the newest. It now holds
    `host_kv` positions of the request."""

    id: str
    copy: int
    blocks: tuple[int, ...]
    host_blocks: tuple[int, ...]
    done: int
    total: int
    host_kv: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapOutFinished(Event):
    """All of the copy is safely stored; only now may the GPU blocks be released. `kv` 0: there was
    nothing to copy, since others hold all of the blocks."""

    id: str
    copy: int
    kv: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapInStarted(Event):
    """Stored KV is on its way back: host_blocks[i] to blocks[i], to be entry places[i] of the table;
    `kv` positions in all."""

    id: str
    copy: int
    places: tuple[int, ...]
    blocks: tuple[int, ...]
    host_blocks: tuple[int, ...]
    kv: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapInAdvanced(Event):
    """`done` of `total` blocks are back on the GPU; these are the newest."""

    id: str
    copy: int
    blocks: tuple[int, ...]
    host_blocks: tuple[int, ...]
    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapInFinished(Event):
    """All stored positions, `kv`, are on the GPU again, in `blocks`; `table` is the whole one now.
    `kv` 0: none were stored."""

    id: str
    copy: int
    blocks: tuple[int, ...]
    kv: int
    table: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaimed(Event):
    """A waiting request gives up blocks that nobody else holds any more: `need_of` needs room.

    why: swap (they are copied out, too) | recompute (the host pool has no room for them: all of its
    KV is given up, and it will be computed again).
    """

    id: str
    why: str
    need_of: str
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFailed(Event):
    """A copy broke off: what it should have kept is given up, the request will be recomputed.

    why: out | in (the direction).
    """

    id: str
    copy: int
    why: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBlockReleased(Event):
    """Host blocks went back to the host pool. why: restored | aborted | finished | copy_failed |
    reclaimed."""

    id: str
    why: str
    host_blocks: tuple[int, ...]
    host_free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DamageFound(Event):
    """Bytes in a block are not those that its request wrote: an ordering was broken on purpose.

    why: the name of the unsafe switch. `layers` lists the layers that differ. `restored`: the values
    came back from the host pool like that (else they were written over before their last read).
    """

    id: str
    why: str
    block: int
    logical: int
    layers: tuple[int, ...]
    restored: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StormDetected(Event):
    """In the last steps, from `since` on, more tokens were redone than newly put out."""

    since: int
    redone: int
    new: int
    preemptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(Event):
    """A request ended. why: stop | length | aborted | kv_capacity | rejected | error."""

    id: str
    why: str
    outputs: int
    message: str | None


@cache
def event_kinds() -> dict[str, type[Event]]:
    """Every kind of event by its name in a trace."""
    return {cls.kind: cls for cls in Event.__subclasses__()}


def event_from_json(facts: Mapping[str, Any]) -> Event:
    """An event of ours as `as_json` wrote it (and a trace's `say` beside it, which is left out)."""
    own: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in facts.items()
        if name not in ("kind", "say")
    }
    return event_kinds()[facts["kind"]](**own)
