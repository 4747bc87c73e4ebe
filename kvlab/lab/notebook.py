"""What the notebooks call: run a figure, predict, look, compare, check.

story = run("figure-5")            one real run, recorded
player(story)                      the picture, opened on the figure's part of the run
guess = predict("figure-5")        a question to answer before looking
guess.compare(story)               what the run says to it
check(story, "steps of waiting", 4)
all_well()                         one look at all parts before the course begins
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import ipywidgets
import traitlets

from kvlab.course import checks, compare
from kvlab.course.chapters import Chapter, chapter
from kvlab.course.cost import LLAMA, MACHINES, MODELS, Machine, own_machine, symbols
from kvlab.course.crossover import Crossovers
from kvlab.course.question import in_words
from kvlab.course.record import recorded
from kvlab.draw.chart import Chart
from kvlab.draw.cost_chart import cost_chart_of
from kvlab.draw.gaps_chart import gaps_chart
from kvlab.draw.memory_chart import memory_chart
from kvlab.draw.notebook_still import REPLACERS, Bundle, Kept, with_still
from kvlab.draw.player import Player
from kvlab.draw.race import Race
from kvlab.draw.what_if import WhatIf
from kvlab.draw.work_chart import work_chart
from kvlab.errors import BadInput
from kvlab.lab import own, ready
from kvlab.lab.front import LabRun
from kvlab.runs.run import Run, run_lesson
from kvlab.trace.document import Trace
from kvlab.trace.ranges import lesson_range
from kvlab.trace.speech import ENGLISH, Speech
from kvlab.trace.table import Table

__all__ = ["Guess", "all_well", "check", "costs", "crossovers", "delays", "figure", "fits"]
__all__ += [
    "largest_difference",
    "letters",
    "memory",
    "methods",
    "model_or_story",
    "on_this_machine",
    "own_machine",
    "player",
]
__all__ += ["predict", "race", "run", "try_run", "what_if", "work"]

if TYPE_CHECKING:
    from kvlab.course.measured import Timings

T = TypeVar("T")

PARAGRAPH = "margin:0;max-width:75ch;line-height:1.5"


def all_well() -> Table:
    """Whether everything that the course needs works here, one sentence a part."""
    return ready.all_well()


def run(name: str | Path, *settings: str) -> LabRun:
    """Run a scenario, by name or from a file, with `PATH=VALUE` settings. Raises BadInput for what
    cannot run."""
    return LabRun.of(run_lesson(str(name), own.texts(settings)))


def try_run(name: str | Path, *settings: str) -> checks.Verdict:
    """The same where it may fail: one sentence about how it went."""
    return own.attempt(str(name), settings)


def largest_difference(made: Run | Trace) -> float | None:
    """Of a number of K or V that was computed again to what it was before; None where none was."""
    looked = (one.get("max_diff", {}) for one in trace_of(made).document["measurements"])
    return max((value for found in looked for value in found.values()), default=None)


def player(made: Run | Trace) -> Player:
    """The player on a run, opened on its figure's part."""
    trace = trace_of(made)
    start, stop = lesson_range(trace)
    return LessonPlayer(trace=trace, start=start, stop=stop, title=title_of(trace))


def figure(name: str, *settings: str) -> Player:
    """Run a scenario now and show it."""
    return player(run(name, *settings))


def memory(made: Run | Trace) -> Chart:
    """KV per request and free blocks over the steps."""
    return memory_chart(trace_of(made))


def work(runs: Mapping[str, Run | Trace]) -> Chart:
    """What some runs spent, by the names that they are given: computed once, again, found again."""
    if not isinstance(runs, Mapping) or not runs:
        raise BadInput('this takes runs by name, as in work({"newest": one, "oldest": other}).')
    return work_chart({str(name): trace_of(made) for name, made in runs.items()})


def race(
    one: str | Run | Trace = "figure-5",
    other: Run | Trace | None = None,
    names: tuple[str, str] | None = None,
) -> Race:
    """Two runs playing side by side: of a scenario by recompute and by swap, run now, or two given."""
    if isinstance(one, str):
        return Race(*compare.both_ways(one), names=names)
    if other is None:
        raise BadInput("a race takes two runs, or the name of a scenario.")
    return Race(trace_of(one), trace_of(other), names=names)


def delays(made: Run | Trace) -> Chart:
    """The gaps between outputs: waiting, recovery, decoding."""
    return gaps_chart(trace_of(made))


def costs(machine: str | Machine, model: str = LLAMA.name) -> Chart:
    """The modelled crossover of the two methods on other hardware."""
    return cost_chart_of(machine_of(machine), one_of(MODELS, "model", model))


def letters(machine: str | Machine, model: str = LLAMA.name) -> Table:
    """Every letter of the cost formulas: what it means, what it is here, where that is from."""
    return symbols(machine_of(machine), one_of(MODELS, "model", model))


def crossovers(machine: str | Machine, model: str = LLAMA.name) -> Crossovers:
    """Modelled too: for several block sizes, the lengths at which recompute is cheaper."""
    return Crossovers(one_of(MODELS, "model", model), machine_of(machine))


def on_this_machine(model: str = "story") -> Timings:
    """Both methods on this machine's clock, at several lengths, beside the formula's."""
    from kvlab.course.measured import on_this_machine  # late: brings torch

    return on_this_machine(model)


