"""The gaps between outputs, each split into decoding, waiting and recovery."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import plotly.graph_objects as go

from kvlab.draw.chart import Chart
from kvlab.draw.chart_look import (
    LIGHT,
    PATTERNS,
    Look,
    count,
    ids,
    layout,
    listed,
    marks,
    tinted,
)
from kvlab.trace.document import Trace
from kvlab.trace.facts import gaps
from kvlab.trace.gaps import Gap

TITLE = "What each user waits for"
MOST_GAPS = 14


def gaps_figure(trace: Trace, look: Look = LIGHT) -> go.Figure:
    """The steps between outputs, one bar a gap, split into decoding, waiting and recovery.

    Of a run with many gaps the longest are drawn.
    """
    drawn = drawn_gaps(trace)
    figure = go.Figure(layout=layout(look))
    for place, id in enumerate(ids(trace)):
        own = [gap for gap in drawn if gap.id == id]
        hue = look.hue(place)
        for phase, marker in phase_markers(look, hue, PATTERNS[place % len(PATTERNS)]).items():
            steps = [getattr(gap, phase) for gap in own]
            if any(steps):
                figure.add_bar(
                    y=[f"{gap.id} · x{gap.after} → x{gap.after + 1}" for gap in own],
                    x=[n or None for n in steps],
                    orientation="h",
                    name=phase,
                    marker=marker,
                    showlegend=False,
                    hovertemplate=f"%{{y}}: %{{x}} steps {phase}<extra></extra>",
                    text=[f"{n} {phase}" if n > 1 else str(n or "") for n in steps],
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
        figure.add_bar(x=[None], y=[None], name=phase, marker=marker, hoverinfo="skip")
    most = max([gap.steps for gap in drawn], default=1)
    figure.update_layout(
        barmode="stack",
        bargap=0.28,
        height=110 + 30 * max(2, len(drawn)),
        margin={"l": 8, "r": 12, "t": 34, "b": 48},
        legend={"traceorder": "normal"},
        xaxis={
            "title": {"text": "steps between two outputs"},
            "range": [0, most + 0.3],
            "tickvals": marks(most),
        },
        yaxis={"autorange": "reversed", "automargin": True, "showgrid": False, "fixedrange": True},
    )
    return figure


def gaps_sentence(trace: Trace) -> str:
    """The numbers of `gaps_figure` in words."""
    every = gaps(trace)
    if len(every) > MOST_GAPS:
        worst = max(every, key=lambda gap: gap.steps)
        return (
            f"The {MOST_GAPS} longest of {len(every)} gaps; the longest is {worst.id}'s between "
            f"x{worst.after} and x{worst.after + 1}: {split_words(worst)}."
        )
    parts = []
    for id, of_request in groupby(every, key=lambda gap: gap.id):
        own = list(of_request)
        split = [
            f"the one between x{gap.after} and x{gap.after + 1} is {split_words(gap)}"
            for gap in own
            if gap.steps > 1
        ]
        steps = f"Gaps between the outputs of {id}, in steps: {listed([g.steps for g in own])}"
        parts.append(f"{'; '.join([steps, *split])}.")
    return " ".join(parts) or "No request has delivered two outputs, so there is no gap."


def drawn_gaps(trace: Trace) -> list[Gap]:
    """The gaps that a chart has room for: all of them, else the longest, in the order of time."""
    every = gaps(trace)
    if len(every) <= MOST_GAPS:
        return every
    longest = sorted(range(len(every)), key=lambda at: -every[at].steps)[:MOST_GAPS]
    return [every[at] for at in sorted(longest)]


def split_words(gap: Gap) -> str:
    """`5 steps: 4 waiting and 1 recovery`."""
    parts = [
        f"{n} {name}"
        for n, name in (
            (gap.waiting, "waiting"),
            (gap.recovery, "recovery"),
            (gap.decoding, "decoding"),
        )
        if n
    ]
    return f"{count(gap.steps, 'step')}: {listed(parts)}"


def phase_markers(look: Look, hue: str, pattern: str) -> dict[str, dict[str, Any]]:
    """How each phase is filled, in the order in which the phases of a gap follow each other."""
    outline = {"color": hue, "width": 1.5}
    return {
        "waiting": {"color": "rgba(0,0,0,0)", "line": outline},
        "recovery": {"color": hue, "line": outline},
        "decoding": tinted(look, hue, pattern),
    }


def gaps_chart(trace: Trace, chart: Chart | None = None) -> Chart:
    """The gaps between outputs, split; into `chart` when one is given."""
    chart = chart or Chart()
    chart.show(TITLE, gaps_sentence(trace), lambda look: gaps_figure(trace, look))
    return chart
