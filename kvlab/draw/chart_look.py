"""How every chart looks: colours on light and dark ground, patterns, layout, numbers in words.

A request has the player's hue and pattern (kvlab/draw/js/src/player.css and owners.js; a test
holds the colours equal) and its letter, so that no chart needs colour to be read. Each figure has a
sentence with the same numbers for those who do not see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from kvlab.draw.stills import svg
from kvlab.draw.stills.marks import Owner, owners_of
from kvlab.trace.document import Trace
from kvlab.trace.speech import Speech

PATTERNS = ("\\", ".", "-", "/", "|", "x")
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif'


@dataclass(frozen=True, slots=True)
class Look:
    """Colours on a light or a dark ground; the ground itself shows through."""

    ink: str
    soft: str
    line: str
    own_ink: str
    hues: tuple[str, ...]
    tint: float
    stroke: float

    @classmethod
    def of(cls, theme: svg.Theme, stroke: float) -> Look:
        """The player's colours; the strokes of a chart's patterns have a strength of their own."""
        colours = (theme.ink, theme.soft, theme.line, theme.own_ink, theme.hues)
        return cls(*colours, theme.tint, stroke)

    def hue(self, place: int) -> str:
        return self.hues[place % len(self.hues)]


LIGHT = Look.of(svg.LIGHT, stroke=0.34)
DARK = Look.of(svg.DARK, stroke=0.3)
LOOKS = {"light": LIGHT, "dark": DARK}


def layout(look: Look, speech: Speech) -> dict[str, Any]:
    """Transparent ground, text in the look's colours, no zoom and no tool bar to lose a way in."""
    axis = {
        "color": look.soft,
        "title": {"font": {"size": 12}, "standoff": 8},
        "gridcolor": look.line,
        "linecolor": look.line,
        "zeroline": False,
        "fixedrange": True,
    }
    return {
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 12, "color": look.soft},
        "margin": {"l": 52, "r": 12, "t": 30, "b": 50},
        "autosize": True,
        "dragmode": False,
        "xaxis": axis,
        "yaxis": axis,
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "xanchor": "left"},
        "hoverlabel": {"font": {"family": FONT}},
        "separators": "".join(speech.words["grammar"][sign] for sign in ("point", "thousands")),
    }


def stacked(panels: Sequence[str], look: Look, speech: Speech) -> go.Figure:
    """Panels one above the other on one x axis, the first as high as two of the others."""
    weights = [2.0 if panel == "gpu" else 1.0 for panel in panels]
    gap = 0.09
    unit = (1 - gap * (len(panels) - 1)) / sum(weights)
    figure = go.Figure(layout=layout(look, speech))
    base = figure.layout.yaxis.to_plotly_json()
    top = 1.0
    for at, weight in enumerate(weights):
        bottom = max(0.0, top - weight * unit)
        figure.update_layout({axis_name(at, "yaxis"): {**base, "domain": [bottom, top]}})
        top = bottom - gap
    figure.update_layout(xaxis={"anchor": axis_name(len(panels) - 1), "showgrid": False})
    return figure


def axis_name(at: int, kind: str = "y") -> str:
    """Plotly's name for the axis of panel `at`, from 0."""
    return kind if at == 0 else f"{kind}{at + 1}"


def step_axis(figure: go.Figure, steps: Sequence[int], labelled: bool, name: str) -> None:
    """Steps as whole numbers."""
    axis: dict[str, Any] = {"title": {"text": name}, "range": [steps[0] - 0.6, steps[-1] + 0.6]}
    axis |= {"dtick": 1} if labelled else {"tickformat": "d", "nticks": 10}
    figure.update_layout(xaxis=axis, bargap=0.16)


def marks(most: int) -> list[int]:
    """Whole numbers from 0 to `most`, at most six of them."""
    size = next((n for n in (1, 2, 4, 5, 10, 20, 50) if most / n <= 5), max(1, -(-most // 5)))
    found = list(range(0, most + 1, size))
    return found if found[-1] == most else [*found[:-1], most]


def bar_text(text: Sequence[str], look: Look, shown: bool, outside: bool = False) -> dict[str, Any]:
    """Numbers in the bars, or above them; none where they would not fit."""
    if not shown:
        return {}
    return {
        "text": text,
        "textposition": "outside" if outside else "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "constraintext": "none",
        "cliponaxis": False,
        "textfont": {"color": look.ink, "size": 12},
    }


def tinted(look: Look, hue: str, pattern: str) -> dict[str, Any]:
    """A pale fill with a pattern in the hue, and an outline in it."""
    return {
        "color": rgba(hue, look.tint),
        "line": {"color": hue, "width": 1.5},
        "pattern": {
            "shape": pattern,
            "bgcolor": rgba(hue, look.tint),
            "fgcolor": rgba(hue, look.stroke),
            "size": 6,
            "solidity": 0.22,
        },
    }


def rgba(hue: str, alpha: float) -> str:
    """`#rrggbb` with an alpha."""
    red, green, blue = (int(hue[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def owners(trace: Trace) -> dict[str, Owner]:
    """Every request's marks, as in the player: B is the same B in every run."""
    return owners_of([request["id"] for request in trace.document["requests"]])


def span(steps: Sequence[int], speech: Speech) -> str:
    """`step 3`, `steps 1 and 2`, `steps 3 to 6`."""
    key = {1: "one", 2: "two"}.get(len(steps), "many")
    return speech(f"chart.span_{key}", first=steps[0], last=steps[-1])