def methods(*settings: str, repeats: int = compare.REPEATS) -> compare.MethodsTable:
    """Run the story with both methods, so often each, with `PATH=VALUE` settings, and compare."""
    return compare.repeat(repeats=repeats, settings=own.texts(settings))


def model_or_story(name: str) -> own.Choice:
    """This model if it is on this machine, else the bundled one; nothing is fetched."""
    return own.model_or_story(str(name))


def fits(model: str | own.Choice = "story", length: int | None = None) -> Table:
    """How many blocks, tokens and requests fit into this machine's memory."""
    return own.fits(str(model), length)


def check(asked: Run | Trace | Crossovers, name: str, answer: object) -> checks.Verdict:
    """Whether an answer is what the run, or the table, says; None: not answered yet."""
    return checks.check(asked.trace if isinstance(asked, Run) else asked, name, answer)


def what_if(made: Run | Trace) -> WhatIf:
    """Change one thing at the player's cursor, run it live, and see both runs side by side."""
    trace_of(made)  # refuses what is no run
    return WhatIf(made)


def predict(which: int | str) -> Guess:
    """The question of a chapter, to be answered before its run is shown."""
    one = chapter(which)
    trace = recorded(one.scenario)
    return Guess(one, trace)


def trace_of(made: Run | Trace) -> Trace:
    """The trace of a run, or the trace itself. Raises BadInput for what is neither."""
    if not isinstance(made, Run | Trace):
        raise BadInput(
            f"this takes a run and got {made!r:.60}: run a scenario first, as in "
            'story = run("figure-5"), and give story.'
        )
    return made.trace if isinstance(made, Run) else made


def one_of(known: dict[str, T], what: str, name: str) -> T:
    """The entry of this name. Raises BadInput, naming them all, where there is none."""
    if not isinstance(name, str) or name not in known:
        raise BadInput(f"{what} {name!r:.60}: choose {' or '.join(known)}.")
    return known[name]


def machine_of(machine: str | Machine) -> Machine:
    """A machine by its name, or the machine itself."""
    return machine if isinstance(machine, Machine) else one_of(MACHINES, "machine", machine)


def title_of(trace: Trace, speech: Speech = ENGLISH) -> str:
    """`Figure 2 · Skipping is not releasing`; the scenario's own title for another run."""
    try:
        one = chapter(trace.name)
    except BadInput:
        return speech.shipped(str(trace.document["scenario"]["title"] or trace.name))
    return one.heading(speech)


class LessonPlayer(Player):
    """A player with its chapter's heading, in the language that is spoken."""

    def speak(self, speech: Speech) -> None:
        """The same in another language."""
        super().speak(speech)
        self.title = title_of(Trace(self.trace), speech)


class Guess(Kept, ipywidgets.VBox):
    """A chapter's question with options. It holds what was chosen; the answer comes from a run."""

    choice = traitlets.Int(None, allow_none=True, help="The chosen option, None before that.")

    def __init__(self, one: Chapter, trace: Trace) -> None:
        self._chapter, self._trace = one, trace
        question = one.to_predict(trace)
        self.options = ipywidgets.RadioButtons(
            options=list(map(int, question.options)),
            value=None,
            layout={"width": "auto"},
        )
        self._text = ipywidgets.HTML()
        super().__init__([self._text, self.options])
        self.speak(ENGLISH)
        self.options.observe(self._chosen, "value")

    def speak(self, speech: Speech) -> None:
        """The same in another language; what is told of runs follows."""
        self.language, self.speech = speech.language, speech
        text = self._chapter.to_predict(self._trace).text
        self.question = in_words(text, self._trace, speech.words)
        self._text.value = f"<p style='{PARAGRAPH}'>{escape(self.question)}</p>"
        self.notify_change({"name": "choice", "type": "change", "new": self.choice})

    def _chosen(self, change: dict[str, Any]) -> None:
        self.choice = change["new"]
        if self in REPLACERS:
            self.keep()

    def compare(self, made: Run | Trace) -> LiveVerdict:
        """What a run says to the question. It is told once an option has been chosen."""
        trace = trace_of(made)
        place = LiveVerdict()

        def tell(_: object = None) -> None:
            question = self._chapter.to_predict(trace)
            right = int(question.answer or 0)
            verdict = checks.Verdict(None, self.speech("guess.choose"))
            if self.choice is not None:
                look = in_words(question.look, trace, self.speech.words)
                said = self.speech("guess.said", given=self.choice, right=right, look=look)
                verdict = checks.Verdict(self.choice == right, said)
            place.value = verdict.as_html()
            if place in REPLACERS:
                place.keep()

        self.observe(tell, "choice")
        tell()
        return place

    def _repr_mimebundle_(self, **kwargs: Any) -> Bundle:
        """The widget, and the question with what was chosen for readers without a kernel."""
        labels = [f"[{one}]" if one == self.choice else f"{one}" for one in self.options.options]
        words = f"{self.question} {' / '.join(labels)}"
        return with_still(self, f"<p>{escape(words)}</p>", words)


class LiveVerdict(Kept, ipywidgets.HTML):
    """A verdict that changes with what is chosen."""

    def _repr_mimebundle_(self, **kwargs: Any) -> Bundle:
        """The widget, and what it says now for readers without a kernel."""
        return with_still(self, self.value, re.sub(r"<[^>]*>", "", self.value))
