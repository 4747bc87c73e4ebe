"""An animation of a run: the pictures of its lesson's moments, one after the other, in one SVG file.

Each is a state of the run, shown for SECONDS; nothing is drawn between two of them. Who asks for
reduced motion sees the last one.
"""

from __future__ import annotations

from kvlab.draw.stills.picture import WIDTH, paint, title_of
from kvlab.draw.stills.scene import Scene
from kvlab.draw.stills.svg import Drawing, Theme, element
from kvlab.errors import BadInput
from kvlab.trace.document import Trace
from kvlab.trace.moments import grain, moments
from kvlab.trace.narration import load_words
from kvlab.trace.ranges import lesson_range

SECONDS = 3
"""A picture stands so long: a sentence of twenty words is read in it."""

MOST_PICTURES = 40


def animation(trace: Trace, theme: Theme, *, language: str = "en", title: str = "") -> str:
    """The moments of the lesson's part of the run (of a run without one: all), in a loop.

    `title` stands above; empty: the scenario's. Raises BadInput for a run with too many moments or a
    language without words.
    """
    start, stop = lesson_range(trace)
    least = grain(moments(trace), start, stop)
    found = [m for m in moments(trace) if start < m.cursor <= stop and m.weight >= least]
    shown = [(moment.cursor, moment.event) for moment in found]
    if not shown or shown[-1][0] < stop:
        shown.append((stop, max(0, stop - 1)))  # as the player, which stops at the end in any case
    if len(shown) > MOST_PICTURES:
        raise BadInput(
            f"--animation: the run has {len(shown)} moments, an animation holds {MOST_PICTURES}; "
            "take --html, which plays a run of any length."
        )
    drawing, words, high = Drawing(theme), load_words(language), 0.0
    name, said, pictures = title or title_of(trace, language), [], []
    for at, (cursor, event) in enumerate(shown):
        scene = Scene(trace, cursor, words, about=event)
        drawing.parts = []
        high = max(high, paint(drawing, scene, name))
        turn = {"class": "f", "style": f"animation-delay:{at * SECONDS}s"}
        pictures.append(element("g", "".join(drawing.parts), **turn))
        said.append(scene.sentence)
    drawing.parts = [element("style", style(len(pictures))), *pictures]
    return drawing.as_svg(WIDTH, high, name, " ".join(said))


def style(count: int) -> str:
    """Each of `count` pictures is opaque in its turn."""
    turn = 100 / max(1, count)
    return (
        f".f{{opacity:0;animation:f {count * SECONDS}s step-end infinite}}"
        f"@keyframes f{{0%{{opacity:1}}{turn:.3f}%{{opacity:0}}}}"
        "@media (prefers-reduced-motion:reduce){.f{animation:none}.f:last-of-type{opacity:1}}"
    )
