"""The page: five chapters, a player, charts and a table, over recorded traces and live runs.

A chapter shows its recorded trace at once; torch is imported when a person asks for a run. Runs go
on in a thread, one at a time, and the page says which kind of run is on show. What a widget sends
is looked up in our own lists, so that no message can name anything else.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import ipywidgets

from kvlab.app import views
from kvlab.app.guard import guarded
from kvlab.errors import BadInput
from kvlab.lessons import compare, cost
from kvlab.lessons.chapters import CHAPTERS, METHODS, Chapter, own_method
from kvlab.lessons.ranges import lesson_range
from kvlab.lessons.record import recorded
from kvlab.lessons.runs import load_for, run_lesson
from kvlab.scenario import load_scenario
from kvlab.trace.document import Trace
from kvlab.widgets.chart import Chart, cost_chart, gaps_chart, memory_chart
from kvlab.widgets.player import Player

if TYPE_CHECKING:
    from kvlab.models.loading import LoadedModel

WITH_TABLE = (3, 4, 5)
WITH_COST = (4,)


def dashboard() -> ipywidgets.Widget:
    """The page as a widget. It never raises: what cannot be shown becomes a card."""
    try:
        return Dashboard().page
    except BadInput as error:
        return ipywidgets.HTML(f"<style>{style()}</style>{views.card(str(error))}")


def style() -> str:
    return files("kvlab.app").joinpath("page.css").read_text(encoding="utf-8")


class Dashboard:
    """The widgets and what is on show. All methods that a widget calls are guarded."""

    def __init__(self) -> None:
        self.chapter = CHAPTERS[0]
        self.trace = self.record_of(self.chapter)
        self.shown = (self.trace, "")
        self.model: LoadedModel | None = None
        self.busy = threading.Lock()
        self.silent = False
        self.build()
        self.open_chapter()

    # Building

    def build(self) -> None:
        """Every widget once; chapters change what is in them."""
        names = [f"{one.number} {one.short}" for one in CHAPTERS]
        self.chapters = pills(names, "Chapter", index=0)
        self.opening = ipywidgets.HTML()
        self.question = ipywidgets.HTML()
        self.options = pills([], "Your prediction")
        self.verdict = ipywidgets.HTML()
        self.methods = pills([name.capitalize() for name in METHODS], "Method")
        self.run_button = button("Run it now", primary=True)
        self.change_button = button("")
        self.back_button = button("Back to the recorded run")
        self.status = ipywidgets.HTML()
        self.card = ipywidgets.HTML()
        start, stop = lesson_range(self.trace)
        self.player = Player(trace=self.trace.document, start=start, stop=stop)
        self.why = ipywidgets.HTML()
        self.memory, self.gaps, self.cost = Chart(), Chart(), Chart()
        self.machines = pills(list(cost.MACHINES), "Hardware", index=0)
        self.models = pills(list(cost.MODELS), "Model", index=0)
        self.table = ipywidgets.HTML()
        self.measure_button = button(f"Run both {compare.REPEATS} times")
        controls = flow(
            name_of("Paused requests come back by"),
            self.methods,
            self.run_button,
            self.change_button,
            self.back_button,
        )
        self.compared = stack(self.table, flow(self.measure_button))
        self.costs = stack(
            flow(name_of("Other hardware, on paper"), self.machines),
            flow(name_of("Model"), self.models),
            self.cost,
        )
        charts = ipywidgets.Box([self.memory, self.gaps]).add_class("kp-charts")
        self.page = stack(
            ipywidgets.HTML(f"<style>{style()}</style>{views.TITLE}"),
            self.chapters,
            self.opening,
            stack(self.question, self.options, self.verdict),
            stack(controls, self.status, self.card),
            self.player,
            self.why,
            charts,
            self.compared,
            self.costs,
        ).add_class("kvlab-page")
        self.chapters.observe(self.chapter_chosen, "index")
        self.options.observe(self.option_chosen, "index")
        self.methods.observe(self.method_chosen, "index")
        self.machines.observe(self.machine_chosen, "index")
        self.models.observe(self.machine_chosen, "index")
        self.run_button.on_click(self.run_pressed)
        self.change_button.on_click(self.change_pressed)
        self.back_button.on_click(self.back_pressed)
        self.measure_button.on_click(self.measure_pressed)

    # Showing

    def open_chapter(self) -> None:
        """The chapter's texts and its recorded run."""
        one = self.chapter
        self.trace = self.record_of(one)
        self.silent = True
        try:
            self.methods.index = METHODS.index(own_method(one, self.trace))
        finally:
            self.silent = False
        self.opening.value = views.opening(one)
        self.why.value = views.why(one)
        self.change_button.description = f"Try: {one.change.label}"
        show_if(self.compared, one.number in WITH_TABLE)
        show_if(self.costs, one.number in WITH_COST)
        if one.number in WITH_TABLE and not self.table.value:
            pair = (recorded("figure-5"), recorded("figure-4"))
            self.table.value = compare.compare(*pair).as_html()
        if one.number in WITH_COST and not self.cost.light:
            cost_chart(next(iter(cost.MACHINES)), self.cost)
        self.fail("")
        self.show(self.trace)

    def show(self, trace: Trace, changed: str = "") -> None:
        """Put a run into the player and the charts."""
        start, stop = lesson_range(trace)
        with self.player.hold_sync():
            self.player.trace = trace.document
            self.player.stop = None
            self.player.start = start
            self.player.stop = stop
            self.player.cursor = start
            self.player.title = f"Figure {self.chapter.number} · {self.chapter.title}"
        memory_chart(trace, self.memory)
        gaps_chart(trace, self.gaps)
        self.shown = (trace, changed)
        self.ask()
        self.status.value = views.status(trace, changed)
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
            self.asked = self.record_of(self.chapter)
            self.choices = prediction.options(self.asked)
            text = f"In the recorded run: {prediction.ask(self.asked)}"
        self.silent = True
        try:
            self.options.options = [str(choice) for choice in self.choices]
            self.options.index = None
        finally:
            self.silent = False
        self.question.value = views.question(text)
        self.verdict.value = ""

    def fail(self, message: str) -> None:
        """Show a card; take it away with an empty message."""
        self.card.value = views.card(message)

    def record_of(self, chapter: Chapter) -> Trace:
        """A chapter's recorded run; where the file is missing, one that is made now."""
        try:
            return recorded(chapter.scenario)
        except BadInput:
            return run_lesson(chapter.scenario).trace

    # What widgets call

    @guarded
    def chapter_chosen(self, change: dict[str, Any]) -> None:
        self.chapter = CHAPTERS[bounded(change["new"], CHAPTERS)]
        self.open_chapter()

    @guarded
    def option_chosen(self, change: dict[str, Any]) -> None:
        if self.silent or change["new"] is None:
            return
        chosen = self.choices[bounded(change["new"], self.choices)]
        asked, prediction = self.asked, self.chapter.prediction
        self.verdict.value = views.verdict(chosen, prediction.answer(asked), prediction.look(asked))

    @guarded
    def method_chosen(self, change: dict[str, Any]) -> None:
        if not self.silent and change["new"] is not None:
            self.run_live()

    @guarded
    def machine_chosen(self, _: object) -> None:
        machines, models = list(cost.MACHINES), list(cost.MODELS)
        machine = machines[bounded(self.machines.index, machines)]
        cost_chart(machine, self.cost, models[bounded(self.models.index, models)])

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
        self.in_background("loading the model", self.measure)

    # Running

    def run_live(self, changed: bool = False) -> None:
        """Run the chapter with the chosen method, and with its one change when asked for."""
        chapter = self.chapter
        method = METHODS[bounded(self.methods.index, METHODS)]
        settings = chapter.settings_for(method, changed)
        note = f"{chapter.change.label}. {chapter.change.watch}" if changed else ""
        self.in_background("loading the model", lambda: self.work(chapter, settings, note))

    def in_background(self, first: str, work: Callable[[], None]) -> None:
        """Do it in a thread. One thing at a time: while something runs, a press is not heard."""
        if not self.busy.acquire(blocking=False):
            return
        self.enable(False)
        self.fail("")
        self.status.value = views.busy(first)
        # The messages of the thread belong to the page that asked.
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self.finish, work), daemon=True).start()

    def finish(self, work: Callable[[], None]) -> None:
        """Runs in the thread: whatever happens, the page can be used again."""
        try:
            self.attempt(work)
        finally:
            self.status.value = views.status(*self.shown)
            self.enable(True)
            self.busy.release()

    @guarded
    def attempt(self, work: Callable[[], None]) -> None:
        work()

    def work(self, chapter: Chapter, settings: Sequence[str], note: str) -> None:
        """One run of a chapter, shown unless the reader has gone on to another one."""
        self.load(chapter.scenario)
        run = run_lesson(
            chapter.scenario,
            settings,
            self.model,
            lambda report: self.say(f"step {report.step}"),
        )
        if self.chapter is chapter:
            self.show(run.trace, note)

    def measure(self) -> None:
        """Both methods, repeated, into the table."""
        self.load("figure-5")
        table = compare.repeat(
            model=self.model, on_run=lambda done, of: self.say(f"run {done} of {of}")
        )
        self.table.value = table.as_html()

    def load(self, name: str) -> None:
        """Import torch and load the model, the first time."""
        if self.model is None:
            self.model = load_for(load_scenario(name))

    def say(self, text: str) -> None:
        self.status.value = views.busy(text)

    def enable(self, yes: bool) -> None:
        """Let the controls be used, or not."""
        for control in (
            self.chapters,
            self.methods,
            self.run_button,
            self.change_button,
            self.back_button,
            self.measure_button,
        ):
            control.disabled = not yes


