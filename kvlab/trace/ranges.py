"""What a lesson says of its run and at which place: its part of it, and notes."""

from __future__ import annotations

from typing import Any

from kvlab.trace.document import Trace


def lesson_notes(trace: Trace) -> dict[int, str]:
    """What the scenario's `lesson.narration` says, by the index of the event that it belongs to.

    An entry `{at: {step: 3, kind: preempted, id: B}, text: …}` belongs to the first event that has
    all those fields; one that no event fits, or of another form, says nothing.
    """
    found: dict[int, str] = {}
    for entry in entries(trace, "narration"):
        fields = entry["at"].items()
        fitting = (at for at, event in enumerate(trace.events) if fields <= event.items())
        at = next(fitting, None)
        if at is not None:
            found[at] = str(entry.get("text", ""))
    return found


def teachers_notes(trace: Trace) -> dict[int, list[str]]:
    """The teacher's notes, `lesson.notes`, by the index of the step: a list of `{at: {step: 3}, text:
    …}`, or texts by the number of the step."""
    notes = trace.document["scenario"]["lesson"].get("notes")
    listed = [(entry["at"].get("step"), entry.get("text")) for entry in entries(trace, "notes")]
    if isinstance(notes, dict):
        listed = [(int(step) if str(step).isdecimal() else None, t) for step, t in notes.items()]
    index = {step["step"]: at for at, step in enumerate(trace.steps)}
    found: dict[int, list[str]] = {}
    for step, text in listed:
        if isinstance(step, int) and step in index and isinstance(text, str):
            found.setdefault(index[step], []).append(text)
    return found


def entries(trace: Trace, name: str) -> list[dict[str, Any]]:
    """A lesson's list of things said at a place, as far as they have its form."""
    listed = trace.document["scenario"]["lesson"].get(name)
    fitting = listed if isinstance(listed, list) else []
    return [one for one in fitting if isinstance(one, dict) and isinstance(one.get("at"), dict)]


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
