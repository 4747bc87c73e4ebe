"""The picture of a run at a cursor, as an SVG file. A pure function of (trace, cursor)."""

from __future__ import annotations

from kvlab.draw.stills import pools, requests
from kvlab.draw.stills.lanes import MOST_STEPS, lanes
from kvlab.draw.stills.marks import hue
from kvlab.draw.stills.scene import Scene
from kvlab.draw.stills.svg import Drawing, Theme, cut, text_width, wrapped
from kvlab.errors import BadInput
from kvlab.trace.document import Trace
from kvlab.trace.narration import load_words
from kvlab.trace.speech import LANGUAGE, Speech

WIDTH = 1200
MARGIN = 32


def picture(
    trace: Trace, cursor: int, theme: Theme, *, language: str = "en", title: str = ""
) -> str:
    """Pools, block tables, requests, what happened, and the lanes over time.

    `title` stands above it; empty: the scenario's. Raises BadInput for a cursor outside of the run
    or a language without words.
    """
    if not 0 <= cursor <= len(trace.events):
        raise BadInput(f"cursor {cursor}: the run has the cursors 0 to {len(trace.events)}.")
    scene = Scene(trace, cursor, load_words(language))
    drawing = Drawing(theme)
    name = title or title_of(trace, language)
    high = paint(drawing, scene, name)
    return drawing.as_svg(WIDTH, high, name, scene.described())


def paint(drawing: Drawing, scene: Scene, name: str) -> float:
    """All of a scene, `name` above it; returns its height."""
    trace, x, w = scene.trace, MARGIN, WIDTH - 2 * MARGIN
    y = MARGIN - 6 + header(drawing, scene, x, MARGIN - 6, w, name, where=scene.where())
    left, middle = 380, 280
    high = pools.gpu_pool(drawing, scene, x, y, left, pools.NUMBERED)
    if scene.state["host_blocks"]:
        high += 16 + pools.host_pool(drawing, scene, x, y + high + 16, left)
    tables = requests.tables(drawing, scene, x + left + 32, y, middle)
    rest = w - left - middle - 64
    cards = requests.cards(drawing, scene, x + left + middle + 64, y, rest)
    y += max(high, tables, cards) + 20
    y += narration(drawing, scene, x, y, w) + 20
    if len(trace.steps) <= MOST_STEPS:
        y += lanes(drawing, scene, x, y, w)
    return y + MARGIN - 8


def title_of(trace: Trace, language: str = LANGUAGE) -> str:
    """The scenario's title, in the language where it is one of ours; its name without one."""
    scenario = trace.document["scenario"]
    return Speech(language).shipped(str(scenario["title"] or scenario["name"]))


def header(
    drawing: Drawing, scene: Scene, x: float, y: float, w: float, title: str, *, where: str
) -> float:
    """Title, method, where the run comes from; at the right end where the cursor stands."""
    theme = drawing.theme
    room = w - text_width(where, bold=True) - 24
    title = cut(title, room * 0.6, 16)
    drawing.text(x, y + 18, title, 16, bold=True)
    left = x + text_width(title, 16, bold=True) + 12
    method = scene.say(f"method_{scene.trace.document['scenario']['engine']['method']}")
    wide = text_width(method, bold=True) + 18
    drawing.rect(left, y + 2, wide, 22, rx=11, stroke=theme.line)
    drawing.text(left + wide / 2, y + 17, method, bold=True, anchor="middle")
    left += wide + 12
    drawing.text(left, y + 17, cut(scene.origin(), max(0.0, x + room - left)), soft=True)
    drawing.text(x + w, y + 17, where, bold=True, anchor="end")
    return 46


def narration(drawing: Drawing, scene: Scene, x: float, y: float, w: float) -> float:
    """The sentence about the event, beside its request's colour."""
    lines = wrapped(scene.sentence, w - 40, 16, most=4)
    high = 24 + 23 * len(lines)
    owner = scene.owners.get(scene.touched.id or "")
    drawing.rect(x, y, w, high, rx=8, fill=drawing.theme.raised)
    bar = hue(drawing, owner) if owner else drawing.theme.edge
    drawing.rect(x, y, 4, high, fill=bar)
    for at, line in enumerate(lines):
        drawing.text(x + 20, y + 28 + 23 * at, line, 16)
    return high
