"""What runs spent: tokens computed for the first time, again, and found in the cache."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from kvlab.draw.chart import Chart, Drawing
from kvlab.draw.chart_look import LIGHT, PATTERNS, Look, layout, tinted
from kvlab.trace.document import Trace
from kvlab.trace.speech import ENGLISH, Speech

PARTS = ("first_time", "again", "cached")


def parts_of(trace: Trace) -> dict[str, int]:
    """Tokens of a run by what became of them."""
    summary = trace.summary
    again = summary["tokens_recomputed"]
    processed = summary["tokens_processed"]
    return dict(zip(PARTS, (processed - again, again, summary["tokens_from_cache"]), strict=True))


def work_figure(
    runs: Mapping[str, Trace], look: Look = LIGHT, speech: Speech = ENGLISH
) -> go.Figure:
    """A bar a run, split; what no run has is left out."""
    figure = go.Figure(layout=layout(look, speech))
    found = {name: parts_of(trace) for name, trace in runs.items()}
    hue = look.hue(0)
    outline = {"color": hue, "width": 1.5}
    markers = {
        "first_time": tinted(look, hue, PATTERNS[0]),
        "again": {"color": hue, "line": outline},
        "cached": {"color": "rgba(0,0,0,0)", "line": outline},
    }
    for part in PARTS:
        tokens = [of[part] for of in found.values()]
        if any(tokens):
            figure.add_bar(
                y=list(found),
                x=[n or None for n in tokens],
                orientation="h",
                name=speech(f"chart.{part}"),
                marker=markers[part],
                text=[str(n or "") for n in tokens],
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                textfont={"color": look.own_ink if part == "again" else look.ink, "size": 12},
                hovertemplate="%{y}: %{x}<extra></extra>",
            )
    figure.update_layout(
        barmode="stack",
        bargap=0.3,
        height=120 + 44 * len(found),
        margin={"l": 8, "r": 12, "t": 34, "b": 48},
        legend={"traceorder": "normal"},
        xaxis={"title": {"text": speech("chart.tokens")}, "rangemode": "tozero"},
        yaxis={"autorange": "reversed", "automargin": True, "showgrid": False},
    )
    return figure


def work_sentence(runs: Mapping[str, Trace], speech: Speech = ENGLISH) -> str:
    """The numbers of `work_figure`, and how often somebody was paused."""
    return " ".join(
        speech(
            "chart.work_of",
            name=name,
            preemptions=trace.summary["preemptions"],
            **parts_of(trace),
        )
        for name, trace in runs.items()
    )


def work_chart(runs: Mapping[str, Trace], speech: Speech = ENGLISH) -> Chart:
    """What each of some runs spent, by the names that they are given."""

    def draw(speech: Speech) -> Drawing:
        caption = work_sentence(runs, speech)
        return Drawing(speech("chart.work"), caption, lambda look: work_figure(runs, look, speech))

    return Chart().show(draw, speech)
