"""One axis of steps: each request's phases, its outputs as the user receives them, the pool after.

`timeline` is the twin of kvlab/draw/js/src/timeline.js; a test holds the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kvlab.draw.stills.marks import badge, badge_width, hatch, hue, tinted
from kvlab.draw.stills.pools import heading, icon
from kvlab.draw.stills.scene import Scene
from kvlab.draw.stills.svg import Drawing, cut, fit, text_width
from kvlab.trace import replay
from kvlab.trace.document import Trace
from kvlab.trace.facts import gaps
from kvlab.trace.gaps import Gap

MOST_STEPS = 40  # a longer run has no room for its steps side by side
MOST_LANES = 12
MOST_BLOCKS = 6  # drawn one by one below the steps
RAN = {"prefill", "decode", "recompute", "restore"}
WAITS = {
    "waiting": "waiting",
    "preempted": "preempted",
    "swapping_out": "swapped",
    "swapped": "swapped",
    "swapping_in": "swapped",
    "paused": "paused",
    "running": "stalled",
}
ROW = 32


@dataclass(slots=True)
class Segment:
    """A phase of a request from one step's index to another's, both included."""

    phase: str
    start: int
    stop: int
    tokens: int = 0
    restored: int | None = None


@dataclass(slots=True)
class Timeline:
    """Segments by request, deliveries (index of the step, output, token) by request, ends (index of the
    step, why) by request, and after each step the free blocks and the first owner of every block."""

    segments: dict[str, list[Segment]] = field(default_factory=dict)
    deliveries: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)
    pools: list[list[str | None]] = field(default_factory=list)
    ends: dict[str, tuple[int, str]] = field(default_factory=dict)


def timeline(trace: Trace, ids: list[str]) -> Timeline:
    """Every request's phases over the whole run."""
    found = Timeline({id: [] for id in ids}, {id: [] for id in ids})
    state = trace.state_at(0)
    arriving: dict[str, int] = {}  # swapped in by a copy under way: positions by request
    for at, step in enumerate(trace.steps):
        events = trace.events[step["first"] : step["end"]]
        ran: dict[str, dict[str, Any]] = {}
        for event in events:
            replay.apply(state, event)
            kind = event["kind"]
            if kind == "unscheduled":
                ran.pop(event["id"], None)
            elif kind == "scheduled":
                ran[event["id"]] = event
            elif kind == "swap_in_started":
                arriving[event["id"]] = event["kv"]
            elif kind == "token_delivered":
                found.deliveries[event["id"]].append((at, event["index"], event["token"]))
            elif kind == "finished":
                found.ends[event["id"]] = (at, event["why"])
        back = dict(arriving)
        for event in events:
            if event["kind"] in ("swap_in_finished", "copy_failed"):
                arriving.pop(event["id"], None)
        found.free.append(state["free"])
        found.pools.append([(block["owners"] or [None])[0] for block in state["blocks"]])
        for id, request in state["requests"].items():
            add_phase(found.segments[id], at, ran.get(id), back.get(id), request["state"])
    return found


def add_phase(
    segments: list[Segment],
    step: int,
    ran: dict[str, Any] | None,
    restored: int | None,
    state: str,
) -> None:
    if not ran and state == "finished":
        return
    phase = WAITS.get(state, "stalled")
    if restored:
        phase = "restore"
    elif ran:
        phase = ran["why"] if ran["why"] in RAN else "decode"
    tokens = ran["tokens"] if ran else 0
    last = segments[-1] if segments else None
    if last and last.phase == phase != "recompute" and last.stop == step - 1:
        last.stop, last.tokens = step, last.tokens + tokens
    else:
        segments.append(Segment(phase, step, step, tokens, restored))


