"""The Lab page: any scenario of a bounded size, from a form, a preset, a file or a link."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ipywidgets

from kvlab.course.record import recorded
from kvlab.draw.chart import Chart
from kvlab.draw.controls import stack
from kvlab.draw.gaps_chart import gaps_chart
from kvlab.draw.guard import guarded
from kvlab.draw.memory_chart import memory_chart
from kvlab.draw.player import Player
from kvlab.draw.what_if import WhatIf
from kvlab.pages import views
from kvlab.pages.lab_scenarios import (
    PRESETS,
    Raw,
    checked,
    faults,
    is_trace,
    pack,
    read_scenario,
    read_trace,
    spec,
    unpack,
)
from kvlab.pages.page import Page, cursor_in, play
from kvlab.pages.place import Query
from kvlab.pages.scenario_form import ScenarioForm
from kvlab.pages.visit import LivePanel, Visit
from kvlab.runs.scenario import load_scenario
from kvlab.trace.document import Trace

if TYPE_CHECKING:
    from kvlab.models.loading import LoadedModel

FIRST = "victims"


class Lab(Page):
    """`raw` is the scenario in the form, `preset` the shipped one that it is (or empty), `shown` the
    run in the player."""

    name = "lab"

    def __init__(self, visit: Visit, moved: Any) -> None:
        super().__init__(visit, moved)
        self.form = ScenarioForm(
            spec(self.speech),
            speech=self.speech,
            on_edit=self.edited,
            on_run=self.run_pressed,
            on_preset=self.preset_chosen,
            on_file=self.file_opened,
            want=self.file_wanted,
            fail=self.fail,
        )
        self.note = ipywidgets.HTML()
        self.memory, self.gaps = Chart(), Chart()
        self.raw: Raw = {}
        self.shown = recorded(FIRST)
        self.player = Player(trace=self.shown, language=self.speech.language)
        self.what_if = WhatIf(
            self.shown, player=self.player, load=self.load, language=self.speech.language
        )
        self.panel = LivePanel(visit, self, (self.form,))
        self.status = ipywidgets.HTML()
        below = stack(
            self.what_if,
            ipywidgets.Box([self.memory, self.gaps]).add_class("kp-charts"),
            self.status,
        )
        self.widget = stack(
            self.form,
            self.card,
            self.panel.widget,
            self.note,
            self.player,
            below.add_class("kp-below"),
        ).add_class("kp-lab")
        self.take_preset(FIRST)

    # The place

    @property
    def query(self) -> Query:
        found: Query = {"page": self.name}
        if self.preset:
            found["scenario"] = self.preset
        else:
            packed = pack(self.raw)
            found |= {"s": packed} if packed else {}
        if self.ran == self.raw:
            found["run"] = "now"
        return found

    @property
    def on_show(self) -> tuple[str, str]:
        return self.player.model_id or "", ""

    def open(self, query: Query) -> None:
        self.panel.stop()
        packed = query.get("s")
        if packed:
            self.take(unpack(packed, self.speech))
        else:
            self.take_preset(self.named(query, "scenario", PRESETS, "page.no_scenario", FIRST))
        cursor_in(query, self.player)
        if query.get("run") == "now":
            self.run_live(self.raw, query)
        self.tell_wrong()

    # Showing

    def take(self, raw: Raw, preset: str = "") -> None:
        """Put a scenario into the form."""
        self.raw, self.preset, self.source = raw, preset, raw
        self.ran: Raw | None = None
        self.form.put(raw, preset)
        self.form.faults = {}
        self.fail("")
        self.tell()

    def take_preset(self, name: str) -> None:
        """A shipped scenario, with its recorded run at once."""
        self.take(load_scenario(name).raw, name)
        self.show(recorded(name))

    def show(self, trace: Trace, status: str = "") -> None:
        self.shown = self.visit.trace = trace
        self.what_if.model = None  # another run may be of another model
        play(self.player, trace, whole=True)
        memory_chart(trace, self.memory, self.speech)
        gaps_chart(trace, self.gaps, self.speech)
        self.status.value = status or views.status(trace, self.speech)
        self.tell()

    def tell(self) -> None:
        """Whether the picture is of what the form says, and whether a link can hold it."""
        self.visit.scenario = self.raw
        parts = []
        if not self.preset and self.ran != self.raw:
            parts.append(self.speech("lab.other"))
        if not self.preset and not pack(self.raw):
            parts.append(self.speech("lab.too_long"))
        if not self.preset and self.raw.get("actions"):
            parts.append(self.speech("lab.has_actions", actions=len(self.raw["actions"])))
        self.note.value = "".join(map(views.note, parts))
        self.moved()

    def load(self) -> LoadedModel | None:
        """The model of the run in the player, for a fork of it. Raises BadInput."""
        return self.visit.load(checked(self.shown.document["scenario"], self.speech))

    # What the form calls

    @guarded
    def edited(self, raw: Raw) -> None:
        """The person typed. It is judged when it is run; the link follows at once."""
        self.raw = self.own(raw)
        if raw != self.source:
            self.preset = ""
        self.tell()

    @guarded
    def run_pressed(self, raw: Raw) -> None:
        self.edited(raw)
        self.run_live(self.raw)

    @guarded
    def preset_chosen(self, name: str) -> None:
        self.panel.stop()
        self.take_preset(name if name in PRESETS else FIRST)

    @guarded
    def file_opened(self, name: str, text: str) -> None:
        self.panel.stop()
        if is_trace(text):
            trace = read_trace(name, text)
            self.take(trace.document["scenario"])
            self.ran = self.raw
            self.show(trace, views.opened(name, trace, self.speech))
        else:
            self.take(read_scenario(name, text, self.speech))
            self.run_live(self.raw)

    def file_wanted(self, what: str) -> tuple[str, str]:
        """(name, text) of a file to save."""
        if what == "trace":
            document = self.shown.document | {"recorded": True}
            return f"{self.shown.name}-trace.json", json.dumps(document, ensure_ascii=False)
        return f"{self.raw.get('name', 'scenario')}.json", json.dumps(self.raw, indent=2)

    # Running

    def own(self, raw: Raw) -> Raw:
        """What was changed is no longer what its name and its lesson say."""
        if raw == self.source:
            return raw
        kept = {key: value for key, value in raw.items() if key != "lesson"}
        return kept | ({"name": "mine", "title": ""} if raw.get("name") in PRESETS else {})

    def run_live(self, raw: Raw, query: Query | None = None) -> None:
        """Check, run, show. What is wrong in the form is said there. Raises BadInput for what else
        cannot be run here."""
        self.form.faults = faults(raw, self.speech)
        if self.form.faults:
            self.fail(" ".join(self.form.faults.values()))
            return
        scenario = checked(raw, self.speech)

        def show(traces: list[Trace]) -> None:
            self.ran = raw
            self.show(traces[0])
            cursor_in(query or {}, self.player)
            self.moved(new=True)

        self.panel.run([scenario], show)
