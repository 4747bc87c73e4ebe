"""The Cost page: on paper, which method brings a request back sooner on which hardware."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import ipywidgets

from kvlab.course.cost import MACHINES, MODELS, own_machine, symbols
from kvlab.course.crossover import Crossovers
from kvlab.draw.chart import Chart
from kvlab.draw.controls import bounded, bounded_number, columns, menu, stack
from kvlab.draw.cost_chart import cost_chart_of
from kvlab.draw.guard import guarded
from kvlab.engine.cost_model import LINK_REACHED, Machine, ModelShape
from kvlab.errors import BadInput
from kvlab.pages import views
from kvlab.pages.page import Page
from kvlab.pages.place import Query
from kvlab.pages.visit import Visit
from kvlab.trace.speech import Speech

OWN = "Own numbers"
"""In addresses: no machine or model of our lists."""
OWN_SOURCE = "own numbers"


@dataclass(frozen=True, slots=True)
class Field:
    """A number that a person may set: its key in links and the catalogue, and its bounds; `log` for
    one that spans powers of ten."""

    key: str
    least: float
    most: float
    log: bool = False


MACHINE_FIELDS = (
    Field("tflops", 0.1, 10_000, log=True),
    Field("memory", 1, 20_000, log=True),
    Field("link", 0.1, 2_000, log=True),
    Field("copy", 0, 100),
)
MODEL_FIELDS = (
    Field("parameters", 0.001, 1_000, log=True),
    Field("layers", 1, 160),
    Field("heads", 1, 160),
    Field("kv_heads", 1, 160),
    Field("head_dim", 1, 512),
    Field("bytes", 1, 4),
)
ROUNDED = 0.005  # of a number, by the steps of a slider
MOST_LINK = 10**12  # of a number in a link, before it is bounded


class Sliders:
    """A slider a number. `show` sets them without taking that for a person's hand."""

    def __init__(
        self, fields: tuple[Field, ...], speech: Speech, changed: Callable[[object], None]
    ) -> None:
        self.fields, self.speech = fields, speech
        self.inputs = {one.key: slider(one, speech) for one in fields}
        self.widget = stack(*self.inputs.values()).add_class("kp-sliders")
        for input in self.inputs.values():
            input.observe(changed, "value")

    def number(self, key: str) -> float:
        """What a slider says, within its bounds. Raises BadInput."""
        one = next(field for field in self.fields if field.key == key)
        name = self.speech(f"cost.{key}")
        return bounded_number(self.inputs[key].value, name, one.least, one.most, self.speech)

    def show(self, numbers: dict[str, float]) -> None:
        """Set every slider, as near as its bounds allow."""
        for one in self.fields:
            self.inputs[one.key].value = min(max(numbers[one.key], one.least), one.most)

    def differ(self, numbers: dict[str, float]) -> bool:
        """Whether the sliders stand elsewhere than on these numbers: on a scale of powers of ten a
        browser rounds what it was told."""
        return any(
            not math.isclose(self.inputs[one.key].value, numbers[one.key], rel_tol=ROUNDED)
            for one in self.fields
        )

    @property
    def query(self) -> Query:
        return {key: f"{input.value:g}" for key, input in self.inputs.items()}

    def read(self, query: Query, numbers: dict[str, float]) -> dict[str, float]:
        """The numbers of a link; what is no number there is as given."""
        found = dict(numbers)
        for one in self.fields:
            try:
                value = float(query.get(one.key, "")[:20])
            except ValueError:
                continue
            if abs(value) < MOST_LINK:  # false for what is no number, too
                found[one.key] = value
        return found


def slider(field: Field, speech: Speech) -> ipywidgets.FloatSlider:
    """A slider with its name above and its number beside it."""
    look: dict[str, Any] = {
        "description": speech(f"cost.{field.key}"),
        "readout_format": ".4g",
        "layout": {"width": "auto"},
        "style": {"description_width": "auto"},
    }
    if field.log:
        exponents = {"min": math.log10(field.least), "max": math.log10(field.most), "step": 0.001}
        return ipywidgets.FloatLogSlider(value=field.least, base=10, **exponents, **look)
    return ipywidgets.FloatSlider(
        value=field.least, min=field.least, max=field.most, step=1, **look | {"readout_format": "d"}
    )


