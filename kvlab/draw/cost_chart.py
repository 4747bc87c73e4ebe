"""The modelled crossover of recompute and swap over the length of a history."""

from __future__ import annotations

import plotly.graph_objects as go

from kvlab.course import cost
from kvlab.draw.chart import Chart
from kvlab.draw.chart_look import LIGHT, Look, layout, listed
from kvlab.engine.cost_model import Machine, ModelShape
from kvlab.errors import BadInput

TITLE = "Modelled: which method brings a request back sooner"


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


def cost_chart(machine: str, chart: Chart | None = None, model: str = cost.LLAMA.name) -> Chart:
    """The modelled crossover on a machine of `cost.MACHINES`, for a model of `cost.MODELS`. Raises
    BadInput for another."""
    for what, name, known in (("machine", machine, cost.MACHINES), ("model", model, cost.MODELS)):
        if name not in known:
            raise BadInput(f"{what} {name!r}: choose {' or '.join(known)}.")
    return cost_chart_of(cost.MACHINES[machine], cost.MODELS[model], chart)


def cost_chart_of(machine: Machine, shape: ModelShape, chart: Chart | None = None) -> Chart:
    """The same for any machine and model."""
    chart = chart or Chart()
    chart.show(
        TITLE,
        cost_sentence(machine, shape),
        lambda look: cost_figure(machine, look, shape),
    )
    return chart
