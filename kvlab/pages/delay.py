"""The Delay page: what the users of a run notice."""

from __future__ import annotations

from collections.abc import Callable

import ipywidgets

from kvlab.course.delays import delay_table
from kvlab.course.record import recorded
from kvlab.draw.chart import Chart
from kvlab.draw.chart_look import count
from kvlab.draw.controls import bounded, button, columns, flow, menu, name_of, pills, stack
from kvlab.draw.gaps_chart import gaps_chart
from kvlab.draw.guard import guarded
from kvlab.draw.outputs_chart import outputs_chart
from kvlab.errors import BadInput
from kvlab.pages import views
from kvlab.pages.lab_scenarios import PRESETS, Raw, about, checked, pack, unpack
from kvlab.pages.page import Page
from kvlab.pages.place import Query
from kvlab.pages.visit import LivePanel, Visit
from kvlab.trace.document import Trace

FIRST = "figure-5"
LIMITS = (None, 1, 2, 3, 5, 10)
AXES = ("steps", "milliseconds")
TITLE = "Delay"
LEAD = (
    "Nobody sees blocks. What a user sees is when the next output comes, and that a pause makes one "
    "of them late."
)
WORDS = """<h3>Three words for it</h3>
<dl class="kp-list">
<dt>TTFT</dt><dd>time to first token: from the step in which the request arrives to the one that
delivers its first output. Prefill is in it, and waiting for room before.</dd>
<dt>Gap</dt><dd>between two outputs of one request, also called inter-token latency (ITL). One step
while it decodes; a pause adds waiting and recovery.</dd>
<dt>Goodput</dt><dd>outputs that were delivered in time, per step or second. Tokens that are computed
a second time are work, and no goodput. Without a limit every output is in time; with one, an output
that comes later than the limit after the one before (the first: after arrival) does not count.</dd>
</dl>"""


class Delay(Page):
    """`trace` is the run that is looked at: a recorded one, or the Lab's."""

    name, label = "delay", "Delay"

    def __init__(self, visit: Visit, moved: Callable[[], None]) -> None:
        super().__init__(visit, moved)
        self.silent = False
        self.runs = menu([about(name)[0] for name in PRESETS], "Run", PRESETS.index(FIRST))
        self.limits = menu(
            ["no limit" if limit is None else count(limit, "step") for limit in LIMITS],
            "In time is up to",
        )
        self.lab_button = button("Take the Lab's run")
        self.panel = LivePanel(visit, self, (self.runs, self.lab_button))
        self.own: Raw | None = None
        self.axes = pills(["Steps", "Measured time"], "Axis", index=0)
        self.table = ipywidgets.HTML()
        self.outputs, self.gaps = Chart(), Chart()
        self.widget = stack(
            ipywidgets.HTML(views.title(TITLE, LEAD)),
            stack(
                flow(self.runs, self.lab_button),
                flow(name_of("Axis"), self.axes, self.limits),
                self.panel.widget,
                self.card,
            ),
            self.outputs,
            columns(self.table, ipywidgets.HTML(WORDS)),
            self.gaps,
        ).add_class("kp-sections")
        self.trace = recorded(FIRST)
        self.show()
        self.runs.observe(self.run_chosen, "index")
        self.limits.observe(self.chosen, "index")
        self.axes.observe(self.chosen, "index")
        self.lab_button.on_click(self.lab_pressed)

    # The place

    @property
    def query(self) -> Query:
        packed = pack(self.own) if self.own else ""
        name = PRESETS[bounded(self.runs.index, PRESETS)]
        found = {"s": packed} if packed else {"scenario": name}
        if self.limit:
            found["limit"] = str(self.limit)
        if self.axes.index:
            found["axis"] = AXES[1]
        return found

    @property
    def limit(self) -> int | None:
        return LIMITS[bounded(self.limits.index, LIMITS)]

    def open(self, query: Query) -> None:
        self.panel.stop()
        name = query.get("scenario", FIRST)
        limits = [str(limit or "") for limit in LIMITS]
        self.silent = True
        try:
            self.runs.index = PRESETS.index(name if name in PRESETS else FIRST)
            limit = query.get("limit", "")
            self.limits.index = limits.index(limit) if limit in limits else 0
            self.axes.index = int(query.get("axis") == AXES[1])
        finally:
            self.silent = False
        self.look()
        if query.get("s"):
            own = unpack(query["s"])
            self.panel.run([checked(own)], lambda traces: self.take(traces[0], own))

    # Showing

    def look(self) -> None:
        """The recorded run that is chosen. Raises BadInput where it is missing."""
        self.take(recorded(PRESETS[bounded(self.runs.index, PRESETS)]))

    def take(self, trace: Trace, own: Raw | None = None) -> None:
        """Look at this run; `own` is its scenario where that is none of ours."""
        self.trace, self.own = trace, own
        self.fail("")
        self.show()
        self.moved()

    def show(self) -> None:
        trace = self.trace
        outputs_chart(trace, self.outputs, measured=bounded(self.axes.index, AXES) == 1)
        gaps_chart(trace, self.gaps)
        self.table.value = delay_table(trace, self.limit).as_html()
        self.panel.rest(views.status(trace))

    # What widgets call

    @guarded
    def run_chosen(self, _: object) -> None:
        if not self.silent:
            self.look()

    @guarded
    def chosen(self, _: object) -> None:
        if not self.silent:
            self.show()
            self.moved()

    @guarded
    def lab_pressed(self, _: object) -> None:
        if self.visit.trace is None:
            raise BadInput("open the Lab first: there is no run of yours yet.")
        trace = self.visit.trace
        own = trace.document["scenario"]
        shipped = own["name"] in PRESETS and own == recorded(own["name"]).document["scenario"]
        if shipped:
            self.silent = True
            try:
                self.runs.index = PRESETS.index(own["name"])
            finally:
                self.silent = False
        self.take(trace, None if shipped else own)
