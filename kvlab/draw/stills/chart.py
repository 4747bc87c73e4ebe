"""A chart's figure as a still: what stays of it in a saved notebook, and in one without a kernel.

Takes the figures of this package (plotly's JSON) and draws what they use of plotly: bars, marks and
lines on linear, logarithmic and named axes, in panels above each other.
"""

from __future__ import annotations

import math
from base64 import b64encode
from typing import Any

from kvlab.draw.stills.svg import DARK, LIGHT, Drawing, Theme, number, text_width

WIDTH = 660
PATTERN = 6  # pixels of a pattern's tile
DASHES = {"dash": "8 5", "dot": "2 4"}

Json = dict[str, Any]


def still(title: str, caption: str, looks: dict[str, Json]) -> str:
    """The chart as an image in HTML, light or dark as the reader's system is."""
    sources = {
        name: b64encode(drawn(looks[name], theme, title, caption).encode()).decode()
        for name, theme in (("light", LIGHT), ("dark", DARK))
    }
    data = "data:image/svg+xml;base64,"
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{data}{sources["dark"]}">'
        f'<img style="max-width:100%" alt="" src="{data}{sources["light"]}"></picture>'
    )


def drawn(figure: Json, theme: Theme, title: str, caption: str) -> str:
    """A figure as an SVG file."""
    layout = figure["layout"]
    chart = Still(Drawing(theme), figure, layout)
    for at, trace in enumerate(figure["data"]):
        chart.trace(trace, at)
    chart.frame()
    return chart.drawing.as_svg(WIDTH, layout.get("height", 320), title, caption)


class Axis:
    """From values to pixels."""

    def __init__(self, spec: Json, values: list[Any], start: float, end: float) -> None:
        self.spec, self.start, self.end = spec, start, end
        self.log = spec.get("type") == "log"
        self.names = list(dict.fromkeys(v for v in values if isinstance(v, str)))
        if self.names:
            self.low, self.high = -0.5, len(self.names) - 0.5
        else:
            found = [self.plain(v) for v in values if v is not None] or [0.0, 1.0]
            rest = 0.06 * (max(found) - min(found) or 1.0)
            low = 0.0 if spec.get("rangemode") == "tozero" else min(found) - rest
            self.low, self.high = spec.get("range") or (low, max(found) + rest)
        if spec.get("autorange") == "reversed":
            self.low, self.high = self.high, self.low

    def plain(self, value: Any) -> float:
        """A value on the axis' own scale."""
        if isinstance(value, str):
            return float(self.names.index(value))
        return math.log10(value) if self.log else float(value)

    def at(self, value: Any) -> float:
        return self.place(self.plain(value))

    def place(self, plain: float) -> float:
        return self.start + (self.end - self.start) * (plain - self.low) / (self.high - self.low)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """(place, label) of each mark."""
        spec = self.spec
        if self.names:
            return [(self.at(name), name) for name in self.names]
        if "tickvals" in spec:
            texts = spec.get("ticktext") or [f"{value:g}" for value in spec["tickvals"]]
            return [(self.at(v), str(t)) for v, t in zip(spec["tickvals"], texts, strict=True)]
        low, high = sorted((self.low, self.high))
        if self.log:
            powers = range(math.ceil(low), math.floor(high) + 1)
            return [(self.place(power), f"{10.0**power:g}") for power in powers]
        size = spec.get("dtick") or nice((high - low) / 8)
        first, last = math.ceil(low / size), math.floor(high / size)
        return [(self.place(n * size), f"{n * size:g}") for n in range(first, last + 1)]