def bounded(index: object, items: Sequence[object]) -> int:
    """A place in a list of ours. Raises BadInput for anything else."""
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(items):
        raise BadInput(f"there is no choice number {str(index)[:20]}.")
    return index


def pills(labels: Sequence[str], name: str, index: int | None = None) -> ipywidgets.RadioButtons:
    """Radio buttons that the style sheet draws in a row."""
    return ipywidgets.RadioButtons(
        options=list(labels), index=index, tooltip=name, layout={"width": "auto"}
    )


def button(label: str, primary: bool = False) -> ipywidgets.Button:
    return ipywidgets.Button(description=label, button_style="primary" if primary else "")


def name_of(text: str) -> ipywidgets.HTML:
    """A label beside a control."""
    return ipywidgets.HTML(f'<span class="kp-name-of">{escape(text)}</span>')


def stack(*children: ipywidgets.Widget) -> ipywidgets.Box:
    """One below the other."""
    return ipywidgets.VBox(list(children)).add_class("kp-stack")


def flow(*children: ipywidgets.Widget) -> ipywidgets.Box:
    """Side by side, as many as fit."""
    return ipywidgets.Box(list(children)).add_class("kp-bar-of-controls")


def show_if(widget: ipywidgets.DOMWidget, yes: bool) -> None:
    widget.layout.display = None if yes else "none"
