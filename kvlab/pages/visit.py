"""What the pages of one visit share: the loaded model, and the run that goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import ipywidgets

from kvlab.draw.controls import button, flow, show_if
from kvlab.draw.guard import Page, guarded
from kvlab.pages import views
from kvlab.runs.limits import Progress
from kvlab.runs.live import LiveRun
from kvlab.runs.run import Run, load_for
from kvlab.runs.scenario import Scenario
from kvlab.trace.document import Trace
from kvlab.trace.speech import Speech

if TYPE_CHECKING:
    from kvlab.models.loading import LoadedModel

MOST_SECONDS = 300.0  # of one run


class Visit:
    """One kernel, one visitor: one model at a time is kept loaded."""

    def __init__(self) -> None:
        self.speech = Speech()
        self.loaded: tuple[object, LoadedModel | None] | None = None
        self.scenario: dict[str, Any] | None = None
        """The Lab's, as it is in the form; other pages may take it."""
        self.trace: Trace | None = None
        """The run in the Lab's player."""

    def load(self, scenario: Scenario) -> LoadedModel | None:
        """The scenario's model. The first one brings torch. Raises BadInput."""
        key = (scenario.model, scenario.document["device"], scenario.document["dtype"])
        if self.loaded is None or self.loaded[0] != key:
            self.loaded = None  # the old one goes before the new one comes
            self.loaded = (key, load_for(scenario))
        return self.loaded[1]


class LivePanel:
    """The line that says what is on show or being run, with Stop while something runs.

    `controls` cannot be used meanwhile. One thing at a time: `run` is not heard while another goes on.
    """

    def __init__(
        self, visit: Visit, page: Page, controls: Sequence[ipywidgets.Widget] = ()
    ) -> None:
        self.visit, self.page = visit, page
        self.controls = list(controls)
        self.status = ipywidgets.HTML()
        self.speech = visit.speech
        self.stop_button = button(self.speech("live.stop"))
        self.stop_button.on_click(self.stop_pressed)
        self.widget = flow(self.status, self.stop_button).add_class("kp-live")
        self.resting = ""
        self.live: LiveRun | None = None
        self.turn = 0
        show_if(self.stop_button, False)

    @property
    def busy(self) -> bool:
        return self.live is not None

    def rest(self, status: str) -> None:
        """What is said while nothing runs."""
        self.resting = status
        if not self.busy:
            self.status.value = status

    def run(self, scenarios: Sequence[Scenario], then: Callable[[list[Trace]], None]) -> bool:
        """Run them one after the other, then hand on their traces, in the thread that ran them.

        False when something runs already. `then` may raise: the page tells of it.
        """
        if self.busy or not scenarios:
            return False
        self.page.fail("")
        self.enable(False)
        self.status.value = views.busy(self.speech("live.starting"), self.speech)
        self.turn += 1
        self._next(self.turn, list(scenarios), [], then)
        return True

    def fail(self, message: str) -> None:
        self.page.fail(message)

    @guarded
    def stop_pressed(self, _: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Answered at once. What the stopped run still says is not heard any more."""
        if self.live is not None:
            self.live.stop()
            self._end(views.stopped(self.resting, self.speech))

    def _next(
        self,
        turn: int,
        left: list[Scenario],
        made: list[Trace],
        then: Callable[[list[Trace]], None],
    ) -> None:
        scenario, all_of_them = left[0], len(left) + len(made)

        def done(run: Run) -> None:
            if turn != self.turn:
                return
            made.append(run.trace)
            if left[1:]:
                self._next(turn, left[1:], made, then)
                return
            then(made)
            self._end(self.resting)

        def failed(message: str) -> None:
            if turn == self.turn:
                self._end(self.resting)
                self.page.fail(message)

        def tell(progress: Progress) -> None:
            if turn == self.turn:
                runs = (len(made) + 1, all_of_them)
                self.status.value = views.progress(progress, *runs, self.speech)

        self.live = LiveRun(
            scenario,
            on_done=done,
            on_error=failed,
            on_progress=tell,
            load=lambda: self.visit.load(scenario),
            most_seconds=MOST_SECONDS,
        )
        try:
            self.live.start()  # only now: a short run ends before the next line would be reached
        except RuntimeError:  # no thread is to be had
            self._end(self.resting)
            raise

    def _end(self, status: str) -> None:
        self.turn += 1
        self.live = None
        self.status.value = status
        self.enable(True)

    def enable(self, yes: bool) -> None:
        """Let the controls be used, or not; Stop the other way round."""
        for control in self.controls:
            control.disabled = not yes
        show_if(self.stop_button, not yes)
