"""The modelled crossover of recompute and swap over the length of a history."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from kvlab.course import cost
from kvlab.course.crossover import recompute_is_cheaper
from kvlab.draw.chart import Chart, Drawing
from kvlab.draw.chart_look import LIGHT, Look, layout
from kvlab.engine.cost_model import Machine, ModelShape
from kvlab.errors import BadInput
from kvlab.trace.speech import ENGLISH, Speech

SWAPS = {"large": False, "small": True}
"""The two ways to swap, by their key in the catalogue: with a copy for each block and layer?"""


def cost_figure(
    machine: Machine,
    look: Look = LIGHT,
    shape: ModelShape = cost.LLAMA,
    speech: Speech = ENGLISH,
) -> go.Figure:
    """Modelled time to bring a request back, by the length of its history; both axes log. A ring and
    a number of tokens mark where recompute and a way to swap cost the same."""
    figure = go.Figure(layout=layout(look, speech))
    curves = cost_curves(machine, shape)
    for (key, seconds), hue, dash, symbol in zip(
        curves.items(),
        (look.hues[0], look.hues[1], look.hues[1]),
        ("solid", "dash", "dot"),
        ("circle", "square", "diamond"),
        strict=True,
    ):
        name = speech(f"cost.{key}")
        figure.add_scatter(
            x=cost.LENGTHS,
            y=[second * 1e3 for second in seconds],
            name=name,
            mode="lines+markers",
            line={"color": hue, "dash": dash, "width": 2},
            marker={"symbol": symbol, "size": 7},
            hovertemplate=speech("cost.hover", name=name, n="%{x}", ms="%{y:.3g}")
            + "<extra></extra>",
        )
    for key in SWAPS:
        for tokens in crossings(machine, shape, key):
            recompute_ms = cost.recompute_seconds(tokens, shape, machine) * 1e3
            mark(figure, look, speech, tokens, recompute_ms)
    powers = [16, 128, 1024, 8192]
    figure.update_layout(
        height=340,
        margin={"t": 64},
        xaxis={
            "title": {"text": speech("cost.tokens")},
            "type": "log",
            "showgrid": False,
            "tickvals": powers,
            "ticktext": [speech.number(n) for n in powers],
        },
        yaxis={"title": {"text": speech("cost.ms")}, "type": "log", "dtick": 1},
    )
    return figure


def mark(figure: go.Figure, look: Look, speech: Speech, tokens: int, ms: float) -> None:
    """A ring where two lines cross, with the number of tokens at an arrow's length."""
    figure.add_scatter(
        x=[tokens],
        y=[ms],
        mode="markers",
        marker={
            "symbol": "circle-open",
            "size": 16,
            "color": look.ink,
            "line": {"color": look.ink, "width": 2},
        },
        showlegend=False,
        hoverinfo="skip",
    )
    figure.add_annotation(
        text=speech("cost.crossing", tokens=speech.number(tokens)),
        x=math.log10(tokens),
        y=math.log10(ms),
        ax=0,
        ay=-46,
        arrowcolor=look.ink,
        arrowwidth=1,
        standoff=9,
        font={"color": look.ink, "size": 13},
    )


def crossings(machine: Machine, shape: ModelShape, way: str) -> list[int]:
    """Tokens up to which, and from which on, recompute is cheaper than a way to swap: the ends of the
    stretch that lie within the chart."""
    found = recompute_is_cheaper(cost.cost_model(machine, shape, small_copies=SWAPS[way]))
    if found is None:
        return []
    inside = (found.first > cost.BLOCK_SIZE, found.last < cost.LENGTHS[-1])
    return [end for end, shown in zip((found.first, found.last), inside, strict=True) if shown]


def cost_curves(machine: Machine, shape: ModelShape = cost.LLAMA) -> dict[str, list[float]]:
    """Seconds at `cost.LENGTHS` for each line of the chart, by its key in the catalogue."""
    found = {"recompute": [cost.recompute_seconds(n, shape, machine) for n in cost.LENGTHS]}
    for way, small in SWAPS.items():
        found[way] = [cost.swap_seconds(n, shape, machine, small) for n in cost.LENGTHS]
    return found


def cost_sentence(
    machine: Machine, shape: ModelShape = cost.LLAMA, speech: Speech = ENGLISH
) -> str:
    """Where the lines cross, the chart's message at one length, the formula, and its numbers."""
    at = cost.LENGTHS.index(2048)
    curves = cost_curves(machine, shape)
    values = [
        f"{speech(f'cost.{key}')} {milliseconds(seconds[at], speech)}"
        for key, seconds in curves.items()
    ]
    parts = [crossing_sentence(machine, shape, way, curves, speech) for way in SWAPS]
    parts.append(
        speech("cost.at", tokens=speech.number(cost.LENGTHS[at]), values=speech.listed(values))
    )
    return " ".join([*parts, speech("cost.formula"), cost.assumptions(shape, machine, speech)])


def crossing_sentence(
    machine: Machine,
    shape: ModelShape,
    way: str,
    curves: dict[str, list[float]],
    speech: Speech,
) -> str:
    """Where recompute and a way to swap cost the same, or which is sooner at every length."""
    name, found = speech(f"cost.{way}"), crossings(machine, shape, way)
    if found:
        tokens = speech.listed(speech.number(n) for n in found)
        return speech("cost.crosses", name=name, tokens=tokens)
    winner = "recompute" if curves["recompute"][-1] < curves[way][-1] else way
    longest = speech.number(cost.LENGTHS[-1])
    return speech("cost.never", name=name, tokens=longest, winner=speech(f"cost.{winner}"))


def milliseconds(seconds: float, speech: Speech = ENGLISH) -> str:
    """Whole ones, and two digits of what is shorter than 10 ms."""
    ms = speech.number(seconds * 1e3, ",.0f" if seconds >= 0.01 else ".2g")
    return speech("cost.ms_whole", ms=ms)


def cost_chart(machine: str, chart: Chart | None = None, model: str = cost.LLAMA.name) -> Chart:
    """The modelled crossover on a machine of `cost.MACHINES`, for a model of `cost.MODELS`. Raises
    BadInput for another."""
    for what, name, known in (("machine", machine, cost.MACHINES), ("model", model, cost.MODELS)):
        if name not in known:
            raise BadInput(f"{what} {name!r}: choose {' or '.join(known)}.")
    return cost_chart_of(cost.MACHINES[machine], cost.MODELS[model], chart)


def cost_chart_of(
    machine: Machine, shape: ModelShape, chart: Chart | None = None, speech: Speech = ENGLISH
) -> Chart:
    """The same for any machine and model."""

    def draw(speech: Speech) -> Drawing:
        return Drawing(
            speech("cost.title"),
            cost_sentence(machine, shape, speech),
            lambda look: cost_figure(machine, look, shape, speech),
        )

    return (chart or Chart()).show(draw, speech)
