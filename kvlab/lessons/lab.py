"""What the notebooks call: run a figure, predict, look, compare, check.

story = run("figure-5")            one real run, recorded
player(story)                      the picture, opened on the figure's part of the run
guess = predict("figure-5")        a question to answer before looking
guess.compare(story)               what the run says to it
check(story, "steps of waiting", 4)
"""

from __future__ import annotations

from html import escape
from typing import Any

import ipywidgets
import traitlets

from kvlab.errors import BadInput
from kvlab.lessons import checks, compare
from kvlab.lessons.chapters import chapter
from kvlab.lessons.ranges import lesson_range
from kvlab.lessons.record import recorded
from kvlab.lessons.runs import run_lesson
from kvlab.run import Run
from kvlab.trace.document import Trace
from kvlab.widgets import chart
from kvlab.widgets.chart import Chart
from kvlab.widgets.player import Player

__all__ = ["Guess", "check", "costs", "delays", "figure", "memory", "methods", "player", "predict"]
__all__ += ["run"]

PARAGRAPH = "margin:0;max-width:75ch;line-height:1.5"


def run(name: str, *settings: str) -> Run:
    """Run a scenario now, with `PATH=VALUE` settings. Raises BadInput for what cannot run."""
    return run_lesson(name, settings)


def player(made: Run | Trace) -> Player:
    """The player on a run, opened on its figure's part."""
    trace = trace_of(made)
    start, stop = lesson_range(trace)
    return Player(trace=trace.document, start=start, stop=stop, title=title_of(trace))


def figure(name: str, *settings: str) -> Player:
    """Run a scenario now and show it."""
    return player(run(name, *settings))


def memory(made: Run | Trace) -> Chart:
    """KV per request and free blocks over the steps."""
    return chart.memory_chart(trace_of(made))


def delays(made: Run | Trace) -> Chart:
    """The gaps between outputs: waiting, recovery, decoding."""
    return chart.gaps_chart(trace_of(made))


def costs(machine: str) -> Chart:
    """The modelled crossover of the two methods on other hardware."""
    return chart.cost_chart(machine)


def methods(repeats: int = compare.REPEATS) -> compare.MethodsTable:
    """Run the story with both methods, so often each, and compare."""
    return compare.repeat(repeats=repeats)


def check(made: Run | Trace, name: str, answer: object) -> checks.Verdict:
    """Whether an answer is what the run says; None: not answered yet."""
    return checks.check(trace_of(made), name, answer)


def predict(which: int | str) -> Guess:
    """The question of a chapter, to be answered before its run is shown."""
    one = chapter(which)
    trace = recorded(one.scenario)
    prediction = one.prediction
    return Guess(prediction.ask(trace), prediction.options(trace), one.scenario)


def trace_of(made: Run | Trace) -> Trace:
    """The trace of a run, or the trace itself."""
    return made.trace if isinstance(made, Run) else made


def title_of(trace: Trace) -> str:
    """`Figure 2 · Skipping is not releasing`; the scenario's own title for another run."""
    try:
        one = chapter(trace.name)
    except BadInput:
        return str(trace.document["scenario"]["title"] or trace.name)
    return f"Figure {one.number} · {one.title}"


class Guess(ipywidgets.VBox):
    """A question with options. It holds what was chosen; the answer comes from a run."""

    choice = traitlets.Int(None, allow_none=True, help="The chosen option, None before that.")

    def __init__(self, question: str, options: tuple[int, ...], scenario: str) -> None:
        self.question, self.scenario = question, scenario
        self.options = ipywidgets.RadioButtons(
            options=list(options),
            value=None,
            layout={"width": "auto"},
        )
        text = ipywidgets.HTML(f"<p style='{PARAGRAPH}'>{escape(question)}</p>")
        super().__init__([text, self.options])
        self.options.observe(self._chosen, "value")

    def _chosen(self, change: dict[str, Any]) -> None:
        self.choice = change["new"]

    def compare(self, made: Run | Trace) -> ipywidgets.HTML:
        """What a run says to the question. It is told once an option has been chosen."""
        trace = trace_of(made)
        prediction = chapter(self.scenario).prediction
        place = ipywidgets.HTML()

        def tell(_: object = None) -> None:
            if self.choice is None:
                verdict = checks.Verdict(None, "Choose an option above; then the run answers.")
            else:
                right = prediction.answer(trace)
                verdict = checks.Verdict(
                    self.choice == right,
                    f"You said {self.choice}, the run says {right}. {prediction.look(trace)}",
                )
            place.value = verdict.as_html()

        self.observe(tell, "choice")
        tell()
        return place

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The widget, and beside it the question for readers without a widget manager."""
        bundle = super()._repr_mimebundle_(**kwargs)
        words = f"{self.question} {' / '.join(str(label) for label in self.options.options)}"
        return bundle | {"text/plain": words, "text/html": f"<p>{escape(words)}</p>"}
