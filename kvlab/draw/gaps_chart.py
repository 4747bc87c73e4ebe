"""The gaps between outputs, each split into decoding, waiting and recovery."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import plotly.graph_objects as go

from kvlab.draw.chart import Chart, Drawing
from kvlab.draw.chart_look import LIGHT, PATTERNS, Look, layout, marks, owners, tinted
from kvlab.trace.document import Trace
from kvlab.trace.facts import gaps
from kvlab.trace.gaps import Gap
from kvlab.trace.speech import ENGLISH, Speech

MOST_GAPS = 14


def gaps_figure(trace: Trace, look: Look = LIGHT, speech: Speech = ENGLISH) -> go.Figure:
    """The steps between outputs, one bar a gap, split into decoding, waiting and recovery.

    Of a run with many gaps the longest are drawn.
    """
    drawn = drawn_gaps(trace)
    figure = go.Figure(layout=layout(look, speech))
    for id, owner in owners(trace).items():
        own = [gap for gap in drawn if gap.id == id]
        hue, pattern = look.hue(owner.hue), PATTERNS[owner.pattern]
        for phase, marker in phase_markers(look, hue, pattern).items():
            steps = [getattr(gap, phase) for gap in own]
            name = speech(f"chart.{phase}")
            if any(steps):
                figure.add_bar(
                    y=[f"{gap.id} · x{gap.after} → x{gap.after + 1}" for gap in own],
                    x=[n or None for n in steps],
                    orientation="h",
                    name=name,
                    marker=marker,
                    showlegend=False,
                    hovertemplate=speech("chart.hover_gap", name="%{y}", n="%{x}", phase=name)
                    + "<extra></extra>",
                    text=[f"{n} {name}" if n > 1 else str(n or "") for n in steps],
                    textposition="inside",
                    insidetextanchor="middle",
                    textangle=0,
                    constraintext="none",
                    textfont={
                        "color": look.own_ink if phase == "recovery" else look.ink,
                        "size": 12,
                    },
                )
    for phase, marker in phase_markers(look, look.soft, PATTERNS[0]).items():
        name = speech(f"chart.{phase}")
        figure.add_bar(x=[None], y=[None], name=name, marker=marker, hoverinfo="skip")
    most = max([gap.steps for gap in drawn], default=1)
    figure.update_layout(
        barmode="stack",
        bargap=0.28,
        height=110 + 30 * max(2, len(drawn)),
        margin={"l": 8, "r": 12, "t": 34, "b": 48},
        legend={"traceorder": "normal"},
        xaxis={
            "title": {"text": speech("chart.between")},
            "range": [0, most + 0.3],
            "tickvals": marks(most),
        },
        yaxis={"autorange": "reversed", "automargin": True, "showgrid": False, "fixedrange": True},
    )
    return figure


def gaps_sentence(trace: Trace, speech: Speech = ENGLISH) -> str:
    """The numbers of `gaps_figure` in words."""
    every = gaps(trace)
    if len(every) > MOST_GAPS:
        worst = max(every, key=lambda gap: gap.steps)
        return speech(
            "chart.longest_of",
            drawn=MOST_GAPS,
            all=len(every),
            id=worst.id,
            after=worst.after,
            next=worst.after + 1,
            split=split_words(worst, speech),
        )
    parts = []
    for id, of_request in groupby(every, key=lambda gap: gap.id):
        own = list(of_request)
        split = [
            speech(
                "chart.gap_is",
                after=gap.after,
                next=gap.after + 1,
                split=split_words(gap, speech),
            )
            for gap in own
            if gap.steps > 1
        ]
        steps = speech("chart.gaps_of", id=id, steps=speech.listed(g.steps for g in own))
        parts.append(f"{'; '.join([steps, *split])}.")
    return " ".join(parts) or speech("chart.no_gap")


def drawn_gaps(trace: Trace) -> list[Gap]:
    """The gaps that a chart has room for: all of them, else the longest, in the order of time."""
    every = gaps(trace)
    if len(every) <= MOST_GAPS:
        return every
    longest = sorted(range(len(every)), key=lambda at: -every[at].steps)[:MOST_GAPS]
    return [every[at] for at in sorted(longest)]


def split_words(gap: Gap, speech: Speech = ENGLISH) -> str:
    """`5 steps: 4 waiting and 1 recovery`."""
    parts = [
        speech("chart.part", n=n, phase=speech(f"chart.{phase}"))
        for phase in ("waiting", "recovery", "decoding")
        if (n := getattr(gap, phase))
    ]
    return speech("chart.split", steps=gap.steps, parts=speech.listed(parts))


def phase_markers(look: Look, hue: str, pattern: str) -> dict[str, dict[str, Any]]:
    """How each phase is filled, in the order in which the phases of a gap follow each other."""
    outline = {"color": hue, "width": 1.5}
    return {
        "waiting": {"color": "rgba(0,0,0,0)", "line": outline},
        "recovery": {"color": hue, "line": outline},
        "decoding": tinted(look, hue, pattern),
    }


def gaps_chart(trace: Trace, chart: Chart | None = None, speech: Speech = ENGLISH) -> Chart:
    """The gaps between outputs, split; into `chart` when one is given."""

    def draw(speech: Speech) -> Drawing:
        caption = gaps_sentence(trace, speech)
        return Drawing(speech("chart.gaps"), caption, lambda look: gaps_figure(trace, look, speech))

    return (chart or Chart()).show(draw, speech)
