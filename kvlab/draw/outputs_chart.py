"""Outputs as users receive them: a row a request, a mark an output, waiting and recovery between."""

from __future__ import annotations

import plotly.graph_objects as go

from kvlab.course.delays import Delays, delays, step_ends
from kvlab.draw.chart import Chart, Drawing
from kvlab.draw.chart_look import LIGHT, PATTERNS, Look, layout, owners
from kvlab.draw.gaps_chart import phase_markers
from kvlab.trace.document import Trace
from kvlab.trace.speech import ENGLISH, Speech

MOST_ROWS = 16
MOST_LABELLED = 60  # outputs


def outputs_figure(
    trace: Trace, look: Look = LIGHT, measured: bool = False, speech: Speech = ENGLISH
) -> go.Figure:
    """Marks at the end of the step that delivered; bars before them say what the user waited for.

    The axis counts steps, or with `measured` milliseconds of the run. Of many requests the first
    MOST_ROWS are drawn.
    """
    rows = delays(trace)[:MOST_ROWS]
    at = ends(trace, measured)
    figure = go.Figure(layout=layout(look, speech))
    labelled = sum(len(one.delivered) for one in rows) <= MOST_LABELLED
    marks = owners(trace)
    for one in rows:
        hue, pattern = look.hue(marks[one.id].hue), PATTERNS[marks[one.id].pattern]
        markers = phase_markers(look, hue, pattern)
        for phase, spans in waits(one).items():
            marker = markers["decoding" if phase == "first" else phase]
            figure.add_bar(
                y=[one.id] * len(spans),
                x=[at[last] - at[first] for first, last in spans],
                base=[at[first] for first, _ in spans],
                orientation="h",
                width=0.24,
                marker=marker,
                showlegend=False,
                hovertemplate=speech(f"chart.hover_{phase}", id=one.id) + "<extra></extra>",
            )
        figure.add_scatter(
            y=[one.id] * len(one.delivered),
            x=[at[step] for step in one.delivered],
            mode="markers+text" if labelled else "markers",
            text=[f"x{index}" for index in range(len(one.delivered))] if labelled else None,
            textposition="top center",
            textfont={"size": 12, "color": look.ink},
            cliponaxis=False,
            marker={"size": 10, "color": hue, "line": {"color": hue, "width": 1.5}},
            showlegend=False,
            hovertemplate=speech(
                "chart.hover_output", id=one.id, index="%{pointNumber}", at="%{x:.4g}"
            )
            + "<extra></extra>",
        )
    for phase, marker in phase_markers(look, look.soft, PATTERNS[0]).items():
        name = speech(f"chart.{'first' if phase == 'decoding' else phase}")
        figure.add_bar(
            y=[None], x=[None], name=name, marker=marker, orientation="h", hoverinfo="skip"
        )
    unit = speech("chart.ms" if measured else "chart.steps")
    figure.update_layout(
        barmode="overlay",
        height=120 + 52 * max(2, len(rows)),
        margin={"l": 8, "r": 16, "t": 46, "b": 48},
        xaxis={"title": {"text": unit}, "rangemode": "tozero", "showgrid": False, "nticks": 12},
        yaxis={
            "autorange": "reversed",
            "automargin": True,
            "type": "category",
            "ticksuffix": "  ",
            "showgrid": False,
        },
    )
    return figure


def ends(trace: Trace, measured: bool) -> dict[int, float]:
    """Where each step ends on the axis; 0 is the beginning of the first."""
    if measured:
        return {0: 0.0} | {step: end * 1e3 for step, end in step_ends(trace).items()}
    return {0: 0.0} | {step["step"]: float(step["step"]) for step in trace.steps}


def waits(one: Delays) -> dict[str, list[tuple[int, int]]]:
    """(after which step, up to the end of which step) for each kind of waiting that is not decoding."""
    found: dict[str, list[tuple[int, int]]] = {"first": [], "waiting": [], "recovery": []}
    if one.delivered:
        found["first"].append((one.arrived - 1, one.delivered[0]))
    for gap in one.gaps:
        start = one.delivered[gap.after]
        if gap.waiting:
            found["waiting"].append((start, start + gap.waiting))
        if gap.recovery:
            found["recovery"].append((start + gap.waiting, start + gap.steps))
    return {phase: spans for phase, spans in found.items() if spans}


def outputs_sentence(trace: Trace, speech: Speech = ENGLISH) -> str:
    """The chart's numbers in words."""
    every = delays(trace)
    parts = []
    for one in every[:MOST_ROWS]:
        if not one.delivered:
            parts.append(speech("chart.nothing", id=one.id))
            continue
        when = speech.listed(one.delivered)
        if len(one.delivered) > 12:
            when = speech("chart.up_to", last=one.delivered[-1])
        parts.append(speech("chart.receives", id=one.id, outputs=len(one.delivered), when=when))
    if len(every) > MOST_ROWS:
        parts.append(speech("chart.first_rows", drawn=MOST_ROWS, all=len(every)))
    return " ".join(parts)


def outputs_chart(
    trace: Trace, chart: Chart | None = None, measured: bool = False, speech: Speech = ENGLISH
) -> Chart:
    """Outputs over time; into `chart` when one is given."""

    def draw(speech: Speech) -> Drawing:
        return Drawing(
            speech("chart.outputs"),
            outputs_sentence(trace, speech),
            lambda look: outputs_figure(trace, look, measured, speech),
        )

    return (chart or Chart()).show(draw, speech)
