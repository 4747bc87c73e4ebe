"""The Cost page: on paper, which method brings a request back sooner on which hardware."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import ipywidgets

from kvlab.course.cost import MACHINES, MODELS, own_machine, symbols
from kvlab.course.crossover import Crossovers
from kvlab.draw.chart import Chart
from kvlab.draw.controls import bounded, bounded_number, columns, flow, pills, show_if, stack
from kvlab.draw.cost_chart import cost_chart_of
from kvlab.draw.guard import guarded
from kvlab.engine.cost_model import Machine, ModelShape
from kvlab.errors import BadInput
from kvlab.pages import views
from kvlab.pages.page import Page
from kvlab.pages.place import Query
from kvlab.pages.visit import Visit

OWN = "Own numbers"
TITLE = "Cost"
LEAD = (
    "To come back, a request either computes its KV again or has it copied back. Which is sooner "
    "depends on the model, the hardware and the length of its history. These curves are calculated "
    "from public data sheets by the formulas below; nothing on this page is measured."
)
FORMULAS = """<div class="kp-formulas"><h3>The formulas</h3>
<p><b>Recompute</b> <span class="kp-math">T(N) = max( weight bytes / memory bandwidth,
2·P·N / (F·u) ) + 2·L·H·D·N² / (F·u)</span></p>
<p>One pass over all N tokens: at least as long as reading the weights once, else as long as its
multiplications take; then attention, which grows with the square of N.</p>
<p><b>Swap</b> <span class="kp-math">T(N) = 2·N·(2·L·K·D·bytes) / link + c·copies(N)</span></p>
<p>The KV of N tokens goes over the link twice, out and back in; and each copy costs a start.</p>
<p class="kvlab-note">Sources: Kwon et al. 2023 (PagedAttention), sections 4.5 and 7.3; Kaplan et al.
2020, section 2.1; the roofline, Williams et al. 2009.</p></div>"""


@dataclass(frozen=True, slots=True)
class Field:
    """A number that a person may give: key in links, label, unit, default and bounds."""

    key: str
    label: str
    default: float
    least: float
    most: float


MACHINE_FIELDS = (
    Field("tflops", "operations, peak, TFLOP/s", 989, 0.01, 100_000),
    Field("memory", "memory bandwidth, GB/s", 3_350, 0.1, 100_000),
    Field("link", "link, peak one way, GB/s", 63, 0.01, 10_000),
    Field("copy", "to start a copy, µs", 10, 0, 10_000),
)
MODEL_FIELDS = (
    Field("parameters", "parameters in the layers, billions", 7, 0.0001, 10_000),
    Field("layers", "layers", 32, 1, 1_000),
    Field("heads", "attention heads", 32, 1, 1_000),
    Field("kv_heads", "KV heads", 8, 1, 1_000),
    Field("head_dim", "head size", 128, 1, 4_096),
    Field("bytes", "bytes of a value", 2, 1, 8),
)


class Fields:
    """Number fields that are shown when a person wants numbers of their own."""

    def __init__(self, fields: tuple[Field, ...], changed: Callable[[object], None]) -> None:
        self.fields = fields
        self.inputs = {
            one.key: ipywidgets.FloatText(
                value=one.default,
                description=one.label,
                style={"description_width": "auto"},
                layout={"width": "auto"},
            )
            for one in fields
        }
        self.widget = ipywidgets.Box(list(self.inputs.values())).add_class("kp-numbers")
        for field in self.inputs.values():
            field.observe(changed, "value")

    def number(self, key: str) -> float:
        """What a field holds, within its bounds. Raises BadInput."""
        one = next(field for field in self.fields if field.key == key)
        return bounded_number(self.inputs[key].value, one.label, one.least, one.most)

    @property
    def query(self) -> Query:
        """The numbers that are not the defaults."""
        return {
            one.key: f"{self.inputs[one.key].value:g}"
            for one in self.fields
            if self.inputs[one.key].value != one.default
        }

    def open(self, query: Query) -> None:
        """Take the numbers of a link; what is no number stays as on a first visit."""
        for one in self.fields:
            try:
                self.inputs[one.key].value = float(query.get(one.key, str(one.default))[:20])
            except ValueError:
                self.inputs[one.key].value = one.default


class Cost(Page):
    """The chart of a machine and a model: of our lists, or in own numbers."""

    name, label = "cost", "Cost"

    def __init__(self, visit: Visit, moved: Callable[[], None]) -> None:
        super().__init__(visit, moved)
        self.silent = False
        self.machines = pills([*MACHINES, OWN], "Hardware", 0)
        self.models = pills([*MODELS, OWN], "Model", 0)
        self.machine_fields = Fields(MACHINE_FIELDS, self.chosen)
        self.model_fields = Fields(MODEL_FIELDS, self.chosen)
        self.chart = Chart()
        self.symbols, self.crossovers = ipywidgets.HTML(), ipywidgets.HTML()
        self.widget = stack(
            ipywidgets.HTML(views.title(TITLE, LEAD)),
            stack(
                ipywidgets.HTML("<h3>Hardware</h3>"),
                flow(self.machines),
                self.machine_fields.widget,
                ipywidgets.HTML("<h3>Model</h3>"),
                flow(self.models),
                self.model_fields.widget,
                self.card,
            ),
            self.chart,
            columns(ipywidgets.HTML(FORMULAS), self.crossovers),
            self.symbols,
        ).add_class("kp-sections")
        self.show()
        self.machines.observe(self.chosen, "index")
        self.models.observe(self.chosen, "index")

    # The place

    @property
    def query(self) -> Query:
        machine, model = self.named
        found = {"machine": machine, "model": model}
        if machine == OWN:
            found |= self.machine_fields.query
        if model == OWN:
            found |= self.model_fields.query
        return found

    @property
    def named(self) -> tuple[str, str]:
        machines, models = [*MACHINES, OWN], [*MODELS, OWN]
        return (
            machines[bounded(self.machines.index, machines)],
            models[bounded(self.models.index, models)],
        )

    def open(self, query: Query) -> None:
        machines, models = [*MACHINES, OWN], [*MODELS, OWN]
        machine, model = query.get("machine", ""), query.get("model", "")
        self.silent = True
        try:
            self.machine_fields.open(query)
            self.model_fields.open(query)
            self.machines.index = machines.index(machine) if machine in machines else 0
            self.models.index = models.index(model) if model in models else 0
        finally:
            self.silent = False
        self.show()

    # Showing

    @property
    def machine(self) -> Machine:
        """Raises BadInput for own numbers out of bounds."""
        name, number = self.named[0], self.machine_fields.number
        if name != OWN:
            return MACHINES[name]
        own = own_machine(
            OWN, tflops=number("tflops"), memory_gb=number("memory"), link_gb=number("link")
        )
        return replace(own, copy_seconds=number("copy") * 1e-6)

    @property
    def model(self) -> ModelShape:
        """Raises BadInput for own numbers out of bounds."""
        name, number = self.named[1], self.model_fields.number
        if name != OWN:
            return MODELS[name]
        whole = {key: int(number(key)) for key in ("layers", "heads", "kv_heads", "head_dim")}
        if whole["kv_heads"] > whole["heads"]:
            raise BadInput("KV heads must not be more than the attention heads that share them.")
        return ModelShape(
            OWN,
            parameters=number("parameters") * 1e9,
            bytes=int(number("bytes")),
            source="own numbers",
            **whole,
        )

    def show(self) -> None:
        names = self.named
        show_if(self.machine_fields.widget, names[0] == OWN)
        show_if(self.model_fields.widget, names[1] == OWN)
        machine, model = self.machine, self.model
        self.fail("")
        cost_chart_of(machine, model, self.chart)
        self.symbols.value = symbols(machine, model).as_html()
        self.crossovers.value = Crossovers(model, machine).table.as_html()

    @guarded
    def chosen(self, _: object) -> None:
        if not self.silent:
            self.show()
            self.moved()
