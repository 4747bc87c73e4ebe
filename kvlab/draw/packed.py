"""A trace as it travels to the page: everything that a picture needs, found once, in Python.

The page applies changes and fills sentences; it knows no rule of the engine. What stands in it:

    scenario, run, model, pool, tokens, recorded    as in the trace, as far as they are shown
    requests    of each: id, prompt, and the marks by which it is recognised
    steps       [number, cursor at its end, event that tells it]
    says        [key of the words, names of the values, kind of event] that the rows refer to
    rows        an event each: [index in says, index of the request or null, [values, touched, steps
                back to its cause (0: none), changes]]. Numbers stand as differences to the row before
                of the same words and request (`differences`), which makes a long run small.
    timeline, marks, moments, questions, notes, teaching, measured    see below

`changes` are those of kvlab.trace.changes, the operation and names as their index in `NAMES`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from kvlab.course.question import Question, Said, Text
from kvlab.course.questions import questions
from kvlab.draw.stills.marks import owners_of
from kvlab.trace import replay
from kvlab.trace.causes import Past
from kvlab.trace.changes import Change, new_request
from kvlab.trace.document import Trace
from kvlab.trace.measured import same_bytes, writes_before
from kvlab.trace.moments import grain, moments, telling
from kvlab.trace.narration import arguments, fields_of, known_key, load_words
from kvlab.trace.ranges import lesson_notes, lesson_range, teachers_notes
from kvlab.trace.timeline import Timeline
from kvlab.trace.touched import Touched, touched

FORMAT = "kvlab-picture"
VERSION = 1

NAMES = (
    *("state", "blocks", "host_blocks", "request", "arrive", "splice", "write", "mark", "copy"),
    *("step", "free", "host_free", "in_flight"),
    *("status", "owners", "owner", "cached", "damaged", "copy"),
    *("method", "history", "kv", "host_kv", "delivered", "outputs", "table", "host_table"),
    *("preemptions", "unmet", "finish", "batch"),
    *("id", "how", "live"),
)
"""Operations, then what they change. The page has the list from here."""
INDEX = {name: at for at, name in enumerate(NAMES)}

MARKS = {
    "block_allocated": "allocated",
    "preempted": "preempted",
    "paused": "preempted",
    "swap_out_started": "copied",
    "swap_in_started": "copied",
    "resumed": "resumed",
    "finished": "finished",
}
"""What the slider marks."""
MOST_MARKS = 240
HALTS = ("preempted", "paused", "resumed", "damage_found", "storm_detected")
"""Events at which playing pauses: something a reader should look at."""

Event = dict[str, Any]
to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def pack(document: dict[str, Any]) -> bytes:
    """The packed trace as JSON, deflated."""
    return zlib.compress(packed_json(document).encode("utf-8", "replace"), 6)


def packed(document: dict[str, Any]) -> dict[str, Any]:
    """The packed trace as plain data."""
    found: dict[str, Any] = json.loads(packed_json(document))
    return found


def with_picture(trace: Trace) -> dict[str, Any]:
    """A run to be kept, and to be shown."""
    return {"trace": trace.document, "picture": packed(trace.document)}


def packed_json(document: dict[str, Any]) -> str:
    """The packed trace as JSON text."""
    trace = Trace(document)
    scenario = document["scenario"]
    lesson = scenario["lesson"]
    prompts = {request["id"]: request["prompt"] for request in document["requests"]}
    rows, says, timeline = events_of(trace, prompts)
    found, (start, stop) = moments(trace), lesson_range(trace)
    whole = {
        "format": FORMAT,
        "version": VERSION,
        "recorded": document["recorded"],
        "scenario": {name: scenario[name] for name in ("name", "title")}
        | {"method": scenario["engine"]["method"], "about": lesson.get("about")},
        "run": document["run"],
        "model": document["model"],
        "pool": document["pool"],
        "tokens": document["tokens"],
        "names": NAMES,
        "begin": begin_json(trace),
        "requests": [
            {
                "id": id,
                "prompt": prompts[id],
                "short": owner.short,
                "hue": owner.hue,
                "pattern": owner.pattern,
                "shape": owner.shape,
            }
            for id, owner in owners_of(list(prompts)).items()
        ],
        "steps": [
            [
                one["step"],
                one["end"],
                one["first"] + telling(trace.events[one["first"] : one["end"]]),
            ]
            for one in trace.steps
        ],
        "says": says,
        "timeline": timeline_json(timeline),
        **places(trace.events),
        "swaps": any(event["kind"] == "swap_out_started" for event in trace.events),
        "full": timeline.full,
        "moments": [[one.cursor, one.event, one.kind, one.weight] for one in found],
        "lesson": [start, stop, grain(found, start, stop)],
        "questions": [question_json(one) for one in questions(trace)],
        "asks": bool(lesson.get("questions")),
        "notes": sorted(lesson_notes(trace).items()),
        "teaching": sorted(teachers_notes(trace).items()),
        "measured": measured_json(trace),
    }
    return f'{to_json(whole)[:-1]},"rows":[{",".join(rows)}]}}'


def events_of(
    trace: Trace, prompts: dict[str, list[int]]
) -> tuple[list[str], list[list[Any]], Timeline]:
    """Rows as JSON, the words that they refer to, and the timeline, in one walk over the run."""
    place = {id: at for at, id in enumerate(prompts)}
    state, past, timeline = trace.state_at(0), Past(), Timeline.begin(trace.document)
    says: dict[str, int] = {}
    last: dict[tuple[int, int | None], list[Any]] = {}
    rows: list[str] = []
    for step in trace.steps:
        events = trace.events[step["first"] : step["end"]]
        for at, event in enumerate(events, step["first"]):
            key, who = event["say"], place.get(event.get("id", ""))
            say = says.setdefault(key, len(says))
            values = arguments(event)
            cause = past.tell(at, event)
            row = [
                [as_value(values.get(name)) for name in fields_of(key)],
                touched_json(touched(event, prompts), place),
                0 if cause is None else at - cause,
                [change_json(change, place) for change in replay.apply(state, event)],
            ]
            rows.append(to_json([say, who, differences(row, last.get((say, who)))]))
            last[say, who] = row
            timeline.see(state)
        timeline.end_step(events, state)
    words = load_words()
    known = [[known_key(key, words), fields_of(key), key.split(".")[0]] for key in says]
    return rows, known, timeline


def differences(value: Any, before: Any) -> Any:
    """A value with its whole numbers less those that stood in their places before; True for a list
    that is the same."""
    kind = type(value)
    if kind is int:
        return value - before if type(before) is int else value
    if kind is not list or type(before) is not list:
        return value
    if value == before:
        return True
    if len(value) > len(before):
        before = [*before, *[None] * (len(value) - len(before))]
    return list(map(differences, value, before))


def as_value(value: Any) -> Any:
    """A value of a sentence; what is no whole number as its text, which is what is read."""
    return str(value) if isinstance(value, float) else value


def change_json(change: Change, place: dict[str, int]) -> list[Any]:
    """A change as a list: the operation and names as indices, a request as its index, values by name
    as pairs."""
    operation, *rest = change
    match operation:
        case "state" | "blocks" | "host_blocks" | "request":
            of, values = rest
            pairs = (part for name, value in values.items() for part in (INDEX[name], value))
            rest = [place[of] if operation == "request" else of, *pairs]
        case "arrive":
            rest[0] = place[rest[0]]
        case "splice":
            rest[0], rest[1] = place[rest[0]], INDEX[rest[1]]
        case "write":
            rest[2] = place[rest[2]]
        case "mark":
            rest[0], rest[4] = INDEX[rest[0]], INDEX[rest[4]]
        case "copy":
            rest[0], rest[2] = INDEX[rest[0]], INDEX[rest[2]]
    return [INDEX[operation], *rest]


def touched_json(found: Touched, place: dict[str, int]) -> list[Any]:
    """[blocks, hosts, slots, entries, positions, unmet, others] without what is empty at the end."""
    parts: list[Any] = [
        list(found.blocks) or 0,
        list(found.hosts) or 0,
        list(found.slots or ()) or 0,
        list(found.entries or ()) or 0,
        list(found.positions or ()) or 0,
        int(found.unmet),
        [place[other] for other in found.others if other in place] or 0,
    ]
    while parts and not parts[-1]:
        parts.pop()
    return parts


def begin_json(trace: Trace) -> dict[str, Any]:
    """The state before the first event; a block of each pool as it is until something happens to it,
    and a request that arrives."""
    state = trace.state_at(0)
    return {
        "state": {
            name: state[name] for name in ("cursor", "step", "free", "host_free", "in_flight")
        },
        "blocks": state["blocks"].untouched,
        "host_blocks": state["host_blocks"].untouched,
        "request": new_request(0),
    }


def timeline_json(timeline: Timeline) -> dict[str, Any]:
    """Lanes in the order of the requests: segments [phase, from, to, tokens, restored], deliveries
    [index of the step, output, token], gaps [output before, steps, waiting, recovery], end."""
    return {
        "lanes": [
            [
                [[s.phase, s.start, s.stop, s.tokens, s.restored] for s in lane.segments],
                lane.deliveries,
                [[g.after, g.steps, g.waiting, g.recovery] for g in lane.gaps if g.steps > 1],
                lane.end,
            ]
            for lane in timeline.lanes.values()
        ],
        "free": timeline.free,
        "pools": timeline.pools,
    }


def places(events: Sequence[Event]) -> dict[str, Any]:
    """Cursors just after events that a reader may want to go to. In a long run only the rare ones
    are marked."""
    marks = [[at + 1, MARKS[e["kind"]]] for at, e in enumerate(events) if e["kind"] in MARKS]
    if len(marks) > MOST_MARKS:
        marks = [one for one in marks if one[1] in ("preempted", "resumed")][:MOST_MARKS]
    return {
        "marks": marks,
        "halts": after(e["kind"] in HALTS for e in events),
        "pauses": after(e["kind"] in ("preempted", "paused") for e in events),
        "preempted": after(e["kind"] == "preempted" for e in events),
        "fell_back": after(bool(e.get("fallback")) or e["kind"] == "copy_failed" for e in events),
    }


def after(fits: Iterable[bool]) -> list[int]:
    return [at + 1 for at, one in enumerate(fits) if one]


def question_json(one: Question) -> dict[str, Any]:
    return {
        "key": one.key,
        "at": one.at,
        "step": one.step,
        "ask": one.ask,
        "own": one.own,
        "text": text_json(one.text),
        "options": list(one.options),
        "answer": one.answer,
        "look": text_json(one.look),
    }


def text_json(text: Text) -> Any:
    """A text as it is, the index of an event, or [key, values]."""
    return [text.key, text.values] if isinstance(text, Said) else text


def measured_json(trace: Trace) -> dict[str, Any]:
    """Measurements as they are; the write before each that was rebuilt; and for each block that was
    brought back whether it has the bytes that were copied out."""
    return {
        "entries": trace.document["measurements"],
        "before": sorted(writes_before(trace).items()),
        "same": same_bytes(trace),
    }