def lanes(
    drawing: Drawing, scene: Scene, x: float, y: float, w: float, *, playhead: bool = True
) -> float:
    """The whole time picture; returns its height. `playhead` marks where the cursor stands."""
    line, theme = timeline(scene.trace, scene.ids), drawing.theme
    steps = scene.trace.steps
    ids = scene.ids[:MOST_LANES]
    longest = {id: [gap for gap in gaps(scene.trace) if gap.id == id] for id in ids}
    receivers = [id for id in ids if len(ids) <= 3 or any(gap.steps > 1 for gap in longest[id])]
    labels = [badge_width(scene.owners[id]) for id in ids]
    side = max(
        max(labels) + 10 + text_width(scene.say("receives")), text_width(scene.say("pool_after"))
    )
    left, col = x + side + 10, (w - side - 10) / len(steps)
    rows = len(ids) + len(receivers) + 1
    high = 28 + rows * ROW
    now = next((i for i, s in enumerate(steps) if s["step"] == scene.step), None)
    if playhead and now is not None:
        drawing.rect(left + now * col, y, col, high, fill=theme.now)
    heading(drawing, x, y + 2, w, scene.say("step"))
    for at, step in enumerate(steps):
        place = left + at * col
        drawing.line(place, y, place, y + high, stroke=theme.line)
        if len(steps) <= 24 or step["step"] % 5 == 0 or not at:
            bold = playhead and at == now
            drawing.text(place + 6, y + 17, str(step["step"]), bold=bold, soft=not bold)
    top = y + 28
    for id in ids:
        lane(drawing, scene, id, line, (x, top, left, col))
        top += ROW
    for id in receivers:
        received(drawing, scene, id, line, longest[id], (x, top, left, col))
        top += ROW
    pool_after(drawing, scene, line, (x, top, left, col))
    if playhead and now is not None:
        step = steps[now]
        part = (scene.cursor - step["first"]) / max(1, step["end"] - step["first"])
        place = left + (now + part) * col
        drawing.line(place, y + 24, place, y + high, stroke=theme.accent, stroke_width=2)
    return high


def lane(drawing: Drawing, scene: Scene, id: str, line: Timeline, box: tuple[float, ...]) -> None:
    x, y, left, col = box
    theme, owner = drawing.theme, scene.owners[id]
    own = hue(drawing, owner)
    badge(drawing, owner, x, y + 6)
    segments = line.segments[id]
    for segment in segments:
        a, b = left + segment.start * col + 1.5, left + (segment.stop + 1) * col - 1.5
        style: dict[str, Any] = {"stroke": own, "stroke_width": 1.5}
        ink, ground = own, theme.bg
        if segment.phase == "decode":
            style["fill"], ink, ground = hatch(drawing, owner), theme.ink, tinted(drawing, owner)
        elif segment.phase in RAN:
            style["fill"], ink, ground = own, theme.own_ink, own
        else:
            style |= {"fill": theme.bg, "stroke_dasharray": "4 3"}
        drawing.rect(a, y + 3, b - a, 26, rx=5, **style)
        label(drawing, scene, segment, (a + 6, y + 3, b - a - 10), ink, ground)
    if id in line.ends:
        step, why = line.ends[id]
        after = segments[-1].stop + 1 if segments else step
        words, columns = scene.say(f"state_finished_{why}"), len(scene.trace.steps) - after
        if columns > 0 and fit(words, min(columns, 3) * col - 8):
            drawing.text(left + after * col + 8, y + 20, words, soft=True)


def label(
    drawing: Drawing, scene: Scene, segment: Segment, box: tuple[float, ...], ink: str, ground: str
) -> None:
    """The phase in words where there is room, in short where there is little."""
    x, y, w = box
    sign = {"restore": "in", "swapped": "out", "recompute": "rebuilt"}.get(segment.phase)
    values = {"tokens": segment.tokens, "restored": segment.restored}
    words = scene.say(f"phase_{segment.phase}", **values)
    if sign and w > text_width(words, bold=True) + 18:
        icon(drawing, sign, x, y + 6.5, 13, ink)
        x, w = x + 18, w - 18
    if text_width(words, bold=True) > w and segment.start == segment.stop:
        words = scene.say(f"brief_{segment.phase}", **values)
    words = cut(words, w / 1.08)
    if len(words) < 3 and words.endswith("…"):
        return
    if segment.phase == "decode":
        wide = min(w, text_width(words, bold=True) * 0.86 + 8)
        drawing.rect(x - 4, y + 5, wide, 17, rx=3, fill=ground)
    drawing.text(x, y + 17, words, bold=True, fill=ink)