def nice(step: float) -> float:
    """The next of 1, 2 and 5, times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(size * power for size in (1, 2, 5, 10) if size * power >= step)


class Still:
    """One figure being drawn."""

    def __init__(self, drawing: Drawing, figure: Json, layout: Json) -> None:
        self.drawing, self.layout = drawing, layout
        self.data = data = figure["data"]
        margin = {"l": 52, "r": 12, "t": 30, "b": 50} | layout.get("margin", {})
        names = [v for one in data for v in one.get("y") or () if isinstance(v, str)]
        left = max([margin["l"], *(14 + text_width(name) for name in names)])
        self.top, self.bottom = margin["t"], layout.get("height", 320) - margin["b"]
        self.left, self.right = left, WIDTH - margin["r"]
        lying = [v for one in data for v in self.spans(one, "x")]
        self.x = Axis(layout["xaxis"], lying, left, self.right)
        self.y = {name: self.panel(name, data) for name in layout if name.startswith("yaxis")}
        self.piled: dict[tuple[str, float], float] = {}

    def spans(self, trace: Json, axis: str) -> list[Any]:
        """The values of a trace along an axis, ends of its bars included."""
        values = [v for v in trace.get(axis) or () if v is not None]
        if axis == "x" and trace.get("orientation") == "h":
            bases = trace.get("base") or [0] * len(values)
            return [0, *(b + v for b, v in zip(bases, values, strict=True))]
        return values

    def panel(self, name: str, data: list[Json]) -> Axis:
        """The y axis of a panel: a share of the height, from below."""
        spec = self.layout[name]
        low, high = spec.get("domain", (0, 1))
        tall = self.bottom - self.top
        short = name.replace("axis", "")
        values = [v for one in data if one.get("yaxis", "y") == short for v in self.spans(one, "y")]
        return Axis(spec, values, self.bottom - low * tall, self.bottom - high * tall)

    def axis_of(self, trace: Json) -> Axis:
        return self.y[trace.get("yaxis", "y").replace("y", "yaxis")]

    def trace(self, trace: Json, at: int) -> None:
        if trace["type"] == "bar":
            self.bars(trace, at)
        else:
            self.marks(trace)

    # Bars

    def bars(self, trace: Json, at: int) -> None:
        look = self.filled(trace["marker"], at)
        y, lying = self.axis_of(trace), trace.get("orientation") == "h"
        texts = trace.get("text") or [""] * len(trace["x"])
        bases = trace.get("base") or [None] * len(trace["x"])
        for across, along, text, base in zip(
            trace["y" if lying else "x"], trace["x" if lying else "y"], texts, bases, strict=True
        ):
            if not along or across is None:
                continue
            long, cross = (self.x, y) if lying else (y, self.x)
            place = cross.plain(across)
            from_ = base if base is not None else self.pile(trace, place, along)
            half = trace.get("width", 1 - self.layout.get("bargap", 0.2)) / 2
            a, b = sorted((cross.place(place - half), cross.place(place + half)))
            c, d = sorted((long.at(from_), long.at(from_ + along)))
            box = (c, a, d - c, b - a) if lying else (a, c, b - a, d - c)
            self.drawing.rect(*box, **look)
            if text:
                outside = trace.get("textposition") == "outside"
                middle = (box[1] - 5) if outside else box[1] + box[3] / 2 + 4
                fill = trace.get("textfont", {}).get("color")
                where = {"anchor": "middle", "fill": fill}
                self.drawing.text(box[0] + box[2] / 2, middle, str(text), **where)

    def pile(self, trace: Json, place: float, along: float) -> float:
        """Where a bar begins: on those that stand there already."""
        key = (trace.get("yaxis", "y"), place)
        begins = self.piled.get(key, 0.0)
        self.piled[key] = begins + along
        return begins

    def filled(self, marker: Json, at: int) -> Json:
        """Attributes of a bar: its fill, its pattern, its outline."""
        line = marker.get("line", {})
        look = {"stroke": line.get("color"), "stroke_width": line.get("width")}
        pattern = marker.get("pattern")
        if not pattern:
            return look | {"fill": marker.get("color", "none")}
        name = f"p{at}"
        fore, size = pattern["fgcolor"], PATTERN
        ways = {
            "\\": f"M0 0L{size} {size}",
            "/": f"M0 {size}L{size} 0",
            "-": f"M0 {size / 2}L{size} {size / 2}",
            "|": f"M{size / 2} 0L{size / 2} {size}",
            "x": f"M0 0L{size} {size}M0 {size}L{size} 0",
        }
        way = ways.get(pattern["shape"])
        inside = f'<rect width="{size}" height="{size}" fill="{pattern["bgcolor"]}"/>'
        inside += (
            f'<path d="{way}" stroke="{fore}" stroke-width="1.4"/>'
            if way
            else f'<circle cx="3" cy="3" r="1.4" fill="{fore}"/>'
        )
        self.drawing.definitions[name] = (
            f'<pattern id="{name}" width="{size}" height="{size}" patternUnits="userSpaceOnUse">'
            f"{inside}</pattern>"
        )
        return look | {"fill": f"url(#{name})"}

    # Lines and marks

    def marks(self, trace: Json) -> None:
        y, mode = self.axis_of(trace), trace.get("mode", "markers")
        points = [
            (self.x.at(a), y.at(b))
            for a, b in zip(trace["x"], trace["y"], strict=True)
            if a is not None and b is not None
        ]
        if "lines" in mode:
            line = trace["line"]
            way = "M" + "L".join(f"{number(a)} {number(b)}" for a, b in points)
            dash = DASHES.get(line.get("dash", ""))
            stroke = {"stroke": line["color"], "stroke_width": 2, "stroke_dasharray": dash}
            self.drawing.add("path", d=way, fill="none", **stroke)
        marker = trace.get("marker", {})
        colour = marker.get("color") or trace.get("line", {}).get("color")
        if "error_x" in trace:
            spread = trace["error_x"]
            for (_, b), value, more, less in zip(
                points, trace["x"], spread["array"], spread["arrayminus"], strict=True
            ):
                ends = (self.x.at(value - less), self.x.at(value + more))
                self.drawing.line(ends[0], b, ends[1], b, stroke=spread["color"])
        for place, (a, b) in enumerate(points):
            self.mark(marker.get("symbol", "circle"), a, b, marker.get("size", 7) / 2, colour)
            if trace.get("text"):
                self.drawing.text(a, b - 9, str(trace["text"][place]), anchor="middle")

    def mark(self, symbol: str, x: float, y: float, r: float, colour: str) -> None:
        if symbol in ("circle", "circle-open"):
            hollow = symbol.endswith("open")
            look = {"fill": "none" if hollow else colour, "stroke": colour if hollow else None}
            self.drawing.add("circle", cx=x, cy=y, r=r, stroke_width=2 if hollow else None, **look)
            return
        d = 1.3 * r
        ways = {
            "square": f"M{x - r} {y - r}h{2 * r}v{2 * r}h{-2 * r}z",
            "diamond": f"M{x} {y - d}l{d} {d}l{-d} {d}l{-d} {-d}z",
            "triangle-up": f"M{x} {y - r}l{r} {2 * r}h{-2 * r}z",
        }
        self.drawing.add("path", d=ways.get(symbol, ways["square"]), fill=colour)

    # Axes, names and what is written into the picture

    def frame(self) -> None:
        line, draw = self.drawing.theme.line, self.drawing
        for axis in self.y.values():
            draw.line(self.left, axis.start, self.left, axis.end, stroke=line)
            for place, label in axis.ticks:
                if axis.spec.get("showgrid", True) and not axis.names:
                    draw.line(self.left, place, self.right, place, stroke=line, stroke_width=0.6)
                draw.text(self.left - 6, place + 4, label.strip(), anchor="end", soft=True)
            self.name_of(axis)
        draw.line(self.left, self.bottom, self.right, self.bottom, stroke=line)
        for place, label in self.x.ticks:
            draw.text(place, self.bottom + 17, label, anchor="middle", soft=True)
        title = self.layout["xaxis"].get("title", {}).get("text", "")
        draw.text((self.left + self.right) / 2, self.bottom + 38, title, anchor="middle", soft=True)
        for shape in self.layout.get("shapes", ()):
            y = self.y["yaxis"].at(shape["y0"])
            draw.line(self.left, y, self.right, y, stroke=draw.theme.ink, stroke_dasharray="6 4")
        for note in self.layout.get("annotations", ()):
            self.note(note)
        self.legend()

    def name_of(self, axis: Axis) -> None:
        """The axis' own name, from below to above."""
        title = (axis.spec.get("title") or {}).get("text")
        if title:
            x, y = self.left - 38, (axis.start + axis.end) / 2
            turn: Json = {"transform": f"rotate(-90 {number(x)} {number(y)})", "anchor": "middle"}
            self.drawing.text(x, y, title, soft=True, **turn)

    def note(self, note: Json) -> None:
        """A text at a place of the paper, or over a point that it names."""
        name = str(note.get("yref", "y")).split()[0].replace("y", "yaxis")
        axis = self.y[name]
        if note.get("xref") == "paper":
            right = note.get("xanchor") == "right"
            x = self.right if right else self.left
            inside = "domain" in str(note.get("yref"))
            y = (axis.end if inside else axis.at(note["y"])) - 5
            self.drawing.text(x, y, note["text"], anchor="end" if right else "start")
            return
        # On a logarithmic axis plotly gives the place itself.
        x, y = self.x.place(note["x"]), axis.place(note["y"])
        end = min(max(x, self.left + 40), self.right - 40)
        self.drawing.line(x, y - 10, end, y + note["ay"] + 6, stroke=self.drawing.theme.ink)
        self.drawing.text(end, y + note["ay"], note["text"], anchor="middle")

    def legend(self) -> None:
        x = self.left
        for at, trace in enumerate(self.shown()):
            name = trace["name"]
            if trace["type"] == "bar":
                self.drawing.rect(x, 6, 12, 12, **self.filled(trace["marker"], 100 + at))
            elif "lines" in trace.get("mode", ""):
                look = {"stroke": trace["line"]["color"], "stroke_width": 2}
                dash = DASHES.get(trace["line"].get("dash", ""))
                self.drawing.line(x - 4, 12, x + 16, 12, stroke_dasharray=dash, **look)
            else:
                marker = trace["marker"]
                self.mark(marker.get("symbol", "circle"), x + 6, 12, 5, marker["color"])
            self.drawing.text(x + 20, 16, name, soft=True)
            x += 38 + text_width(name)

    def shown(self) -> list[Json]:
        """The traces that the legend names."""
        named = [one for one in self.data if one.get("name") and one.get("showlegend", True)]
        return named if len(named) > 1 else []