class Cost(Page):
    """The chart of a machine and a model of our lists; a slider that is moved makes it one's own."""

    name = "cost"

    def __init__(self, visit: Visit, moved: Any) -> None:
        super().__init__(visit, moved)
        t = self.speech
        self.silent = False
        self.machines = menu([*MACHINES, t("cost.own")], t("cost.hardware"))
        self.models = menu([*MODELS, t("cost.own")], t("cost.model"))
        self.machine_sliders = Sliders(MACHINE_FIELDS, t, self.machine_moved)
        self.model_sliders = Sliders(MODEL_FIELDS, t, self.model_moved)
        self.chart = Chart()
        self.symbols, self.crossovers = ipywidgets.HTML(), ipywidgets.HTML()
        settings = stack(
            self.machines,
            self.machine_sliders.widget,
            self.models,
            self.model_sliders.widget,
        ).add_class("kp-settings")
        shown = stack(self.card, ipywidgets.HTML(views.note(t("cost.note"))), self.chart)
        self.widget = stack(
            ipywidgets.Box([settings, shown]).add_class("kp-beside"),
            columns(ipywidgets.HTML(formulas(t)), self.crossovers),
            self.symbols,
        ).add_class("kp-cost")
        self.take(next(iter(MACHINES)), next(iter(MODELS)))
        self.machines.observe(self.chosen, "index")
        self.models.observe(self.chosen, "index")

    # The place

    @property
    def query(self) -> Query:
        machine, model = self.names
        found = {"page": self.name, "machine": machine, "model": model}
        if machine == OWN:
            found |= self.machine_sliders.query
        if model == OWN:
            found |= self.model_sliders.query
        return found

    @property
    def names(self) -> tuple[str, str]:
        """Of the machine and the model on show."""
        machines, models = [*MACHINES, OWN], [*MODELS, OWN]
        return (
            machines[bounded(self.machines.index, machines)],
            models[bounded(self.models.index, models)],
        )

    def open(self, query: Query) -> None:
        first = next(iter(MACHINES)), next(iter(MODELS))
        machine = self.named(query, "machine", [*MACHINES, OWN], "page.no_machine", first[0])
        model = self.named(query, "model", [*MODELS, OWN], "page.no_model", first[1])
        self.take(machine, model, query)
        self.tell_wrong()

    # Showing

    def take(self, machine: str, model: str, query: Query | None = None) -> None:
        """Show a machine and a model: the lists and the sliders say them."""
        of_machine = numbers_of_machine(MACHINES.get(machine, next(iter(MACHINES.values()))))
        of_model = numbers_of_model(MODELS.get(model, next(iter(MODELS.values()))))
        self.silent = True
        try:
            self.machines.index = [*MACHINES, OWN].index(machine)
            self.models.index = [*MODELS, OWN].index(model)
            own = query or {}
            if machine == OWN:
                of_machine = self.machine_sliders.read(own, of_machine)
            if model == OWN:
                of_model = self.model_sliders.read(own, of_model)
            self.machine_sliders.show(of_machine)
            self.model_sliders.show(of_model)
        finally:
            self.silent = False
        self.show()

    @property
    def machine(self) -> Machine:
        """Raises BadInput for own numbers out of bounds."""
        name, number = self.names[0], self.machine_sliders.number
        if name != OWN:
            return MACHINES[name]
        own = own_machine(
            OWN,
            tflops=number("tflops"),
            memory_gb=number("memory"),
            link_gb=number("link"),
        )
        return replace(own, name=self.speech("cost.own"), copy_seconds=number("copy") * 1e-6)

    @property
    def model(self) -> ModelShape:
        """Raises BadInput for own numbers out of bounds."""
        name, number = self.names[1], self.model_sliders.number
        if name != OWN:
            return MODELS[name]
        whole = {
            key: int(number(key)) for key in ("layers", "heads", "kv_heads", "head_dim", "bytes")
        }
        if whole["kv_heads"] > whole["heads"]:
            raise BadInput(self.speech("cost.too_many_heads"))
        return ModelShape(
            self.speech("cost.own"),
            parameters=number("parameters") * 1e9,
            source=OWN_SOURCE,
            **whole,
        )

    def show(self) -> None:
        machine, model, t = self.machine, self.model, self.speech
        self.fail("")
        cost_chart_of(machine, model, self.chart, t)
        self.symbols.value = symbols(machine, model, t).as_html()
        self.crossovers.value = Crossovers(model, machine).table(t).as_html()

    # What widgets call

    @guarded
    def chosen(self, _: object) -> None:
        """Another machine or model of the lists; `Own numbers` begins with what is on show."""
        if not self.silent:
            machine, model = self.names
            own = self.machine_sliders.query | self.model_sliders.query
            self.take(machine, model, own)
            self.moved()

    @guarded
    def machine_moved(self, _: object) -> None:
        machine = MACHINES.get(self.names[0])
        if machine is None or self.machine_sliders.differ(numbers_of_machine(machine)):
            self.made_own(self.machines, len(MACHINES))

    @guarded
    def model_moved(self, _: object) -> None:
        model = MODELS.get(self.names[1])
        if model is None or self.model_sliders.differ(numbers_of_model(model)):
            self.made_own(self.models, len(MODELS))

    def made_own(self, list_of: ipywidgets.Dropdown, own: int) -> None:
        """A slider was moved: the numbers are the person's now."""
        if self.silent:
            return
        self.silent = True
        try:
            list_of.index = own
        finally:
            self.silent = False
        self.show()
        self.moved()


def numbers_of_machine(machine: Machine) -> dict[str, float]:
    """In the units of the sliders."""
    return {
        "tflops": machine.operations / 1e12,
        "memory": machine.memory / 1e9,
        "link": machine.in_link / LINK_REACHED / 1e9,
        "copy": machine.copy_seconds * 1e6,
    }


def numbers_of_model(model: ModelShape) -> dict[str, float]:
    """In the units of the sliders."""
    whole = ("layers", "heads", "kv_heads", "head_dim", "bytes")
    return {"parameters": model.parameters / 1e9} | {key: getattr(model, key) for key in whole}


def formulas(t: Speech) -> str:
    """The two formulas with what they mean, and where they are from."""
    parts = "".join(
        f"<p><b>{escape(t(f'cost.name_{name}'))}</b> "
        f'<span class="kp-math">{escape(t(f"cost.math_{name}"))}</span></p>'
        f"<p>{escape(t(f'cost.about_{name}'))}</p>"
        for name in ("recompute", "swap")
    )
    return (
        f'<div class="kp-formulas"><h3>{escape(t("cost.formulas"))}</h3>{parts}'
        f'<p class="kvlab-note">{escape(t("cost.sources"))}</p></div>'
    )
