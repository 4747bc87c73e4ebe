"""A storyboard: the panels of a figure, or a run's key moments, side by side in one SVG file."""

from __future__ import annotations

from string import ascii_lowercase

from kvlab.draw.stills import pools, requests
from kvlab.draw.stills.lanes import MOST_STEPS, lanes
from kvlab.draw.stills.panels import FIGURES, Panel, panels_of
from kvlab.draw.stills.picture import MARGIN, header, title_of
from kvlab.draw.stills.scene import Scene
from kvlab.draw.stills.svg import Drawing, Theme, wrapped
from kvlab.trace.document import Trace
from kvlab.trace.narration import load_words

PANEL = 408  # pixels wide
GAP = 32
MOST_REQUESTS = 4  # of a panel
LANES = 1136  # pixels


def storyboard(trace: Trace, theme: Theme, *, language: str = "en", title: str = "") -> str:
    """The panels, then the lanes over time where a figure has no panels or is not one of ours.

    `title` stands above them; empty: the scenario's. Raises BadInput for a language without words.
    """
    words = load_words(language)
    drawing, panels = Drawing(theme), panels_of(trace)
    scenes = [Scene(trace, panel.cursor, words, MOST_REQUESTS, panel.event) for panel in panels]
    end = Scene(trace, len(trace.events), words, MOST_REQUESTS)
    with_lanes = len(trace.steps) <= MOST_STEPS and not FIGURES.get(trace.name)
    across = {1: 1, 2: 2, 4: 2}.get(len(panels), 3)
    width = across * (PANEL + GAP) - GAP
    width = max(width, LANES) if with_lanes or len(panels) == 1 else width
    name = title or title_of(trace, language)
    y = MARGIN - 6 + board_header(drawing, end, MARGIN, MARGIN - 6, width, name)
    for row in range(0, len(panels), across):
        shown = list(zip(panels, scenes, strict=True))[row : row + across]
        texts = [wrapped(scene.sentence, PANEL - 12, 13, most=6) for _, scene in shown]
        room = max(map(len, texts))
        high = 0.0
        for at, (panel, scene) in enumerate(shown):
            place = (MARGIN + at * (PANEL + GAP), y)
            letter = ascii_lowercase[row + at]
            high = max(high, draw(drawing, scene, panel, letter, texts[at], room, place))
        y += high + 20
    if with_lanes:
        y += lanes(drawing, end, MARGIN, y, width, playhead=False) + 20
    described = [f"{ascii_lowercase[at]}: {scene.described()}" for at, scene in enumerate(scenes)]
    description = " ".join(described) or end.described()
    return drawing.as_svg(width + 2 * MARGIN, y + MARGIN - 24, name, description)


def board_header(drawing: Drawing, scene: Scene, x: float, y: float, w: float, title: str) -> float:
    if w > 700:
        return header(drawing, scene, x, y, w, title, where=scene.trace.name)
    drawing.text(x, y + 18, title, 16, bold=True)
    drawing.text(x, y + 36, scene.origin(), soft=True)
    return 58


def draw(
    drawing: Drawing,
    scene: Scene,
    panel: Panel,
    letter: str,
    lines: list[str],
    room: int,
    place: tuple[float, float],
) -> float:
    """One panel: letter and step, what happened, pools, block tables, requests."""
    x, y = place
    ended = any(step["end"] == panel.cursor for step in scene.trace.steps)
    when = scene.say("after_step" if ended else "during_step", step=scene.step)
    drawing.add("circle", cx=x + 11, cy=y + 11, r=11, fill=drawing.theme.ink)
    drawing.text(x + 11, y + 15.5, letter, 13, bold=True, anchor="middle", fill=drawing.theme.bg)
    drawing.text(x + 30, y + 16, when, 14, bold=True)
    drawing.text(
        x + PANEL, y + 16, scene.say("event_of", event=panel.cursor, events=len(scene.trace.events)),
        anchor="end", soft=True,
    )  # fmt: skip
    for at, line in enumerate(lines):
        drawing.text(x, y + 42 + 18 * at, line, 13)
    top = y + 42 + 18 * room
    top += pools.gpu_pool(drawing, scene, x, top, PANEL, pools.PANEL) + 8
    if scene.uses_host:
        top += pools.host_pool(drawing, scene, x, top, PANEL) + 8
    top += requests.tables(drawing, scene, x, top, PANEL) + 4
    return top + requests.cards(drawing, scene, x, top, PANEL, narrow=True) - y
