"""KV over the steps: who has how many positions where, and how many blocks are free."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import plotly.graph_objects as go

from kvlab.draw.chart import Chart
from kvlab.draw.chart_look import (
    LIGHT,
    PATTERNS,
    Look,
    axis_name,
    bar_text,
    count,
    ids,
    listed,
    marks,
    span,
    stacked,
    step_axis,
    tinted,
)
from kvlab.trace.document import Trace
from kvlab.trace.facts import Moment, moments

TITLE = "Memory over the steps"
MOST_LABELLED_STEPS = 24


def memory_figure(trace: Trace, look: Look = LIGHT) -> go.Figure:
    """KV per request while the model runs, and the free blocks after each step, on one axis.

    The CPU pool has a panel of its own when something was ever stored there.
    """
    seen, pool = moments(trace), trace.document["pool"]
    stored = any(moment.host_kv for moment in seen)
    panels = ["gpu", *(["cpu"] if stored else []), "free"]
    figure = stacked(panels, look)
    labelled = len(seen) <= MOST_LABELLED_STEPS
    steps = [moment.step for moment in seen]
    for place, id in enumerate(ids(trace)):
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
                    marker=tinted(look, look.hue(place), PATTERNS[place % len(PATTERNS)]),
                    hovertemplate=f"step %{{x}}: {id} has KV for %{{y}} positions<extra></extra>",
                    **bar_text([f"{id} {n}" if n else "" for n in positions], look, labelled),
                )
    free = [moment.free for moment in seen]
    figure.add_bar(
        x=steps,
        y=free,
        name="free blocks",
        showlegend=False,
        yaxis=axis_name(panels.index("free")),
        marker={"color": "rgba(0,0,0,0)", "line": {"color": look.soft, "width": 1.5}},
        hovertemplate="after step %{x}: %{y} blocks are free<extra></extra>",
        **bar_text([str(n) for n in free], look, labelled, outside=True),
    )
    slots = pool["num_blocks"] * pool["block_size"]
    titles = {
        "gpu": ("KV on the GPU", "positions", slots),
        "cpu": ("KV in the CPU pool", "positions", pool["host_blocks"] * pool["block_size"]),
        "free": ("free after the step", "blocks", pool["num_blocks"]),
    }
    for at, panel in enumerate(panels):
        _, unit, most = titles[panel]
        room = most * (1.12 if panel == "gpu" else 1.35)
        axis = {
            "title": {"text": unit},
            "range": [0, room],
            "showgrid": False,
            "tickvals": marks(most),
        }
        figure.update_layout({axis_name(at, "yaxis"): axis})
        figure.add_annotation(
            text=titles[panel][0],
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
        text=f"all {slots} slots",
        xref="paper",
        x=1,
        yref="y",
        y=slots,
        xanchor="right",
        yanchor="bottom",
        showarrow=False,
        font={"color": look.soft, "size": 12},
    )
    step_axis(figure, steps, labelled)
    figure.update_layout(
        barmode="stack", height=170 + 110 * len(panels), meta={"labelled": labelled}
    )
    return figure


def memory_sentence(trace: Trace) -> str:
    """The numbers of `memory_figure` in words."""
    seen, blocks = moments(trace), trace.document["pool"]["num_blocks"]
    if len(seen) > MOST_LABELLED_STEPS:
        free = [moment.free for moment in seen]
        return (
            f"Over {len(seen)} steps between {min(free)} and {max(free)} of {blocks} blocks are "
            f"free; {count(sum(not n for n in free), 'step')} end with none free."
        )
    parts = [
        f"Free after steps {seen[0].step} to {seen[-1].step}: "
        f"{listed([moment.free for moment in seen])} of {blocks} blocks."
    ]
    for id in ids(trace):
        runs = [
            f"{listed([kv for _, kv in run])} in {span([step for step, _ in run])}"
            for run in stretches(seen, id)
        ]
        if runs:
            parts.append(f"KV of {id} on the GPU while the model runs: {', then '.join(runs)}.")
        kept = [(moment.step, moment.host_kv[id]) for moment in seen if moment.host_kv.get(id)]
        if kept:
            parts.append(
                f"The CPU pool keeps {count(kept[0][1], 'position')} of {id} in "
                f"{span([step for step, _ in kept])}."
            )
    return " ".join(parts)


def stretches(seen: Sequence[Moment], id: str) -> list[list[tuple[int, int]]]:
    """(step, positions) of a request, cut where it has no KV on the GPU."""
    groups = groupby(seen, key=lambda moment: bool(moment.kv.get(id)))
    return [[(m.step, m.kv[id]) for m in run] for has, run in groups if has]


def memory_chart(trace: Trace, chart: Chart | None = None) -> Chart:
    """KV per request and free blocks over the steps; into `chart` when one is given."""
    chart = chart or Chart()
    chart.show(TITLE, memory_sentence(trace), lambda look: memory_figure(trace, look))
    return chart
