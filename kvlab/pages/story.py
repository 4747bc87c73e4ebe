"""The Story page: five chapters with a question each, over recorded runs and live ones.

A chapter shows its recorded run at once; torch is imported when a person asks for a run. With
*Predict first* on, what would give the answer away is covered until a prediction is made or waved off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets

from kvlab.course import compare
from kvlab.course.chapters import CHAPTERS, METHODS, Chapter, own_method
from kvlab.course.record import recorded
from kvlab.draw.chart import Chart
from kvlab.draw.controls import (
    bounded,
    button,
    columns,
    flow,
    name_of,
    pills,
    show_if,
    stack,
    switch,
)
from kvlab.draw.gaps_chart import gaps_chart
from kvlab.draw.guard import guarded
from kvlab.draw.memory_chart import memory_chart
from kvlab.draw.player import Player
from kvlab.errors import BadInput
from kvlab.pages import views
from kvlab.pages.page import Page, cursor_in, play
from kvlab.pages.place import Query
from kvlab.pages.visit import LivePanel, Visit
from kvlab.runs.run import run_lesson
from kvlab.runs.scenario import load_scenario
from kvlab.trace.document import Trace

WITH_TABLE = (3, 4, 5)
TITLE = "When the KV cache runs out"
LEAD = (
    "A small server with a real language model has two requests and too few blocks. Step through "
    "what it does, in five chapters: press the large arrow under the picture, or use the arrow keys."
)


class Story(Page):
    """The chapters. `shown` is the run on show and what was changed in it."""

    name, label = "story", "Story"

    def __init__(self, visit: Visit, moved: Callable[[], None]) -> None:
        super().__init__(visit, moved)
        self.chapter = CHAPTERS[0]
        self.trace = record_of(self.chapter)
        self.shown = (self.trace, "")
        self.changed = False
        self.said: dict[str, int | None] = {}
        """By chapter: what was predicted of the recorded run; None: waved off."""
        self.answers: dict[str, list[dict[str, Any]]] = {}
        """By chapter: what was answered inside of the player."""
        self.revealed = False
        self.silent = False
        self.build()
        self.open_chapter()

    # Building

    def build(self) -> None:
        """Every widget once; chapters change what is in them."""
        names = [f"{one.number} {one.short}" for one in CHAPTERS]
        self.chapters = pills(names, "Chapter", index=0)
        self.predict = switch("Predict first", True)
        self.opening, self.opens = ipywidgets.HTML(), ipywidgets.HTML()
        self.question, self.verdict = ipywidgets.HTML(), ipywidgets.HTML()
        self.options = pills([], "Your prediction")
        self.skip_button = button("Show me without predicting")
        self.methods = pills([name.capitalize() for name in METHODS], "Method")
        self.run_button = button("Run it now", primary=True)
        self.change_button = button("")
        self.back_button = button("Back to the recorded run")
        self.player = Player(trace=self.trace.document)
        self.why, self.table = ipywidgets.HTML(), ipywidgets.HTML()
        self.memory, self.gaps = Chart(), Chart()
        self.measure_button = button(f"Run both {compare.REPEATS} times")
        self.panel = LivePanel(
            self.visit,
            self,
            (
                self.chapters,
                self.methods,
                self.run_button,
                self.change_button,
                self.back_button,
                self.measure_button,
            ),
        )
        self.compared = stack(self.table, flow(self.measure_button))
        self.cover = stack(ipywidgets.HTML(views.COVERED), flow(self.skip_button))
        self.answer = stack(
            self.why,
            ipywidgets.Box([self.memory, self.gaps]).add_class("kp-charts"),
            self.compared,
        ).add_class("kp-sections")
        asked = stack(self.question, self.options, self.verdict, self.cover).add_class("kp-ask")
        self.widget = stack(
            ipywidgets.HTML(views.title(TITLE, LEAD)),
            flow(self.chapters, self.predict).add_class("kp-spread"),
            columns(stack(self.opening), asked),
            stack(
                self.opens,
                self.player,
                flow(
                    name_of("Paused requests come back by"),
                    self.methods,
                    self.run_button,
                    self.change_button,
                    self.back_button,
                ),
                self.panel.widget,
                self.card,
            ),
            self.answer,
        ).add_class("kp-sections")
        self.chapters.observe(self.chapter_chosen, "index")
        self.predict.observe(self.predict_switched, "value")
        self.options.observe(self.option_chosen, "index")
        self.methods.observe(self.method_chosen, "index")
        self.player.observe(self.answered, "answers")
        self.skip_button.on_click(self.skip_pressed)
        self.run_button.on_click(self.run_pressed)
        self.change_button.on_click(self.change_pressed)
        self.back_button.on_click(self.back_pressed)
        self.measure_button.on_click(self.measure_pressed)

    # The place

    @property
    def query(self) -> Query:
        found = {"scenario": self.chapter.scenario}
        if not self.predict.value:
            found["predict"] = "off"
        if not self.shown[0].document["recorded"]:
            found |= {"run": "now", "method": METHODS[self.methods.index]}
            if self.changed:
                found["changed"] = "yes"
        return found

    @property
    def on_show(self) -> tuple[str, str]:
        return self.player.model_id or "", self.chapter.scenario

    def open(self, query: Query) -> None:
        self.panel.stop()
        named = [one for one in CHAPTERS if one.scenario == query.get("scenario")]
        self.chapter = (named or CHAPTERS)[0]
        self.quietly(self.predict, value=query.get("predict") != "off")
        self.quietly(self.chapters, index=CHAPTERS.index(self.chapter))
        self.open_chapter()
        cursor_in(query, self.player)
        if query.get("run") == "now":
            if query.get("method") in METHODS:
                self.quietly(self.methods, index=METHODS.index(query["method"]))
            self.run_live(query.get("changed") == "yes", query)

    def remember(self, kept: dict[str, Any]) -> None:
        """Predictions and answers of this tab; what is no answer of ours is passed over."""
        said, answers = kept.get("said"), kept.get("answers")
        for one in CHAPTERS:
            choice = said.get(one.scenario) if isinstance(said, dict) else None
            if type(choice) is int and choice in one.prediction.options(record_of(one)):
                self.said[one.scenario] = choice
            given = answers.get(one.scenario) if isinstance(answers, dict) else None
            if isinstance(given, list):
                self.answers[one.scenario] = given
        self.player.answers = self.answers.get(self.chapter.scenario, [])
        self.ask()

    def quietly(self, widget: Any, **values: Any) -> None:
        """Set what a person sets otherwise, without taking it for theirs."""
        before, self.silent = self.silent, True
        try:
            for name, value in values.items():
                setattr(widget, name, value)
        finally:
            self.silent = before

    # Showing

    def open_chapter(self) -> None:
        """The chapter's texts and its recorded run."""
        one = self.chapter
        self.trace = record_of(one)
        self.quietly(self.methods, index=METHODS.index(own_method(one, self.trace)))
        self.opening.value = views.opening(one)
        self.why.value = views.why(one)
        self.change_button.description = f"Try: {one.change.label}"
        show_if(self.compared, one.number in WITH_TABLE)
        if one.number in WITH_TABLE and not self.table.value:
            pair = (recorded("figure-5"), recorded("figure-4"))
            self.table.value = compare.compare(*pair).as_html()
        self.fail("")
        self.changed = self.revealed = False
        self.show(self.trace)

    def show(self, trace: Trace, changed: str = "") -> None:
        """Put a run into the player and the charts."""
        self.shown = (trace, changed)
        self.moved()  # before the player changes: from now on its answers are this chapter's
        play(self.player, trace, f"Figure {self.chapter.number} · {self.chapter.title}")
        self.player.answers = self.answers.get(self.chapter.scenario, [])
        self.opens.value = views.opens(trace, self.player.start)
        memory_chart(trace, self.memory)
        gaps_chart(trace, self.gaps)
        self.ask()
        self.panel.rest(views.status(trace, changed))
        show_if(self.back_button, not trace.document["recorded"])

    def ask(self) -> None:
        """The chapter's question about the run on show; a changed run in which it has no sense is
        passed over for the chapter's own."""
        prediction = self.chapter.prediction
        self.asked = self.shown[0]
        try:
            self.choices = prediction.options(self.asked)
            text = prediction.ask(self.asked)
            prediction.answer(self.asked), prediction.look(self.asked)
        except (BadInput, LookupError, StopIteration, ValueError):
            self.asked = record_of(self.chapter)
            self.choices = prediction.options(self.asked)
            text = f"In the recorded run: {prediction.ask(self.asked)}"
        self.quietly(self.options, options=[str(choice) for choice in self.choices])
        self.quietly(self.options, index=None)
        self.question.value = views.question(text)
        self.verdict.value = ""
        said = self.said.get(self.chapter.scenario)
        if self.shown[0].document["recorded"] and said in self.choices:
            self.quietly(self.options, index=self.choices.index(said))
            self.judge(said)
        self.uncover()

    def judge(self, chosen: int) -> None:
        """What the run says to a prediction."""
        prediction = self.chapter.prediction
        right, look = prediction.answer(self.asked), prediction.look(self.asked)
        self.verdict.value = views.verdict(chosen, right, look)

    def uncover(self) -> None:
        """Cover what answers the question, or show it."""
        covered = self.predict.value and not self.revealed
        covered = covered and self.said.get(self.chapter.scenario, "") == ""
        self.player.covered = covered
        show_if(self.cover, covered)
        show_if(self.answer, not covered)

    # What widgets call

    @guarded
    def chapter_chosen(self, change: dict[str, Any]) -> None:
        if not self.silent:
            self.chapter = CHAPTERS[bounded(change["new"], CHAPTERS)]
            self.open_chapter()

    @guarded
    def predict_switched(self, change: dict[str, Any]) -> None:
        if not self.silent:
            self.uncover()
            self.moved()

    @guarded
    def option_chosen(self, change: dict[str, Any]) -> None:
        if self.silent or change["new"] is None:
            return
        chosen = self.choices[bounded(change["new"], self.choices)]
        if self.asked.document["recorded"]:
            self.said[self.chapter.scenario] = chosen
        self.revealed = True
        self.judge(chosen)
        self.uncover()
        self.moved()

    @guarded
    def skip_pressed(self, _: object) -> None:
        self.revealed = True
        self.uncover()

    @guarded
    def answered(self, change: dict[str, Any]) -> None:
        self.answers[self.chapter.scenario] = change["new"]

    @guarded
    def method_chosen(self, change: dict[str, Any]) -> None:
        if not self.silent and change["new"] is not None:
            self.run_live()

    @guarded
    def run_pressed(self, _: object) -> None:
        self.run_live()

    @guarded
    def change_pressed(self, _: object) -> None:
        self.run_live(changed=True)

    @guarded
    def back_pressed(self, _: object) -> None:
        self.open_chapter()

    @guarded
    def measure_pressed(self, _: object) -> None:
        """Both methods, repeated, into the table."""
        scenarios = compare.repeated("figure-5")
        self.panel.run(scenarios, lambda traces: self.tabulate(compare.of_repeats(traces)))

    # Running

    def run_live(self, changed: bool = False, query: Query | None = None) -> None:
        """Run the chapter with the chosen method, and with its one change when asked for."""
        chapter = self.chapter
        method = METHODS[bounded(self.methods.index, METHODS)]
        settings = chapter.settings_for(method, changed)
        change, before = chapter.change, self.trace

        def show(traces: list[Trace]) -> None:
            if self.chapter is chapter:
                self.changed = changed
                told = change.told(before, traces[0]) if changed else ""
                note = f"{change.label}. {change.watch} {told}" if changed else ""
                self.show(traces[0], note)
                cursor_in(query or {}, self.player)

        self.panel.run([load_scenario(chapter.scenario, settings)], show)

    def tabulate(self, table: compare.MethodsTable) -> None:
        self.table.value = table.as_html()


def record_of(chapter: Chapter) -> Trace:
    """A chapter's recorded run; where the file is missing, one that is made now."""
    try:
        return recorded(chapter.scenario)
    except BadInput:
        return run_lesson(chapter.scenario).trace
