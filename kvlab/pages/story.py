"""The Story page: five chapters, each a recorded run in the player that fills the window.

What a chapter asks and says stands in the player's guide. Below it: the same run made now, one thing
changed, charts and numbers. Nothing there tells what a reader has not come to: charts and tables are
in the page once the chapter's end was reached, and go no further than that end.
"""

from __future__ import annotations

from typing import Any

import ipywidgets

from kvlab.course import compare
from kvlab.course.chapters import CHAPTERS, METHODS, Chapter, outcome_of, own_method
from kvlab.course.reached import until
from kvlab.course.record import recorded
from kvlab.draw.chart import Chart
from kvlab.draw.controls import bounded, button, flow, name_of, pills, show_if, stack
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


class Story(Page):
    """The chapters. `shown` is the run on show; `changed` whether the chapter's change is in it."""

    name = "story"

    def __init__(self, visit: Visit, moved: Any) -> None:
        super().__init__(visit, moved)
        self.chapter = CHAPTERS[0]
        self.shown = record_of(self.chapter)
        self.changed = False
        self.answers: dict[str, list[dict[str, Any]]] = {}
        """By chapter: what was answered in the player."""
        self.reached: set[str] = set()
        """Chapters of which the end was reached."""
        self.silent = False
        self.build()
        self.open_chapter()

    # Building

    def build(self) -> None:
        """Every widget once; chapters change what is in them."""
        t = self.speech
        self.methods = pills([t(f"story.{name}") for name in METHODS], t("story.method"))
        self.run_button = button(t("story.run"), primary=True)
        self.change_button = button("")
        self.back_button = button(t("story.back"))
        self.player = Player(trace=self.shown, language=t.language, predict=True, hold=False)
        self.further, self.table, self.waits = (ipywidgets.HTML() for _ in range(3))
        self.memory, self.gaps = Chart(), Chart()
        self.measure_button = button(t("story.measure", times=compare.REPEATS))
        made = (self.methods, self.run_button, self.change_button, self.back_button)
        self.panel = LivePanel(self.visit, self, (*made, self.measure_button))
        self.charts = ipywidgets.Box().add_class("kp-charts")
        self.compared = stack(self.table, flow(self.measure_button))
        self.waits.value = views.note(t("story.charts_wait"))
        below = stack(
            ipywidgets.HTML(views.heading(t("story.below"))),
            flow(
                self.run_button,
                name_of(t("story.come_back")),
                self.methods,
                self.change_button,
                self.back_button,
            ),
            self.panel.widget,
            self.card,
            self.waits,
            self.charts,
            self.compared,
            self.further,
        )
        self.widget = stack(self.player, below.add_class("kp-below")).add_class("kp-story")
        self.methods.observe(self.method_chosen, "index")
        self.run_button.on_click(self.run_pressed)
        self.change_button.on_click(self.change_pressed)
        self.back_button.on_click(self.back_pressed)
        self.measure_button.on_click(self.measure_pressed)
        self.player.observe(self.answered, "answers")
        self.player.observe(self.cursor_moved, "cursor")
        self.player.on_msg(self.player_said)

    # The place

    @property
    def query(self) -> Query:
        found = {"chapter": str(self.chapter.number)}
        if not self.shown.document["recorded"]:
            found |= {"run": "now", "method": METHODS[bounded(self.methods.index, METHODS)]}
            found |= {"changed": "yes"} if self.changed else {}
        return found

    @property
    def on_show(self) -> tuple[str, str]:
        return self.player.model_id or "", self.chapter.scenario

    @property
    def kept(self) -> dict[str, Any]:
        """What the browser tab keeps of this page beside the player's answers."""
        return {"reached": sorted(self.reached)}

    def open(self, query: Query) -> None:
        self.panel.stop()
        self.chapter = self.chapter_in(query)
        self.open_chapter()
        cursor_in(query, self.player)
        if query.get("run") == "now":
            if query.get("method") in METHODS:
                self.choose(METHODS.index(query["method"]))
            self.run_live(query.get("changed") == "yes", query)
        self.tell_wrong()

    def chapter_in(self, query: Query) -> Chapter:
        """The chapter that an address names, by its number or its scenario; else the first."""
        numbers = [str(one.number) for one in CHAPTERS]
        if "chapter" in query:
            number = query["chapter"]
            if number in numbers:
                return CHAPTERS[numbers.index(number)]
            self.wrong.append(self.speech("page.no_chapter", name=number[:60], last=numbers[-1]))
            return CHAPTERS[0]
        names = [one.scenario for one in CHAPTERS]
        first = CHAPTERS[0].scenario
        return CHAPTERS[
            names.index(self.named(query, "scenario", names, "page.no_scenario", first))
        ]

    def turn(self, number: str) -> None:
        """To a chapter by its number. Raises BadInput for one that there is not."""
        found = [one for one in CHAPTERS if str(one.number) == number]
        if not found:
            raise BadInput(self.speech("page.no_chapter", name=number, last=CHAPTERS[-1].number))
        self.panel.stop()
        self.chapter = found[0]
        self.open_chapter()

    def remember(self, kept: dict[str, Any]) -> None:
        """Answers and ends of this tab; what is none of ours is passed over."""
        answers, reached = kept.get("answers"), kept.get("reached")
        for one in CHAPTERS:
            given = answers.get(one.scenario) if isinstance(answers, dict) else None
            if isinstance(given, list):
                self.answers[one.scenario] = given
            if isinstance(reached, list) and one.scenario in reached:
                self.reached.add(one.scenario)
        self.player.answers = self.answers.get(self.chapter.scenario, [])
        self.show_numbers()

    def choose(self, method: int) -> None:
        """Set the method without running it."""
        before, self.silent = self.silent, True
        try:
            self.methods.index = method
        finally:
            self.silent = before

    # Showing

    def open_chapter(self) -> None:
        """The chapter's texts and its recorded run."""
        one = self.chapter
        trace = record_of(one)
        self.choose(METHODS.index(own_method(one, trace)))
        self.change_button.description = self.speech(
            "story.try_it", change=one.text("change", self.speech)
        )
        self.further.value = views.further(one, self.speech)
        self.fail("")
        self.show(trace)

    def show(self, trace: Trace, note: str = "", changed: bool = False) -> None:
        """Put a run into the player, the charts and the words around them."""
        self.shown, self.changed = trace, changed
        self.moved()  # before the player changes: from now on its answers are this chapter's
        play(self.player, trace, self.chapter.text("title", self.speech))
        self.player.answers = self.answers.get(self.chapter.scenario, [])
        self.player.guide = self.guide(trace, note)
        self.panel.rest(views.status(trace, self.speech))
        show_if(self.back_button, not trace.document["recorded"])
        show_if(self.change_button, not changed)
        self.show_numbers()

    def guide(self, trace: Trace, note: str) -> dict[str, Any]:
        """The chapter's words for the player's guide."""
        one, t = self.chapter, self.speech
        found: dict[str, Any] = {
            "question": one.text("question", t),
            "watch": one.watch(t),
            "opens": views.opens(trace, self.player.start, t),
            "note": note,
            "why": one.text("why", t),
        }
        if one.number < len(CHAPTERS):
            after = CHAPTERS[one.number]
            found["next"] = t("story.next", number=after.number, name=after.text("short", t))
        return found

    def show_numbers(self) -> None:
        """Charts and numbers, as far as the chapter goes; only a note before its end was reached."""
        known = self.chapter.scenario in self.reached
        show_if(self.waits, not known)
        self.charts.children = (self.memory, self.gaps) if known else ()
        with_table = known and self.chapter.number in WITH_TABLE
        show_if(self.compared, with_table)
        show_if(self.further, known and bool(self.further.value))
        if not known:
            return
        seen = until(self.shown, self.player.stop or len(self.shown.events))
        memory_chart(seen, self.memory, self.speech)
        gaps_chart(seen, self.gaps, self.speech)
        if with_table and not self.table.value:
            self.tabulate(compare.compare(recorded("figure-5"), recorded("figure-4")))

    # What widgets call

    @guarded
    def cursor_moved(self, change: dict[str, Any]) -> None:
        ended = change["new"] >= (self.player.stop or len(self.shown.events))
        if ended and self.chapter.scenario not in self.reached:
            self.reached.add(self.chapter.scenario)
            self.show_numbers()
            self.moved()

    @guarded
    def answered(self, change: dict[str, Any]) -> None:
        self.answers[self.chapter.scenario] = change["new"]

    @guarded
    def player_said(self, _: object, content: object, buffers: object) -> None:
        pressed = isinstance(content, dict) and content.get("type") == "next"
        if pressed and self.chapter.number < len(CHAPTERS):
            self.turn(str(self.chapter.number + 1))

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
        self.moved(new=True)

    @guarded
    def measure_pressed(self, _: object) -> None:
        """Both methods, repeated, into the table."""
        scenarios = compare.repeated("figure-5")
        self.panel.run(scenarios, lambda traces: self.tabulate(compare.of_repeats(traces)))

    # Running

    def run_live(self, changed: bool = False, query: Query | None = None) -> None:
        """Run the chapter with the chosen method. With `changed` its one change is made, and what
        came of it is said from two runs of that method: this one and one without the change."""
        chapter, t = self.chapter, self.speech
        method = METHODS[bounded(self.methods.index, METHODS)]
        scenarios = [load_scenario(chapter.scenario, chapter.settings_for(method, changed))]
        before = self.shown
        if changed and (self.changed or own_method(chapter, before) != method):
            scenarios.insert(0, load_scenario(chapter.scenario, chapter.settings_for(method)))

        def show(traces: list[Trace]) -> None:
            if self.chapter is not chapter:
                return
            note = ""
            if changed:
                then = traces[0] if len(traces) > 1 else before
                what = t("live.changed", what=chapter.text("change", t))
                came = outcome_of(chapter.change, then, traces[-1], t)
                note = f"{what}. {chapter.text('look', t)} {came}"
            self.show(traces[-1], note, changed)
            cursor_in(query or {}, self.player)
            self.moved(new=True)

        self.panel.run(scenarios, show)

    def tabulate(self, table: compare.MethodsTable) -> None:
        self.table.value = table.table(self.speech).as_html()


def record_of(chapter: Chapter) -> Trace:
    """A chapter's recorded run; where the file is missing, one that is made now."""
    try:
        return recorded(chapter.scenario)
    except BadInput:
        return run_lesson(chapter.scenario).trace
