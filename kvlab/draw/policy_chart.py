"""The benchmark of victim policies as a chart: a policy a line, a mark for each pool."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from kvlab.course.policies import Row
from kvlab.draw.chart import Chart
from kvlab.draw.chart_look import LIGHT, Look, layout

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x")
TITLE = "What each policy computes again"


def policies_figure(rows: Sequence[Row], look: Look = LIGHT) -> go.Figure:
    """Recompute tax of every policy in percent; the bar at a mark spans the seeds."""
    figure = go.Figure(layout=layout(look))
    shares = sorted({row.share for row in rows}, reverse=True)
    for place, share in enumerate(shares):
        of = [row for row in rows if row.share == share]
        values = [[100 * v for v in row.numbers["recompute_tax"]] for row in of]
        figure.add_scatter(
            x=[average for average, _, _ in values],
            y=[row.setting for row in of],
            name=f"{share:.0%} of the need",
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
            hovertemplate="%{y}: %{x:.1f} %<extra></extra>",
        )
    figure.update_layout(
        height=380,
        margin={"t": 64, "l": 130},
        xaxis={
            "title": {"text": "computed again, % of the tokens processed"},
            "rangemode": "tozero",
        },
        yaxis={"autorange": "reversed", "showgrid": False, "title": None},
    )
    return figure


def policies_sentence(rows: Sequence[Row]) -> str:
    """The chart's numbers for those who do not see it."""
    parts = []
    for share in sorted({row.share for row in rows}, reverse=True):
        of = [row for row in rows if row.share == share]
        taxes = [f"{row.setting} {row.numbers['recompute_tax'][0]:.0%}" for row in of]
        parts.append(f"Pool of {share:.0%} of the need: {', '.join(taxes)}.")
    return " ".join(["Tokens computed again, as a share of those processed.", *parts])


def policies_chart(rows: Sequence[Row]) -> Chart:
    """The chart on a page, with its sentence."""
    chart = Chart()
    chart.show(TITLE, policies_sentence(rows), lambda look: policies_figure(rows, look))
    return chart
