"""Which moments of a run a storyboard shows: found in the trace, never fixed cursors.

The article's figures name their moments by what happens in them; a run that has none of these (it was
changed so much), and every other scenario, shows its own key moments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kvlab.errors import BadInput
from kvlab.trace.document import Trace
from kvlab.trace.moments import moments
from kvlab.trace.ranges import lesson_range

MOST = 6


@dataclass(frozen=True, slots=True)
class Place:
    """An event of a kind with these fields, the first of the run, and where to look: right after it,
    at the end of its step (where the step's last such event counts), or at the end of the step
    before (where the last write of KV counts)."""

    kind: str
    where: Literal["after", "end", "before"] = "after"
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Panel:
    """A cursor to draw, and the index of the event that it is about."""

    cursor: int
    event: int


FIGURES: dict[str, tuple[Place, ...]] = {
    "figure-1": (
        Place("block_allocated", "end"),
        Place("block_needed", "before"),
        Place("block_needed"),
    ),
    "figure-2": (
        Place("paused", "end"),
        Place("block_released", fields={"why": "preempted"}),
        Place("block_allocated", "end", {"why": "decode"}),
    ),
    "figure-3": (
        Place("preempted", "before"),
        Place("block_released", fields={"why": "preempted"}),
        Place("resumed", "end"),
    ),
    "figure-4": (
        Place("preempted", "before"),
        Place("swap_out_started"),
        Place("block_released", fields={"why": "swapped_out"}),
        Place("block_allocated", fields={"why": "restore"}),
        Place("swap_in_finished"),
        Place("resumed", "end"),
    ),
    "figure-5": (),
}
"""Design of the article's figures; figure 5 is its lanes over time."""


def panels_of(trace: Trace) -> list[Panel]:
    """The panels of a run's storyboard, in the order of time; none for a figure that is all lanes."""
    places = FIGURES.get(trace.name)
    if places is not None:
        found = [find(trace, place) for place in places]
        if all(found):
            return in_order(panel for panel in found if panel)
    start, stop = lesson_range(trace)
    told = moments(trace)
    inside = [one for one in told if start < one.cursor <= stop] or told
    kinds = [one.kind for one in inside]
    times = [kinds[:at].count(kind) for at, kind in enumerate(kinds)]
    # One of each kind before any comes again, the heaviest first.
    order = sorted(zip(times, inside, strict=True), key=lambda pair: (pair[0], -pair[1].weight))
    return in_order(Panel(one.cursor, one.event) for _, one in order)


def in_order(panels: Any) -> list[Panel]:
    """At most MOST of them, each cursor once, by cursor."""
    found: dict[int, Panel] = {}
    for panel in panels:
        if len(found) < MOST:
            found.setdefault(panel.cursor, panel)
    return [found[cursor] for cursor in sorted(found)]


def find(trace: Trace, place: Place) -> Panel | None:
    """The panel of a place, or None where the run has no such event."""
    events: Sequence[dict[str, Any]] = trace.events
    for at, event in enumerate(events):
        if event["kind"] != place.kind or not place.fields.items() <= event.items():
            continue
        if place.where == "after":
            return Panel(at + 1, at)
        span = next(step for step in trace.steps if step["step"] == event["step"])
        if place.where == "end":
            return Panel(span["end"], last(events, span["end"], place.kind, place.fields) or at)
        written = last(events, span["first"], "kv_written", {})
        return None if written is None else Panel(span["first"], written)
    return None


def last(
    events: Sequence[dict[str, Any]], cursor: int, kind: str, fields: dict[str, Any]
) -> int | None:
    """Index of the last event before a cursor that fits."""
    for at in range(cursor - 1, -1, -1):
        if events[at]["kind"] == kind and fields.items() <= events[at].items():
            return at
    return None


def cursor_at(trace: Trace, cursor: int | None, step: int | None) -> int:
    """The cursor that was asked for; without one, the end of the lesson's part of the run.

    Raises BadInput for one outside of the run, and for both at once.
    """
    if cursor is not None and step is not None:
        raise BadInput("--cursor and --step: give one of them.")
    if step is not None:
        numbers = [entry["step"] for entry in trace.steps]
        if step not in numbers:
            raise BadInput(f"--step {step}: the run has the steps {numbers[0]} to {numbers[-1]}.")
        return trace.cursor_of(step)
    if cursor is None:
        return lesson_range(trace)[1]
    if not 0 <= cursor <= len(trace.events):
        raise BadInput(f"--cursor {cursor}: the run has the cursors 0 to {len(trace.events)}.")
    return cursor
