"""Where a lesson's part of its run begins and ends."""

from __future__ import annotations

from typing import Any

from kvlab.errors import BadInput
from kvlab.trace.document import Trace


def lesson_notes(trace: Trace) -> dict[int, str]:
    """What the scenario's `lesson.narration` says, by the index of the event that it belongs to.

    An entry `{at: {step: 3, kind: preempted, id: B}, text: …}` belongs to the first event that has
    all those fields; one that no event fits says nothing. Raises BadInput for an entry of another form.
    """
    notes: dict[int, str] = {}
    for place, entry in enumerate(trace.document["scenario"]["lesson"].get("narration", [])):
        if not isinstance(entry, dict) or not isinstance(entry.get("at"), dict):
            raise BadInput(f"lesson.narration.{place} must be {{at: {{…}}, text: …}}.")
        fields = entry["at"].items()
        found = (at for at, event in enumerate(trace.events) if fields <= event.items())
        at = next(found, None)
        if at is not None:
            notes[at] = str(entry["text"])
    return notes


def lesson_range(trace: Trace) -> tuple[int, int]:
    """Cursors (opens, stops) of a run's lesson; the whole run where the lesson names none.

    `lesson.opens: {step: 3}` is the moment before the step's first event; `lesson.stops: {step: 3,
    kind: block_needed}` the moment after the step's last event that fits (of any kind without one).
    A run that was changed so much that the place does not exist shows from its first to its last
    event.
    """
    lesson: dict[str, Any] = trace.document["scenario"]["lesson"]
    opens, stops = lesson.get("opens"), lesson.get("stops")
    first = 0
    if opens:
        first = next((s["first"] for s in trace.steps if s["step"] == opens["step"]), 0)
    last = len(trace.events)
    if stops:
        last = next((s["end"] for s in trace.steps if s["step"] == stops["step"]), last)
        if "kind" in stops:
            fitting = [
                at + 1
                for at, event in enumerate(trace.events[:last])
                if event["step"] == stops["step"] and event["kind"] == stops["kind"]
            ]
            last = fitting[-1] if fitting else last
    return min(first, last), last
