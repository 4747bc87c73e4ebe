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

from kvlab.errors import BadInput
from kvlab.lessons import cost
from kvlab.trace.document import Trace
from kvlab.widgets import charts

HERE = Path(__file__).parent
MEMORY_TITLE = "Memory over the steps"
GAPS_TITLE = "What each user waits for"
COST_TITLE = "Modelled: which method brings a request back sooner"


class Chart(anywidget.AnyWidget):
    """A figure in a light and a dark look, with the sentence that says its numbers."""

    _esm = (HERE / "chart.js").read_text("utf-8")
    _css = (HERE / "chart.css").read_text("utf-8")

    light = traitlets.Dict(help="The figure for a light page, as plotly's JSON.").tag(sync=True)
    dark = traitlets.Dict(help="The same figure for a dark page.").tag(sync=True)
    title = traitlets.Unicode("", help="What the chart shows.").tag(sync=True)
    caption = traitlets.Unicode("", help="The chart's numbers in words.").tag(sync=True)

    def show(self, title: str, caption: str, draw: Callable[[charts.Look], go.Figure]) -> None:
        """Replace what is on show, in one message."""
        looks = {name: plain(draw(look)) for name, look in charts.LOOKS.items()}
        with self.hold_sync():
            self.set_trait("title", title)
            self.set_trait("caption", caption)
            self.set_trait("light", looks["light"])
            self.set_trait("dark", looks["dark"])

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The widget, and beside it the sentence for readers without a widget manager."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        words = {
            "text/plain": f"{self.title}. {self.caption}",
            "text/html": f"<p><b>{escape(self.title)}</b></p><p>{escape(self.caption)}</p>",
        }
        return data | words, metadata


def plain(figure: go.Figure) -> dict[str, Any]:
    """A figure as JSON data: plain lists, no arrays of a library."""
    data: dict[str, Any] = json.loads(figure.to_json())
    return data


def memory_chart(trace: Trace, chart: Chart | None = None) -> Chart:
    """KV per request and free blocks over the steps; into `chart` when one is given."""
    chart = chart or Chart()
    chart.show(
        MEMORY_TITLE, charts.memory_sentence(trace), lambda look: charts.memory_figure(trace, look)
    )
    return chart


def gaps_chart(trace: Trace, chart: Chart | None = None) -> Chart:
    """The gaps between outputs, split; into `chart` when one is given."""
    chart = chart or Chart()
    chart.show(
        GAPS_TITLE, charts.gaps_sentence(trace), lambda look: charts.gaps_figure(trace, look)
    )
    return chart


def cost_chart(machine: str, chart: Chart | None = None, model: str = cost.LLAMA.name) -> Chart:
    """The modelled crossover on a machine of `cost.MACHINES`, for a model of `cost.MODELS`. Raises
    BadInput for another."""
    for what, name, known in (("machine", machine, cost.MACHINES), ("model", model, cost.MODELS)):
        if name not in known:
            raise BadInput(f"{what} {name!r}: choose {' or '.join(known)}.")
    chart, on, of = chart or Chart(), cost.MACHINES[machine], cost.MODELS[model]
    chart.show(
        COST_TITLE,
        charts.cost_sentence(on, of),
        lambda look: charts.cost_figure(on, look, of),
    )
    return chart
