"""Charts of a run: pure functions from a trace to a plotly figure, in a light and a dark look.

A request has the player's hue and pattern (kvlab/widgets/js/src/player.css and owners.js; a test
holds the colours equal) and its letter, so that no chart needs colour to be read. Each figure has a
sentence with the same numbers for those who do not see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import plotly.graph_objects as go

from kvlab.engine.cost_model import Machine, ModelShape
from kvlab.lessons import cost
from kvlab.lessons.facts import Gap, Moment, gaps, moments
from kvlab.trace.document import Trace

PATTERNS = ("\\", ".", "-", "/", "|", "x")
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif'
MOST_LABELLED_STEPS = 24
MOST_GAPS = 14


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

    def hue(self, place: int) -> str:
        return self.hues[place % len(self.hues)]


LIGHT = Look(
    ink="#171b21",
    soft="#545d6b",
    line="#d5dae1",
    own_ink="#ffffff",
    hues=("#0072b2", "#b84a00", "#007a5a", "#a33b7a", "#846000", "#4b5564"),
    tint=0.11,
    stroke=0.34,
)
DARK = Look(
    ink="#eceff3",
    soft="#a9b2be",
    line="#3c444f",
    own_ink="#10141a",
    hues=("#63b4f0", "#ff9a52", "#3fcba2", "#eb9fcb", "#e6c84c", "#bcc6d2"),
    tint=0.18,
    stroke=0.3,
)
LOOKS = {"light": LIGHT, "dark": DARK}


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


def cost_figure(machine: Machine, look: Look = LIGHT, shape: ModelShape = cost.LLAMA) -> go.Figure:
    """Modelled time to bring a request back, by the length of its history; both axes log."""
    figure = go.Figure(layout=layout(look))
    for (name, seconds), hue, dash, symbol in zip(
        cost_curves(machine, shape).items(),
        (look.hues[0], look.hues[1], look.hues[1]),
        ("solid", "dash", "dot"),
        ("circle", "square", "diamond"),
        strict=True,
    ):
        figure.add_scatter(
            x=cost.LENGTHS,
            y=[second * 1e3 for second in seconds],
            name=name,
            mode="lines+markers",
            line={"color": hue, "dash": dash, "width": 2},
            marker={"symbol": symbol, "size": 7},
            hovertemplate=f"{name}: %{{x}} tokens, %{{y:.3g}} ms<extra></extra>",
        )
    powers = [16, 128, 1024, 8192]
    figure.update_layout(
        height=340,
        margin={"t": 64},
        xaxis={
            "title": {"text": "tokens of history"},
            "type": "log",
            "showgrid": False,
            "tickvals": powers,
            "ticktext": [f"{n:,}" for n in powers],
        },
        yaxis={"title": {"text": "milliseconds, modelled"}, "type": "log", "dtick": 1},
    )
    return figure


def cost_curves(machine: Machine, shape: ModelShape = cost.LLAMA) -> dict[str, list[float]]:
    """Seconds at `cost.LENGTHS` for each line of the chart."""
    large, small = (cost.cost_model(machine, shape, small_copies=small) for small in (False, True))
    blocks = [large.blocks_for(n) for n in cost.LENGTHS]
    return {
        "recompute": [large.recompute_seconds(n) for n in cost.LENGTHS],
        "swap, one large copy": [large.swap_seconds(n) for n in blocks],
        "swap, a copy per block and layer": [small.swap_seconds(n) for n in blocks],
    }


def cost_sentence(machine: Machine, shape: ModelShape = cost.LLAMA) -> str:
    """The chart's message at one length, the formula, and where its numbers are from."""
    at = cost.LENGTHS.index(2048)
    values = [
        f"{name} {milliseconds(seconds[at])}"
        for name, seconds in cost_curves(machine, shape).items()
    ]
    return (
        f"At {cost.LENGTHS[at]:,} tokens: {listed(values)}. {cost.FORMULA} "
        f"{cost.assumptions(shape, machine)}"
    )


def milliseconds(seconds: float) -> str:
    """Whole ones, and two digits of what is shorter than 10 ms."""
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.2g} ms"


# What all charts share.


def layout(look: Look) -> dict[str, Any]:
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
    }


def stacked(panels: Sequence[str], look: Look) -> go.Figure:
    """Panels one above the other on one x axis, the first as high as two of the others."""
    weights = [2.0 if panel == "gpu" else 1.0 for panel in panels]
    gap = 0.09
    unit = (1 - gap * (len(panels) - 1)) / sum(weights)
    figure = go.Figure(layout=layout(look))
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


def step_axis(figure: go.Figure, steps: Sequence[int], labelled: bool) -> None:
    """Steps as whole numbers."""
    axis: dict[str, Any] = {"title": {"text": "step"}, "range": [steps[0] - 0.6, steps[-1] + 0.6]}
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


def ids(trace: Trace) -> list[str]:
    """Requests in the order that gives them hue and pattern, as in the player."""
    found = [request["id"] for request in trace.document["requests"]]
    arrived = [event["id"] for event in trace.events if event["kind"] == "arrived"]
    return list(dict.fromkeys([*found, *arrived]))


def stretches(seen: Sequence[Moment], id: str) -> list[list[tuple[int, int]]]:
    """(step, positions) of a request, cut where it has no KV on the GPU."""
    groups = groupby(seen, key=lambda moment: bool(moment.kv.get(id)))
    return [[(m.step, m.kv[id]) for m in run] for has, run in groups if has]


def span(steps: Sequence[int]) -> str:
    """`step 3`, `steps 1 and 2`, `steps 3 to 6`."""
    if len(steps) == 1:
        return f"step {steps[0]}"
    return f"steps {steps[0]} {'and' if len(steps) == 2 else 'to'} {steps[-1]}"


def listed(items: Sequence[Any]) -> str:
    """`1, 5 and 1`."""
    words = [str(item) for item in items]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def count(number: int, what: str) -> str:
    """`1 step`, `5 steps`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
