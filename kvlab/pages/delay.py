"""The Delay page: what the users of a run notice."""

from __future__ import annotations

from html import escape
from typing import Any

import ipywidgets

from kvlab.course.delays import delay_table
from kvlab.course.record import recorded
from kvlab.draw.chart import Chart
from kvlab.draw.controls import bounded, button, columns, flow, menu, name_of, pills, show_if, stack
from kvlab.draw.gaps_chart import gaps_chart
from kvlab.draw.guard import guarded
from kvlab.draw.outputs_chart import outputs_chart
from kvlab.pages import views
from kvlab.pages.lab_scenarios import PRESETS, Raw, about, checked, pack, unpack
from kvlab.pages.page import Page
from kvlab.pages.place import Query
from kvlab.pages.visit import LivePanel, Visit
from kvlab.trace.document import Trace
from kvlab.trace.speech import Speech

FIRST = "figure-5"
LIMITS = (None, 1, 2, 3, 5, 10)
AXES = ("steps", "milliseconds")


class Delay(Page):
    """`trace` is the run that is looked at: a recorded one, or the Lab's."""

    name = "delay"

    def __init__(self, visit: Visit, moved: Any) -> None:
        super().__init__(visit, moved)
        t = self.speech
        self.silent = False
        self.runs = menu(
            [about(name, t)[0] for name in PRESETS], t("delay.run"), PRESETS.index(FIRST)
        )
        self.limits = menu(
            [t("delay.no_limit") if limit is None else t.count(limit, "step") for limit in LIMITS],
            t("delay.limit"),
        )
        self.lab_button = button(t("delay.take"))
        self.panel = LivePanel(visit, self, (self.runs, self.lab_button))
        self.own: Raw | None = None
        self.axes = pills([t("delay.steps"), t("delay.time")], t("delay.axis"), index=0)
        self.table = ipywidgets.HTML()
        self.outputs, self.gaps = Chart(), Chart()
        self.widget = stack(
            flow(
                self.runs, self.lab_button, name_of(t("delay.axis")), self.axes, self.limits
            ).add_class("kp-strip"),
            self.card,
            columns(self.outputs, self.table).add_class("kp-first"),
            columns(self.gaps, ipywidgets.HTML(three_words(t))),
            self.panel.widget,
        ).add_class("kp-delay")
        self.trace = recorded(FIRST)
        self.show()
        self.came()
        self.runs.observe(self.run_chosen, "index")
        self.limits.observe(self.chosen, "index")
        self.axes.observe(self.chosen, "index")
        self.lab_button.on_click(self.lab_pressed)

    # The place

    @property
    def query(self) -> Query:
        packed = pack(self.own) if self.own else ""
        name = PRESETS[bounded(self.runs.index, PRESETS)]
        found = {"page": self.name} | ({"s": packed} if packed else {"scenario": name})
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
        name = self.named(query, "scenario", PRESETS, "page.no_scenario", FIRST)
        limits = [str(limit or "") for limit in LIMITS]
        self.silent = True
        try:
            self.runs.index = PRESETS.index(name)
            limit = query.get("limit", "")
            self.limits.index = limits.index(limit) if limit in limits else 0
            self.axes.index = int(query.get("axis") == AXES[1])
        finally:
            self.silent = False
        self.look()
        if query.get("s"):
            own = unpack(query["s"], self.speech)
            scenario = checked(own, self.speech)
            self.panel.run([scenario], lambda traces: self.take(traces[0], own))
        self.tell_wrong()

    def came(self) -> None:
        show_if(self.lab_button, self.visit.trace is not None)

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
        trace, t = self.trace, self.speech
        measured = bounded(self.axes.index, AXES) == 1
        outputs_chart(trace, self.outputs, measured, t)
        gaps_chart(trace, self.gaps, t)
        self.table.value = delay_table(trace, self.limit, t).as_html()
        self.panel.rest(views.status(trace, t))

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
        """The run in the Lab's player, once that was opened."""
        trace = self.visit.trace
        if trace is None:
            return
        own = trace.document["scenario"]
        shipped = own["name"] in PRESETS and own == recorded(own["name"]).document["scenario"]
        if shipped:
            self.silent = True
            try:
                self.runs.index = PRESETS.index(own["name"])
            finally:
                self.silent = False
        self.take(trace, None if shipped else own)


def three_words(t: Speech) -> str:
    """TTFT, gap and goodput, with what they mean."""
    words = "".join(
        f"<dt>{escape(t(f'delay.{name}'))}</dt><dd>{escape(t(f'delay.{name}_is'))}</dd>"
        for name in ("ttft", "gap", "goodput")
    )
    return f'<h3>{escape(t("delay.three"))}</h3><dl class="kp-list">{words}</dl>'
