"""The Compare page: one scenario run in two ways, side by side: as a race, or step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets

from kvlab.course.compare import by_method, made
from kvlab.course.record import recorded
from kvlab.draw.controls import bounded, button, flow, menu, pills, show_if, stack
from kvlab.draw.guard import guarded
from kvlab.draw.pair import Pair
from kvlab.draw.race import Race
from kvlab.errors import BadInput
from kvlab.pages import views
from kvlab.pages.lab_scenarios import Raw, about, checked, pack, unpack
from kvlab.pages.page import Page
from kvlab.pages.place import Query
from kvlab.pages.visit import LivePanel, Visit
from kvlab.runs.scenario import Scenario, load_scenario
from kvlab.trace.document import Trace

SIDES = ("left", "right")
VIEWS = ("race", "steps")
SCENARIOS = ("figure-5", "victims", "storm", "cache-shortens", "waiting-frees-nothing")


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run a scenario: its name in links and the catalogue, which is that of a method unless it
    has settings of its own."""

    name: str
    settings: tuple[str, ...] = ()
    recorded: str = ""
    """The shipped recording of figure-5 run in this way."""


WAYS = (
    Way("recompute", recorded="figure-5"),
    Way("swap", recorded="figure-4"),
    Way("auto"),
    Way("enough", ("engine.num_blocks=auto",)),
)


def first_preemption(traces: Sequence[Trace]) -> int:
    """The step in which the first of the runs pauses somebody: there is something to see. Else 0."""
    steps = (e["step"] for trace in traces for e in trace.events if e["kind"] == "preempted")
    return min(steps, default=0)


class Compare(Page):
    """`runs` are the two on show, in `view`; `own` is a scenario of the visitor's, from the Lab or a
    link."""

    name = "compare"

    def __init__(self, visit: Visit, moved: Any) -> None:
        super().__init__(visit, moved)
        t = self.speech
        self.silent = False
        self.own: Raw | None = None
        self.scenarios = menu([about(name, t)[0] for name in SCENARIOS], t("compare.scenario"))
        self.lab_button = button(t("compare.take"))
        labels = [t(f"compare.{way.name}") for way in WAYS]
        self.sides = [menu(labels, t(f"compare.{side}"), at) for at, side in enumerate(SIDES)]
        self.views = pills([t(f"compare.{view}") for view in VIEWS], t("compare.view"), 0)
        self.panel = LivePanel(visit, self, (self.scenarios, self.lab_button, *self.sides))
        self.runs: list[Trace] = []
        self.view: Pair | Race | None = None
        self.result = ipywidgets.Box().add_class("kp-pair")
        self.widget = stack(
            flow(
                self.views,
                self.scenarios,
                self.lab_button,
                *self.sides,
            ).add_class("kp-strip"),
            self.card,
            self.result,
            self.panel.widget,
        ).add_class("kp-compare")
        self.came()
        self.look()
        self.scenarios.observe(self.scenario_chosen, "index")
        self.lab_button.on_click(self.lab_pressed)
        self.views.observe(self.view_chosen, "index")
        for side in self.sides:
            side.observe(self.way_chosen, "index")

    # The place

    @property
    def query(self) -> Query:
        left, right = self.ways
        found = {"page": self.name, "left": left.name, "right": right.name}
        found |= {"view": VIEWS[1]} if self.views.index else {}
        packed = pack(self.own) if self.own else ""
        return found | ({"s": packed} if packed else {"scenario": self.scenario_name})

    @property
    def on_show(self) -> tuple[str, str]:
        return (self.view.model_id or "" if self.view else ""), ""

    @property
    def scenario_name(self) -> str:
        return SCENARIOS[bounded(self.scenarios.index, SCENARIOS)]

    @property
    def ways(self) -> tuple[Way, Way]:
        left, right = (WAYS[bounded(side.index, WAYS)] for side in self.sides)
        return left, right

    def open(self, query: Query) -> None:
        self.panel.stop()
        self.own = unpack(query["s"], self.speech) if query.get("s") else None
        names = [way.name for way in WAYS]
        self.silent = True
        try:
            name = self.named(query, "scenario", SCENARIOS, "page.no_scenario", SCENARIOS[0])
            self.scenarios.index = SCENARIOS.index(name)
            self.views.index = int(query.get("view") == VIEWS[1])
            for pill, side, default in zip(self.sides, SIDES, names, strict=False):
                pill.index = names.index(self.named(query, side, names, "page.no_way", default))
        finally:
            self.silent = False
        self.look(query)
        self.tell_wrong()

    def came(self) -> None:
        show_if(self.lab_button, self.visit.scenario is not None)

    # Showing

    def look(self, query: Query | None = None) -> None:
        """The two runs: recorded where both are, else run now; at the step of a link."""
        self.moved()
        ways = self.ways
        shipped = self.own is None and self.scenario_name == SCENARIOS[0]
        if shipped and all(way.recorded for way in ways):
            self.fail("")
            self.show([recorded(way.recorded) for way in ways], ways, query)
            return
        scenarios = [self.scenario(way) for way in ways]
        if ways[0] is ways[1]:
            raise BadInput(self.speech("compare.same_way"))
        self.panel.run(scenarios, lambda traces: self.show(traces, ways, query))

    def scenario(self, way: Way) -> Scenario:
        """What runs on a side."""
        base = checked(self.own, self.speech) if self.own else load_scenario(self.scenario_name)
        return base.with_settings(way.settings) if way.settings else by_method(base, way.name)

    def show(
        self, traces: Sequence[Trace], ways: tuple[Way, Way], query: Query | None = None
    ) -> None:
        t = self.speech
        self.runs, self.names = list(traces), tuple(t(f"compare.{way.name}") for way in ways)
        self.draw()
        step = (query or {}).get("step", "")
        if self.view and step.isascii() and step.isdigit() and len(step) < 10:
            self.view.step = min(int(step), max(len(trace.steps) for trace in traces))
        how = [made(trace, t) for trace in traces]
        self.panel.rest(views.two_on_show(list(zip(self.names, how, strict=True)), t))
        self.moved()

    def draw(self) -> None:
        """The two runs in the chosen view; the one before is closed."""
        old, t = self.view, self.speech
        left, right = self.runs
        names = (self.names[0], self.names[1])
        if self.views.index:
            title = t("compare.title", left=names[0], right=names[1])
            self.view = Pair(left, right, title=title, names=names, language=t.language)
            self.view.step = first_preemption(self.runs)
        else:
            self.view = Race(left, right, names=names, language=t.language)
        self.result.children = (self.view,)
        if old is not None:
            old.close()

    # What widgets call

    @guarded
    def scenario_chosen(self, _: object) -> None:
        if not self.silent:
            self.own = None
            self.look()

    @guarded
    def way_chosen(self, _: object) -> None:
        if not self.silent:
            self.look()

    @guarded
    def view_chosen(self, _: object) -> None:
        if not self.silent and self.runs:
            self.draw()
            self.moved()

    @guarded
    def lab_pressed(self, _: object) -> None:
        """The scenario that stands in the Lab's form, once that was opened."""
        self.own = self.visit.scenario
        self.look()
