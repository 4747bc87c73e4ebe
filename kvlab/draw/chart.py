"""A chart on a page: a few kilobytes of figure, drawn by the plotly renderer that the host has.

plotly's own FigureWidget carries all of plotly.js in its state, 5 MB for each chart. JupyterLab
and Voilà serve that code once, as the renderer of plotly's mime type; this widget asks them to
draw, and again when the figure or the page's light and dark change.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import anywidget
import plotly.graph_objects as go
import traitlets

from kvlab.draw.chart_look import LOOKS, Look
from kvlab.draw.notebook_still import Bundle, Kept, with_still
from kvlab.draw.stills.chart import still
from kvlab.trace.speech import ENGLISH, Speech

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Drawing:
    """What a chart shows in one language: title, the sentence with its numbers, and the figure."""

    title: str
    caption: str
    figure: Callable[[Look], go.Figure]


class Chart(Kept, anywidget.AnyWidget):
    """A figure in a light and a dark look, with the sentence that says its numbers."""

    _esm = (HERE / "chart.js").read_text("utf-8")
    _css = (HERE / "chart.css").read_text("utf-8")

    light = traitlets.Dict(help="The figure for a light page, as plotly's JSON.").tag(sync=True)
    dark = traitlets.Dict(help="The same figure for a dark page.").tag(sync=True)
    title = traitlets.Unicode("", help="What the chart shows.").tag(sync=True)
    caption = traitlets.Unicode("", help="The chart's numbers in words.").tag(sync=True)

    def show(self, draw: Callable[[Speech], Drawing], speech: Speech = ENGLISH) -> Chart:
        """Replace what is on show, in one message."""
        self._draw = draw
        drawing = draw(speech)
        looks = {name: plain(drawing.figure(look)) for name, look in LOOKS.items()}
        with self.hold_sync():
            self.set_trait("title", drawing.title)
            self.set_trait("caption", drawing.caption)
            self.set_trait("light", looks["light"])
            self.set_trait("dark", looks["dark"])
        return self

    def speak(self, speech: Speech) -> None:
        """The same in another language."""
        self.language = speech.language
        self.show(self._draw, speech)

    def _repr_mimebundle_(self, **kwargs: Any) -> Bundle:
        """The widget, and its still and sentence for readers without a kernel."""
        looks = {"light": self.light, "dark": self.dark}
        picture = still(self.title, self.caption, looks) if self.light else ""
        words = f"<p><b>{escape(self.title)}</b></p>{picture}<p>{escape(self.caption)}</p>"
        return with_still(self, words, f"{self.title}. {self.caption}")


def plain(figure: go.Figure) -> dict[str, Any]:
    """A figure as JSON data: plain lists, no arrays of a library."""
    data: dict[str, Any] = json.loads(figure.to_json())
    return data
