"""The Compare page: one scenario run in two ways, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ipywidgets

from kvlab.course.compare import made
from kvlab.course.record import recorded
from kvlab.draw.controls import bounded, button, flow, menu, name_of, pills, stack
from kvlab.draw.guard import guarded
from kvlab.draw.pair import Pair
from kvlab.errors import BadInput
from kvlab.pages import views
from kvlab.pages.lab_scenarios import Raw, about, checked, pack, unpack
from kvlab.pages.page import Page
from kvlab.pages.place import Query
from kvlab.pages.visit import LivePanel, Visit
from kvlab.runs.scenario import Scenario, load_scenario
from kvlab.trace.document import Trace

SCENARIOS = ("figure-5", "victims", "storm", "cache-shortens", "waiting-frees-nothing")
TITLE = "Compare"
LEAD = (
    "The same requests on the same server, with one thing decided differently. Both runs stand on "
    "one axis of steps, and below them is what differs."
)


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run a scenario: its name in links, its label, and what it sets."""

    name: str
    label: str
    settings: tuple[str, ...]
    recorded: str = ""
    """The shipped recording of figure-5 run in this way."""


WAYS = (
    Way("recompute", "Recompute", ("engine.method=recompute",), "figure-5"),
    Way("swap", "Swap", ("engine.method=swap",), "figure-4"),
    Way("auto", "Auto", ("engine.method=auto",)),
    Way("enough", "Enough memory", ("engine.num_blocks=auto",)),
)


def first_preemption(traces: Sequence[Trace]) -> int:
    """The step in which the first of the runs pauses somebody: there is something to see. Else 0."""
    steps = (e["step"] for trace in traces for e in trace.events if e["kind"] == "preempted")
    return min(steps, default=0)


class Compare(Page):
    """`pair` shows the two runs; `own` is a scenario of the visitor's, from the Lab or a link."""

    name, label = "compare", "Compare"

    def __init__(self, visit: Visit, moved: Callable[[], None]) -> None:
        super().__init__(visit, moved)
        self.silent = False
        self.own: Raw | None = None
        self.scenarios = menu([about(name)[0] for name in SCENARIOS], "Scenario")
        self.lab_button = button("Take the Lab's scenario")
        labels = [way.label for way in WAYS]
        self.sides = [pills(labels, "Left run", 0), pills(labels, "Right run", 1)]
        self.panel = LivePanel(visit, self, (self.scenarios, self.lab_button, *self.sides))
        self.pair: Pair | None = None
        self.result = ipywidgets.Box().add_class("kp-pair")
        self.widget = stack(
            ipywidgets.HTML(views.title(TITLE, LEAD)),
            stack(
                flow(self.scenarios, self.lab_button),
                flow(name_of("Left"), self.sides[0]).add_class("kp-side"),
                flow(name_of("Right"), self.sides[1]).add_class("kp-side"),
                self.panel.widget,
                self.card,
            ),
            self.result,
        ).add_class("kp-sections")
        self.look()
        self.scenarios.observe(self.scenario_chosen, "index")
        self.lab_button.on_click(self.lab_pressed)
        for side in self.sides:
            side.observe(self.way_chosen, "index")

    # The place

    @property
    def query(self) -> Query:
        left, right = self.ways
        found = {"left": left.name, "right": right.name}
        packed = pack(self.own) if self.own else ""
        return found | ({"s": packed} if packed else {"scenario": self.scenario_name})

    @property
    def on_show(self) -> tuple[str, str]:
        return (self.pair.model_id or "" if self.pair else ""), ""

    @property
    def scenario_name(self) -> str:
        return SCENARIOS[bounded(self.scenarios.index, SCENARIOS)]

    @property
    def ways(self) -> tuple[Way, Way]:
        left, right = (WAYS[bounded(side.index, WAYS)] for side in self.sides)
        return left, right

    def open(self, query: Query) -> None:
        self.panel.stop()
        self.own = unpack(query["s"]) if query.get("s") else None
        names = [way.name for way in WAYS]
        self.silent = True
        try:
            name = query.get("scenario", "")
            self.scenarios.index = SCENARIOS.index(name) if name in SCENARIOS else 0
            for side, key, default in zip(self.sides, ("left", "right"), (0, 1), strict=True):
                way = query.get(key, "")
                side.index = names.index(way) if way in names else default
        finally:
            self.silent = False
        self.look(query)

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
            raise BadInput("both sides are the same way to run it: choose another for one of them.")
        self.panel.run(scenarios, lambda traces: self.show(traces, ways, query))

    def scenario(self, way: Way) -> Scenario:
        """What runs on a side. A swap without any CPU pool gets one as large as the GPU's."""
        base = checked(self.own) if self.own else load_scenario(self.scenario_name)
        settings = list(way.settings)
        engine = base.document["engine"]
        if way.name in ("swap", "auto") and not engine["host_blocks"] and not base.sized_at_run:
            settings.append(f"engine.host_blocks={engine['num_blocks']}")
        return base.with_settings(settings)

    def show(
        self, traces: Sequence[Trace], ways: tuple[Way, Way], query: Query | None = None
    ) -> None:
        left, right = traces
        old = self.pair
        self.pair = Pair(
            left,
            right,
            title=f"{ways[0].label} and {ways[1].label.lower()}",
            names=(ways[0].label, ways[1].label),
        )
        self.pair.step = first_preemption(traces)
        step = (query or {}).get("step", "")
        if step.isascii() and step.isdigit() and len(step) < 10:
            self.pair.step = min(int(step), max(len(trace.steps) for trace in traces))
        self.result.children = (self.pair,)
        if old is not None:
            old.close()
        self.panel.rest(
            views.two_on_show([(way.label, made(t)) for way, t in zip(ways, traces, strict=True)])
        )
        self.moved()

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
    def lab_pressed(self, _: object) -> None:
        if self.visit.scenario is None:
            raise BadInput("open the Lab first: there is no scenario of yours yet.")
        self.own = self.visit.scenario
        self.look()
