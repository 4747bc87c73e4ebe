"""One axis of steps: each request's phases, its outputs as the user receives them, the pool after."""

from __future__ import annotations

from typing import Any

from kvlab.draw.stills.marks import badge, badge_width, hatch, hue, tinted
from kvlab.draw.stills.pools import heading, icon
from kvlab.draw.stills.scene import Scene
from kvlab.draw.stills.svg import Drawing, cut, fit, text_width
from kvlab.trace.timeline import RAN, Lane, Segment, Timeline

MOST_STEPS = 40  # a longer run has no room for its steps side by side
MOST_LANES = 12
ROW = 32


def lanes(
    drawing: Drawing, scene: Scene, x: float, y: float, w: float, *, playhead: bool = True
) -> float:
    """The whole time picture; returns its height. `playhead` marks where the cursor stands."""
    line, theme = scene.timeline, drawing.theme
    steps = scene.trace.steps
    ids = scene.ids[:MOST_LANES]
    late = {id for id in ids if any(gap.steps > 1 for gap in line.lanes[id].gaps)}
    receivers = [id for id in ids if len(ids) <= 3 or id in late]
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
        lane(drawing, scene, id, line.lanes[id], (x, top, left, col))
        top += ROW
    for id in receivers:
        received(drawing, scene, id, line.lanes[id], (x, top, left, col))
        top += ROW
    pool_after(drawing, scene, line, (x, top, left, col))
    if playhead and now is not None:
        step = steps[now]
        part = (scene.cursor - step["first"]) / max(1, step["end"] - step["first"])
        place = left + (now + part) * col
        drawing.line(place, y + 24, place, y + high, stroke=theme.accent, stroke_width=2)
    return high


def lane(drawing: Drawing, scene: Scene, id: str, line: Lane, box: tuple[float, ...]) -> None:
    x, y, left, col = box
    theme, owner = drawing.theme, scene.owners[id]
    own = hue(drawing, owner)
    badge(drawing, owner, x, y + 6)
    segments = line.segments
    for segment in segments:
        a, b = left + segment.start * col + 1.5, left + (segment.stop + 1) * col - 1.5
        style: dict[str, Any] = {"stroke": own, "stroke_width": 1.5}
        ink, ground = own, theme.bg
        if segment.phase == "decode":
            style["fill"], ink, ground = hatch(drawing, owner), theme.ink, tinted(drawing, owner)
        elif segment.phase in (*RAN, "restore"):
            style["fill"], ink, ground = own, theme.own_ink, own
        else:
            style |= {"fill": theme.bg, "stroke_dasharray": "4 3"}
        drawing.rect(a, y + 3, b - a, 26, rx=5, **style)
        label(drawing, scene, segment, (a + 6, y + 3, b - a - 10), ink, ground)
    if line.end:
        step, why = line.end
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
    line: Lane,
    box: tuple[float, ...],
) -> None:
    """Outputs in the steps that delivered them, and the gaps between them in words."""
    x, y, left, col = box
    theme, owner = drawing.theme, scene.owners[id]
    own, middle = hue(drawing, owner), y + ROW / 2
    wide = badge(drawing, owner, x, y + 6)
    drawing.text(x + wide + 6, y + 20, scene.say("receives"), soft=True)
    place = {index: left + (step + 0.5) * col for step, index, _ in line.deliveries}
    for gap in line.gaps:
        if gap.steps < 2 or gap.after not in place or gap.after + 1 not in place:
            continue
        a, b = place[gap.after], place[gap.after + 1]
        drawing.line(a, middle, b, middle, stroke=own, stroke_width=2, stroke_dasharray="2 3")
        text = scene.say("gap", steps=gap.steps)
        if gap.waiting:
            key = "gap_split" if gap.recovery else "gap_waiting"
            parts = {"steps": gap.steps, "waiting": gap.waiting, "recovery": gap.recovery}
            text = scene.say(key, **parts)
        text = text if fit(text, b - a - 90) else scene.say("gap", steps=gap.steps)
        room = text_width(text) + 12
        if room < b - a - 60:
            center = (a + b) / 2
            drawing.rect(center - room / 2, middle - 9, room, 18, rx=4, fill=theme.bg)
            drawing.text(center, middle + 4.3, text, anchor="middle")
    for step, index, token in line.deliveries:
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
    total = scene.trace.document["pool"]["num_blocks"]
    drawing.text(x, y + 20, scene.say("pool_after"), soft=True)
    for at, free in enumerate(line.free):
        place = left + at * col + 6
        if line.pools and total * 20 + 24 < col:
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
