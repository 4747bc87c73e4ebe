"""KV over the steps: who has how many positions where, and how many blocks are free."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import plotly.graph_objects as go

from kvlab.draw.chart import Chart, Drawing
from kvlab.draw.chart_look import (
    LIGHT,
    PATTERNS,
    Look,
    axis_name,
    bar_text,
    marks,
    owners,
    span,
    stacked,
    step_axis,
    tinted,
)
from kvlab.trace.document import Trace
from kvlab.trace.facts import StepMemory, memory
from kvlab.trace.speech import ENGLISH, Speech

MOST_LABELLED_STEPS = 24


def memory_figure(trace: Trace, look: Look = LIGHT, speech: Speech = ENGLISH) -> go.Figure:
    """KV per request while the model runs, and the free blocks after each step, on one axis.

    The CPU pool has a panel of its own when something was ever stored there.
    """
    seen, pool = memory(trace), trace.document["pool"]
    stored = any(moment.host_kv for moment in seen)
    panels = ["gpu", *(["cpu"] if stored else []), "free"]
    figure = stacked(panels, look, speech)
    labelled = len(seen) <= MOST_LABELLED_STEPS
    steps = [moment.step for moment in seen]
    for id, owner in owners(trace).items():
        for panel, positions in (
            ("gpu", [moment.kv.get(id, 0) for moment in seen]),
            ("cpu", [moment.host_kv.get(id, 0) for moment in seen] if stored else []),
        ):
            if any(positions):
                figure.add_bar(
                    x=steps,
                    y=[n or None for n in positions],
                    name=id,
                    showlegend=not labelled and panel == "gpu",
                    yaxis=axis_name(panels.index(panel)),
                    marker=tinted(look, look.hue(owner.hue), PATTERNS[owner.pattern]),
                    hovertemplate=speech("chart.hover_kv", step="%{x}", id=id, n="%{y}")
                    + "<extra></extra>",
                    **bar_text([f"{id} {n}" if n else "" for n in positions], look, labelled),
                )
    free = [moment.free for moment in seen]
    figure.add_bar(
        x=steps,
        y=free,
        name=speech("chart.free_blocks"),
        showlegend=False,
        yaxis=axis_name(panels.index("free")),
        marker={"color": "rgba(0,0,0,0)", "line": {"color": look.soft, "width": 1.5}},
        hovertemplate=speech("chart.hover_free", step="%{x}", n="%{y}") + "<extra></extra>",
        **bar_text([str(n) for n in free], look, labelled, outside=True),
    )
    slots = pool["num_blocks"] * pool["block_size"]
    titles = {
        "gpu": ("on_gpu", "positions", slots),
        "cpu": ("on_cpu", "positions", pool["host_blocks"] * pool["block_size"]),
        "free": ("free", "blocks", pool["num_blocks"]),
    }
    for at, panel in enumerate(panels):
        title, unit, most = titles[panel]
        room = most * (1.12 if panel == "gpu" else 1.35)
        axis = {
            "title": {"text": speech(f"chart.{unit}")},
            "range": [0, room],
            "showgrid": False,
            "tickvals": marks(most),
        }
        figure.update_layout({axis_name(at, "yaxis"): axis})
        figure.add_annotation(
            text=speech(f"chart.{title}"),
            xref="paper",
            x=0,
            yref=f"{axis_name(at)} domain",
            y=1,
            xanchor="left",
            yanchor="bottom",
            showarrow=False,
            font={"color": look.ink, "size": 13},
        )
    figure.add_shape(
        type="line",
        xref="paper",
        x0=0,
        x1=1,
        yref="y",
        y0=slots,
        y1=slots,
        line={"color": look.ink, "width": 1.5, "dash": "dash"},
    )
    figure.add_annotation(
        text=speech("chart.all_slots", slots=speech.number(slots)),
        xref="paper",
        x=1,
        yref="y",
        y=slots,
        xanchor="right",
        yanchor="bottom",
        showarrow=False,
        font={"color": look.soft, "size": 12},
    )
    step_axis(figure, steps, labelled, speech("chart.step"))
    figure.update_layout(
        barmode="stack", height=170 + 110 * len(panels), meta={"labelled": labelled}
    )
    if not labelled:  # the legend stands above the first panel's name
        figure.update_layout(margin={"t": 58}, legend={"y": 1.1})
    return figure


def memory_sentence(trace: Trace, speech: Speech = ENGLISH) -> str:
    """The numbers of `memory_figure` in words."""
    seen, blocks = memory(trace), trace.document["pool"]["num_blocks"]
    free = [moment.free for moment in seen]
    if len(seen) > MOST_LABELLED_STEPS:
        return speech(
            "chart.many_steps",
            steps=len(seen),
            least=min(free),
            most=max(free),
            blocks=blocks,
            full=free.count(0),
        )
    parts = [
        speech(
            "chart.free_after",
            span=span([moment.step for moment in seen], speech),
            free=speech.listed(free),
            blocks=blocks,
        )
    ]
    for id in owners(trace):
        runs = [
            speech(
                "chart.run_in",
                kv=speech.listed(kv for _, kv in run),
                span=span([step for step, _ in run], speech),
            )
            for run in stretches(seen, id)
        ]
        if runs:
            parts.append(speech("chart.kv_of", id=id, runs=speech("chart.then").join(runs)))
        kept = [(moment.step, moment.host_kv[id]) for moment in seen if moment.host_kv.get(id)]
        if kept:
            steps = span([step for step, _ in kept], speech)
            parts.append(speech("chart.cpu_keeps", kv=kept[0][1], id=id, span=steps))
    return " ".join(parts)


def stretches(seen: Sequence[StepMemory], id: str) -> list[list[tuple[int, int]]]:
    """(step, positions) of a request, cut where it has no KV on the GPU."""
    groups = groupby(seen, key=lambda moment: bool(moment.kv.get(id)))
    return [[(m.step, m.kv[id]) for m in run] for has, run in groups if has]


def memory_chart(trace: Trace, chart: Chart | None = None, speech: Speech = ENGLISH) -> Chart:
    """KV per request and free blocks over the steps; into `chart` when one is given."""

    def draw(speech: Speech) -> Drawing:
        caption = memory_sentence(trace, speech)
        return Drawing(
            speech("chart.memory"), caption, lambda look: memory_figure(trace, look, speech)
        )

    return (chart or Chart()).show(draw, speech)
