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
from kvlab.trace.ranges import lesson_range

MOST = 6


@dataclass(frozen=True, slots=True)
class Moment:
    """An event of a kind with these fields, the first of the run, and where to look: right after it,
    at the end of its step (where the step's last such event counts), or at the end of the step
    before (where the last write of KV counts)."""

    kind: str
    place: Literal["after", "end", "before"] = "after"
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Panel:
    """A cursor to draw, and the index of the event that it is about."""

    cursor: int
    event: int


FIGURES: dict[str, tuple[Moment, ...]] = {
    "figure-1": (
        Moment("block_allocated", "end"),
        Moment("block_needed", "before"),
        Moment("block_needed"),
    ),
    "figure-2": (
        Moment("paused", "end"),
        Moment("block_released", fields={"why": "preempted"}),
        Moment("block_allocated", "end", {"why": "decode"}),
    ),
    "figure-3": (
        Moment("preempted", "before"),
        Moment("block_released", fields={"why": "preempted"}),
        Moment("resumed", "end"),
    ),
    "figure-4": (
        Moment("preempted", "before"),
        Moment("swap_out_started"),
        Moment("block_released", fields={"why": "swapped_out"}),
        Moment("block_allocated", fields={"why": "restore"}),
        Moment("swap_in_finished"),
        Moment("resumed", "end"),
    ),
    "figure-5": (),
}
"""Design of the article's figures; figure 5 is its lanes over time."""

KEY_MOMENTS = (
    Moment("preempted"),
    Moment("paused"),
    Moment("damage_found"),
    Moment("storm_detected"),
    Moment("swap_out_started"),
    Moment("block_shared"),
    Moment("resumed", "end"),
    Moment("block_needed"),
    Moment("block_released"),
    Moment("block_allocated", "end"),
    Moment("finished"),
)
"""Of any other run, the most telling first."""


def panels_of(trace: Trace) -> list[Panel]:
    """The panels of a run's storyboard, in the order of time; none for a figure that is all lanes."""
    moments = FIGURES.get(trace.name)
    if moments is not None:
        found = [find(trace, moment, 0) for moment in moments]
        if all(found):
            return in_order(panel for panel in found if panel)
    start, stop = lesson_range(trace)
    for first, last in ((start, stop), (0, len(trace.events))):
        tried = (find(trace, moment, first, last) for moment in KEY_MOMENTS)
        chosen = in_order(panel for panel in tried if panel)
        if chosen:
            return chosen
    return [Panel(len(trace.events), len(trace.events) - 1)] if trace.events else []


def in_order(panels: Any) -> list[Panel]:
    """At most MOST of them, each cursor once, by cursor."""
    found: dict[int, Panel] = {}
    for panel in panels:
        if len(found) < MOST:
            found.setdefault(panel.cursor, panel)
    return [found[cursor] for cursor in sorted(found)]


def find(trace: Trace, moment: Moment, start: int, stop: int | None = None) -> Panel | None:
    """The panel of a moment between two cursors, or None where the run has no such event."""
    events: Sequence[dict[str, Any]] = trace.events
    for at in range(start, len(events) if stop is None else stop):
        event = events[at]
        if event["kind"] != moment.kind or not moment.fields.items() <= event.items():
            continue
        if moment.place == "after":
            return Panel(at + 1, at)
        span = next(step for step in trace.steps if step["step"] == event["step"])
        if moment.place == "end":
            return Panel(span["end"], last(events, span["end"], moment.kind, moment.fields) or at)
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
