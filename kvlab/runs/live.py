"""A scenario that runs in a thread of its own: progress while it runs, and Stop.

No widgets here: whoever shows a run passes callbacks. They are called in the run's thread, within
the context (contextvars) of whoever started it.

Stop is heard between two steps and, in a model that runs layer by layer, between two layers. What
cannot be broken off is one layer, a replayed CUDA graph, a measurement of method `auto`'s costs, and
the loading of a model (`state` is then `stopping` until it is over). What a stopped run had made is
dropped: no trace of half a run.
"""

from __future__ import annotations

import contextvars
import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from kvlab.engine.report import StepReport
from kvlab.errors import BadInput, memory_ran_out
from kvlab.runs.limits import MOST_SECONDS, MOST_STEPS, Progress, Tally, TooLong
from kvlab.runs.run import Run, load_for, run_scenario
from kvlab.runs.scenario import Scenario

if TYPE_CHECKING:
    from kvlab.models.llama import DecoderLayer
    from kvlab.models.loading import LoadedModel

log = logging.getLogger("kvlab.runs.live")

BETWEEN_PROGRESS = 0.1  # seconds
TURN = threading.Lock()
"""Runs of one process take turns: torch's number of threads, which a run sets, is the process's."""


class Stopped(BaseException):
    """Raised in the run's thread to leave it. Not an Exception: the engine turns those that a model
    raises into requests that end with `error`."""


class LiveRun:
    """One run of a scenario; it starts once.

        LiveRun(scenario, on_done=show, on_error=say, on_progress=tell).start()

    `model` is one that is loaded already, `load` loads it in the thread (neither: the scenario's);
    `model` holds it afterwards. `most_steps` and `most_seconds` bound a run: beyond them it fails,
    and says so. Exactly one of `on_done`, `on_stopped`, `on_error` is called at the end, unless one
    of them itself raises: `on_error` then tells of that. `on_progress` is called at most ten times a
    second.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        on_done: Callable[[Run], None],
        on_error: Callable[[str], None],
        on_progress: Callable[[Progress], None] = lambda progress: None,
        on_stopped: Callable[[], None] = lambda: None,
        model: LoadedModel | None = None,
        load: Callable[[], LoadedModel | None] | None = None,
        most_steps: int = MOST_STEPS,
        most_seconds: float = MOST_SECONDS,
    ) -> None:
        self.scenario = scenario
        self.model = model
        self.state = "new"
        self.most_steps, self.most_seconds = most_steps, most_seconds
        self._load = load or (lambda: load_for(scenario))
        self._on_done, self._on_error = on_done, on_error
        self._on_progress, self._on_stopped = on_progress, on_stopped
        self._asked_to_stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._tally: Tally
        self._told = 0.0

    def start(self) -> LiveRun:
        """Begin. Raises RuntimeError for a second call."""
        if self._thread is not None:
            raise RuntimeError("a LiveRun starts once; make another.")
        self.state = "loading"
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._live,), daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ask the run to end; returns at once. A run that has ended is not touched."""
        self._asked_to_stop.set()
        if self.state in ("loading", "running"):
            self.state = "stopping"

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end; False when it did not come in time."""
        if self._thread is not None:
            self._thread.join(seconds)
        return not self.running

    @property
    def running(self) -> bool:
        """The thread is at work, a run that is being stopped included."""
        return self._thread is not None and self._thread.is_alive()

    # In the thread.

    def _live(self) -> None:
        try:
            with self._in_turn():
                run = self._run()
            self.state = "done"
            self._on_done(run)
        except Stopped:
            self._end("stopped", self._on_stopped)
        except TooLong as bound:
            self._end("failed", self._on_error, str(bound))
        except BadInput as error:
            self._end("failed", self._on_error, str(error))
        except BaseException as error:  # SystemExit, too: a thread would end without a word
            log.exception("the run of %s failed", self.scenario.name)
            said = f"This run failed, and that is our fault ({type(error).__name__})."
            if memory_ran_out(error):
                said = "This run needs more memory than there is: fewer blocks or tokens need less."
            self._end("failed", self._on_error, said)

    def _end(self, state: str, tell: Callable[..., None], *what: str) -> None:
        gc.collect()  # engine and scheduler know each other: their pools would wait for the collector
        self.state = state
        try:
            tell(*what)
        except BaseException:
            log.exception("the end of the run of %s could not be told", self.scenario.name)

    def _run(self) -> Run:
        self._leave_if_asked()
        if self.model is None and self.scenario.model is not None:
            self.model = self._load()
        self._leave_if_asked()
        if self.state == "loading":
            self.state = "running"
        self._tally = Tally(self.scenario, self.most_steps, self.most_seconds)
        with self._heard_between_layers():
            run = run_scenario(self.scenario, self._after_step, self.model)
        self._leave_if_asked()
        return run

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        while not TURN.acquire(timeout=0.1):
            self._leave_if_asked()
        try:
            yield
        finally:
            TURN.release()

    @contextmanager
    def _heard_between_layers(self) -> Iterator[None]:
        """Stop and the bound of seconds are heard inside of a long step, too."""
        if self.model is None:
            yield
            return
        here = threading.get_ident()

        def before_layer(*_: object) -> None:
            if threading.get_ident() == here:  # others may use the same model
                self._leave_if_asked()
                self._tally.refuse_too_long()

        # Each layer begins with its norm, whether the model runs the layer itself or its packed twin.
        hooks = [
            cast("DecoderLayer", layer).input_layernorm.register_forward_pre_hook(before_layer)
            for layer in self.model.model.model.layers
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _leave_if_asked(self) -> None:
        if self._asked_to_stop.is_set():
            raise Stopped

    def _after_step(self, report: StepReport) -> None:
        progress = self._tally.add(report)
        now = time.perf_counter()
        if now - self._told >= BETWEEN_PROGRESS:
            self._told = now
            self._on_progress(progress)
        self._leave_if_asked()
        self._tally.refuse_too_long()
