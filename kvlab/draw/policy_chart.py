"""The benchmark of victim policies as a chart: a policy a line, a mark for each pool."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from kvlab.course.policies import Row
from kvlab.draw.chart import Chart, Drawing
from kvlab.draw.chart_look import LIGHT, Look, layout
from kvlab.trace.speech import ENGLISH, Speech

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x")


def policies_figure(rows: Sequence[Row], look: Look = LIGHT, speech: Speech = ENGLISH) -> go.Figure:
    """Recompute tax of every policy in percent; the bar at a mark spans the seeds."""
    figure = go.Figure(layout=layout(look, speech))
    shares = sorted({row.share for row in rows}, reverse=True)
    for place, share in enumerate(shares):
        of = [row for row in rows if row.share == share]
        values = [[100 * v for v in row.numbers["recompute_tax"]] for row in of]
        figure.add_scatter(
            x=[average for average, _, _ in values],
            y=[row.setting for row in of],
            name=speech("chart.share", share=percent(share)),
            mode="markers",
            marker={"symbol": SYMBOLS[place % 5], "size": 11, "color": look.hue(place)},
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [most - average for average, _, most in values],
                "arrayminus": [average - least for average, least, _ in values],
                "color": look.soft,
                "thickness": 1,
                "width": 3,
            },
            hovertemplate=speech("chart.policy_hover", name="%{y}", n="%{x:.1f}")
            + "<extra></extra>",
        )
    figure.update_layout(
        height=380,
        margin={"t": 64, "l": 130},
        xaxis={
            "title": {"text": speech("chart.again_share")},
            "rangemode": "tozero",
        },
        yaxis={"autorange": "reversed", "showgrid": False, "title": None},
    )
    return figure


def policies_sentence(rows: Sequence[Row], speech: Speech = ENGLISH) -> str:
    """The chart's numbers for those who do not see it."""
    parts = [speech("chart.policies_lead")]
    for share in sorted({row.share for row in rows}, reverse=True):
        of = [row for row in rows if row.share == share]
        taxes = [f"{row.setting} {percent(row.numbers['recompute_tax'][0])}" for row in of]
        parts.append(speech("chart.policies_pool", share=percent(share), taxes=", ".join(taxes)))
    return " ".join(parts)


def percent(share: float) -> str:
    return f"{share:.0%}"


def policies_chart(rows: Sequence[Row], speech: Speech = ENGLISH) -> Chart:
    """The chart on a page, with its sentence."""

    def draw(speech: Speech) -> Drawing:
        return Drawing(
            speech("chart.policies"),
            policies_sentence(rows, speech),
            lambda look: policies_figure(rows, look, speech),
        )

    return Chart().show(draw, speech)
