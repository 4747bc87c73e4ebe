"""Moments: what a teacher would stop at. Found in every run by one rule from its events.

A moment is a cursor at which something that belongs together has just happened: an admission with
its blocks, a model run, the need that nothing meets, the choice of a victim, the release, a copy, the
return, an end. Of a stretch of steps that only decode the last one is a moment.

Each has a `weight`, from what can be passed over when time is short (LIGHT) to what every telling
needs (HEAVY). A part of a run that a lesson tells is shown as finely as MOST stops allow: `grain` is
the least weight that counts there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kvlab.trace.document import Trace

LIGHT, PLAIN, FIRM, HEAVY = 1, 2, 3, 4
MOST = 8

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Moment:
    """`cursor`: events before it; `event`: the index of the one whose sentence tells it; `start`: the
    cursor from which what it shows began, which is the moment before.

    kind: admitted | prefill | recompute | decode | idle | needed | paused | chosen | released |
    copied_out | resumed | copied_in | copy_failed | ended | changed | damaged | thrashing
    """

    cursor: int
    event: int
    kind: str
    weight: int
    start: int = 0


ALONE = {
    "block_needed": ("needed", HEAVY),
    "preempted": ("chosen", PLAIN),
    "copy_failed": ("copy_failed", HEAVY),
    "damage_found": ("damaged", HEAVY),
    "storm_detected": ("thrashing", HEAVY),
    "setting_changed": ("changed", PLAIN),
}
"""Events that are a moment by themselves."""

COPIES = {
    "swap_out_advanced": "copied_out",
    "swap_out_finished": "copied_out",
    "swap_in_advanced": "copied_in",
    "swap_in_finished": "copied_in",
}
GIVEN_UP = ("preempted", "swapped_out", "copy_unfinished")
"""Why whoever is paused releases its blocks."""
ROOM = ("block_allocated", "block_shared", "scheduled")
"""What an admission or a return brings at once."""
RUNS = ("recompute", "prefill", "decode")
"""What a model run is named after, the most telling first."""


def moments(trace: Trace) -> list[Moment]:
    """All moments of a run, in order, each with the one before as its start."""
    steps = [trace.events[step["first"] : step["end"]] for step in trace.steps]
    found: list[Moment] = []
    for at, (step, events) in enumerate(zip(trace.steps, steps, strict=True)):
        after = steps[at + 1] if at + 1 < len(steps) else []
        found += of_step(events, step["first"], after)
    chained, before = [], 0
    for one in found:
        chained.append(Moment(one.cursor, one.event, one.kind, one.weight, before))
        before = one.cursor
    return chained


def grain(found: Iterable[Moment], start: int, stop: int, most: int = MOST) -> int:
    """The least weight of the moments between two cursors of which there are at most `most`; HEAVY
    where there are more of those alone."""
    inside = [one.weight for one in found if start < one.cursor <= stop]
    for weight in (LIGHT, PLAIN, FIRM):
        if sum(one >= weight for one in inside) <= most:
            return weight
    return HEAVY


def of_step(events: Sequence[Event], first: int, after: Sequence[Event]) -> list[Moment]:
    """The moments of one step, whose first event has the index `first`; `after` is the next step."""
    found: dict[int, Moment] = {}

    def add(kind: str, weight: int, event: int, end: int) -> None:
        """What belongs together ends before `end`; of two moments at one cursor the heavier stays."""
        moment = Moment(first + end, first + event, kind, weight)
        before = found.get(moment.cursor)
        if before is None or before.weight < weight:
            found[moment.cursor] = moment

    for at, event in enumerate(events):
        kind, id = event["kind"], event.get("id")
        if kind in ALONE:
            add(*ALONE[kind], at, at + 1)
        elif kind == "paused":
            add("paused", HEAVY, at, run_on(events, at, ("stalled",)))
        elif kind == "block_released" and event["why"] in GIVEN_UP:
            add("released", HEAVY, at, at + 1)
        elif kind in COPIES and not (kind.endswith("advanced") and goes_on(events, at)):
            add(COPIES[kind], FIRM, at, run_on(events, at, ("host_block_released",), id))
        elif kind == "resumed":
            add("resumed", LIGHT, at, run_on(events, at, (*ROOM, "swap_in_started"), id))
    admission = last_of(events, "admitted")
    if admission is not None:
        id = events[admission]["id"]
        add("admitted", LIGHT, admission, run_on(events, admission, ROOM, id))
    add_run(add, events, after)
    return [found[cursor] for cursor in sorted(found)]


def add_run(add: Any, events: Sequence[Event], after: Sequence[Event]) -> None:
    """The step's model run and what it ends: one moment, two where a run that is worth a stop of its
    own ends a request, too."""
    ran, ended = last_of(events, "scheduled"), first_of(events, "finished")
    if ended is not None:
        last = max(i for i, e in enumerate(events) if e["kind"] in ("finished", "block_released"))
        end = max(last, ended) + 1
        event = last_of(events, "block_released", why="finished")
        add("ended", HEAVY, ended if event is None else event, end)
    whys = [event["why"] for event in events if event["kind"] == "scheduled"]
    kind = next((why for why in RUNS if why in whys), None)
    if kind is None:
        quiet = {"step_started", "kept_waiting", "stalled", "arrived"}
        if ended is None and all(event["kind"] in quiet for event in events):
            add("idle", LIGHT, len(events) - 1, len(events))
        return
    if kind != "decode":
        at = last_of(events, "scheduled", why=kind)
        add(kind, FIRM, at, len(events) if ended is None else ended)
    elif ended is None and ran is not None:
        told = last_of(events, "token_delivered")
        goes_on = batch(events) == batch(after) and only_decodes(after)
        if not (goes_on and only_decodes(events)):
            add("decode", LIGHT if goes_on else FIRM, ran if told is None else told, len(events))


def only_decodes(events: Sequence[Event]) -> bool:
    """A step in which a batch decodes and nothing else is worth a word."""
    plain = {"step_started", "scheduled", "kept_waiting", "kv_written", "arrived"}
    plain |= {"token_sampled", "token_delivered"}
    return all(event["kind"] in plain for event in events) and all(
        event["why"] == "decode" for event in events if event["kind"] == "scheduled"
    )


def batch(events: Sequence[Event]) -> list[str]:
    """Who goes through the model in a step."""
    return [event["id"] for event in events if event["kind"] == "scheduled"]


def run_on(events: Sequence[Event], at: int, kinds: Sequence[str], id: str | None = None) -> int:
    """The end of the events of these kinds that follow the `at`-th one at once, of one request."""
    end = at + 1
    while end < len(events) and events[end]["kind"] in kinds and id in (None, events[end]["id"]):
        end += 1
    return end


def goes_on(events: Sequence[Event], at: int) -> bool:
    """The copy advances or is finished by the very next event."""
    following = events[at + 1 : at + 2]
    return any(e["kind"] in COPIES and e["id"] == events[at]["id"] for e in following)


def first_of(events: Sequence[Event], kind: str) -> int | None:
    return next((at for at, event in enumerate(events) if event["kind"] == kind), None)


def last_of(events: Sequence[Event], kind: str, **fields: Any) -> int | None:
    """The index of the last event of a kind with these fields."""
    for at in range(len(events) - 1, -1, -1):
        if events[at]["kind"] == kind and fields.items() <= events[at].items():
            return at
    return None


TELLING = (
    "damage_found",
    "preempted",
    "paused",
    "copy_failed",
    "stalled",
    "resumed",
    "finished",
    "swap_in_finished",
    "swap_out_finished",
    "admitted",
    "forked",
)
"""Which of a step's events says most."""


def telling(events: Sequence[Event]) -> int:
    """The index of the event that tells a whole step in one sentence."""
    found = (first_of(events, kind) for kind in TELLING)
    return next((at for at in found if at is not None), len(events) - 1)