def received(
    drawing: Drawing,
    scene: Scene,
    id: str,
    line: Timeline,
    waits: list[Gap],
    box: tuple[float, ...],
) -> None:
    """Outputs in the steps that delivered them, and the gaps between them in words."""
    x, y, left, col = box
    theme, owner = drawing.theme, scene.owners[id]
    own, middle = hue(drawing, owner), y + ROW / 2
    wide = badge(drawing, owner, x, y + 6)
    drawing.text(x + wide + 6, y + 20, scene.say("receives"), soft=True)
    place = {index: left + (step + 0.5) * col for step, index, _ in line.deliveries[id]}
    for gap in waits:
        if gap.steps < 2 or gap.after not in place or gap.after + 1 not in place:
            continue
        a, b = place[gap.after], place[gap.after + 1]
        drawing.line(a, middle, b, middle, stroke=own, stroke_width=2, stroke_dasharray="2 3")
        text = scene.say("gap", steps=gap.steps)
        if gap.recovery:
            parts = {"steps": gap.steps, "waiting": gap.waiting, "recovery": gap.recovery}
            text = scene.say("gap_split", **parts)
        text = text if fit(text, b - a - 90) else scene.say("gap", steps=gap.steps)
        room = text_width(text) + 12
        if room < b - a - 60:
            center = (a + b) / 2
            drawing.rect(center - room / 2, middle - 9, room, 18, rx=4, fill=theme.bg)
            drawing.text(center, middle + 4.3, text, anchor="middle")
    for step, index, token in line.deliveries[id]:
        if col < 30:
            drawing.add("circle", cx=place[index], cy=middle, r=4, fill=own)
            continue
        output(drawing, scene, index, token, (left + step * col, y, col), own)


def output(
    drawing: Drawing, scene: Scene, index: int, token: int, box: tuple[float, ...], own: str
) -> None:
    """`x2 kitchen` in a pill; without the text where there is no room for it."""
    x, y, col = box
    document = scene.trace.document
    text = "" if document["model"]["stand_in"] else document["tokens"][str(token)].strip()
    text = cut(text, 80)
    name = f"x{index}"
    bold = text_width(name, bold=True)
    if bold + text_width(text) + 20 > col:
        text = ""
    wide = bold + (text_width(text) + 6 if text else 0) + 12
    left = x + (col - wide) / 2
    drawing.rect(left, y + 5, wide, 22, rx=11, stroke=own, stroke_width=1.5, fill=drawing.theme.bg)
    drawing.text(left + 7, y + 20, name, bold=True)
    if text:
        drawing.text(left + 7 + bold + 3, y + 20, text)


def pool_after(drawing: Drawing, scene: Scene, line: Timeline, box: tuple[float, ...]) -> None:
    """The pool after each step, block by block in its place, and how many of them are free."""
    x, y, left, col = box
    theme = drawing.theme
    total = len(line.pools[0])
    drawing.text(x, y + 20, scene.say("pool_after"), soft=True)
    for at, free in enumerate(line.free):
        place = left + at * col + 6
        if total <= MOST_BLOCKS and total * 20 + 24 < col:
            for id in line.pools[at]:
                owner = scene.owners.get(id) if id else None
                if owner:
                    fill, stroke = tinted(drawing, owner), hue(drawing, owner)
                    drawing.rect(place, y + 7, 17, 17, rx=4, stroke=stroke, fill=fill)
                    drawing.text(place + 8.5, y + 20, owner.short[:1], anchor="middle")
                else:
                    drawing.rect(
                        place, y + 7, 17, 17, rx=4, stroke=theme.edge, stroke_dasharray="3 2"
                    )
                place += 20
            place += 2
        elif col >= 30:
            high = 18 * free / total
            drawing.rect(place, y + 6.5, 8, 18, stroke=theme.edge)
            drawing.rect(place, y + 24.5 - high, 8, high, fill=theme.ink)
            place += 12
        words = f"{free} {scene.say('free')}"
        room = left + (at + 1) * col - place
        if fit(words, room):
            drawing.text(place, y + 20, words)
        elif col >= 18 or at % 4 == 0:
            drawing.text(place, y + 20, str(free), bold=True)
