"""A chart on a page: a few kilobytes of figure, drawn by the plotly renderer that the host has.

plotly's own FigureWidget carries all of plotly.js in its state, 5 MB for each chart. JupyterLab
and Voilà serve that code once, as the renderer of plotly's mime type; this widget asks them to
draw, and again when the figure or the page's light and dark change.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import anywidget
import plotly.graph_objects as go
import traitlets

from kvlab.draw.chart_look import LOOKS, Look
from kvlab.draw.seat import Bundle, seated

HERE = Path(__file__).parent


class Chart(anywidget.AnyWidget):
    """A figure in a light and a dark look, with the sentence that says its numbers."""

    _esm = (HERE / "chart.js").read_text("utf-8")
    _css = (HERE / "chart.css").read_text("utf-8")

    light = traitlets.Dict(help="The figure for a light page, as plotly's JSON.").tag(sync=True)
    dark = traitlets.Dict(help="The same figure for a dark page.").tag(sync=True)
    title = traitlets.Unicode("", help="What the chart shows.").tag(sync=True)
    caption = traitlets.Unicode("", help="The chart's numbers in words.").tag(sync=True)

    def show(self, title: str, caption: str, draw: Callable[[Look], go.Figure]) -> None:
        """Replace what is on show, in one message."""
        looks = {name: plain(draw(look)) for name, look in LOOKS.items()}
        with self.hold_sync():
            self.set_trait("title", title)
            self.set_trait("caption", caption)
            self.set_trait("light", looks["light"])
            self.set_trait("dark", looks["dark"])

    def _repr_mimebundle_(self, **kwargs: Any) -> Bundle:
        """The widget, and the sentence for readers without a kernel."""
        words = f"<p><b>{escape(self.title)}</b></p><p>{escape(self.caption)}</p>"
        return seated(self, words, f"{self.title}. {self.caption}")


def plain(figure: go.Figure) -> dict[str, Any]:
    """A figure as JSON data: plain lists, no arrays of a library."""
    data: dict[str, Any] = json.loads(figure.to_json())
    return data
