"""A run in a thread: what it tells while it runs, and how it ends."""

from __future__ import annotations

import contextvars
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kvlab.errors import BadInput
from kvlab.runs.limits import Progress
from kvlab.runs.live import LiveRun
from kvlab.runs.run import Run, load_for, run_scenario
from kvlab.runs.scenario import Scenario, load_scenario, scenario_from

PLACE = contextvars.ContextVar("PLACE", default="nowhere")


def scenario(tokens: int = 6, **changed: Any) -> Scenario:
    """A and B of the story, without a model; more tokens make it longer."""
    document = {
        "name": "live",
        "model": None,
        "engine": {"num_blocks": 4 if tokens < 10 else 2 * tokens, "block_size": 4},
        "requests": [
            {"id": "A", "prompt": [1, 2, 3, 4, 5, 6, 7], "max_tokens": tokens},
            {"id": "B", "prompt": [2, 3, 4, 5, 6, 7, 8], "max_tokens": tokens - 2},
        ],
    }
    return scenario_from(document | changed, Path(), "test")


class Heard:
    """What a run called, and from where."""

    def __init__(self) -> None:
        self.progress: list[Progress] = []
        self.ends: list[tuple[str, Any]] = []
        self.thread: int | None = None
        self.place = ""
        self.first = threading.Event()

    def live(self, of: Scenario, **options: Any) -> LiveRun:
        return LiveRun(
            of,
            on_progress=self.tell,
            on_done=lambda run: self.end("done", run),
            on_error=lambda text: self.end("error", text),
            on_stopped=lambda: self.end("stopped", None),
            **options,
        )

    def tell(self, progress: Progress) -> None:
        self.progress.append(progress)
        self.first.set()

    def end(self, how: str, what: Any) -> None:
        self.thread, self.place = threading.get_ident(), PLACE.get()
        self.ends.append((how, what))


def test_a_run_in_a_thread_is_the_run_that_it_would_be_without() -> None:
    heard = Heard()
    PLACE.set("here")
    live = heard.live(scenario())
    assert (live.state, live.running) == ("new", False)
    assert live.start().wait(20)
    ((how, run),) = heard.ends
    assert (how, live.state, live.running) == ("done", "done", False)
    assert isinstance(run, Run)
    assert run.trace.events == run_scenario(scenario()).trace.events
    assert heard.thread != threading.get_ident()
    assert heard.place == "here"
    with pytest.raises(RuntimeError, match="once"):
        live.start()


def test_progress_counts_what_has_happened_and_comes_at_most_ten_times_a_second() -> None:
    heard = Heard()
    live = heard.live(scenario(tokens=1500))
    began = time.perf_counter()
    live.start().wait(60)
    assert live.state == "done"
    took = time.perf_counter() - began
    assert 1 <= len(heard.progress) <= took / 0.1 + 2
    first = heard.progress[0]
    # The first step gives A and B their prompts and one token each.
    assert (first.step, first.finished, first.requests, first.tokens) == (1, 0, 2, 2)
    assert first.events == len([e for e in heard.ends[0][1].trace.events if e["step"] == 1])
    assert str(first).startswith("step 1, 0 of 2 requests finished, 2 tokens put out")


def test_stop_ends_a_long_run_soon_and_says_so_once() -> None:
    heard = Heard()
    live = heard.live(scenario(tokens=20_000), most_steps=10**6).start()
    assert heard.first.wait(20)
    live.stop()
    assert live.state in ("stopping", "stopped")
    assert live.wait(5)  # the whole run takes minutes
    assert (live.state, heard.ends) == ("stopped", [("stopped", None)])
    live.stop()
    assert live.state == "stopped"


def test_stop_is_heard_between_two_layers_of_one_step() -> None:
    """Layer 0 of the first step presses Stop: layer 1 is not reached, and the model is left clean."""
    model = load_for(load_scenario("figure-5", ["device=cpu"]))
    assert model is not None
    reached: list[int] = []
    heard = Heard()
    live = heard.live(load_scenario("figure-5", ["device=cpu"]), model=model)

    def note(number: int) -> None:
        reached.append(number)
        live.stop()

    layers = list(model.model.model.layers)
    hooks = [
        layer.register_forward_hook(lambda *_, number=number: note(number))
        for number, layer in enumerate(layers)
    ]
    live.start().wait(60)
    for hook in hooks:
        hook.remove()
    assert len(layers) > 1
    assert (reached, heard.progress, heard.ends) == ([0], [], [("stopped", None)])
    assert not any(module._forward_pre_hooks for module in model.model.modules())


def test_stop_while_the_model_is_loaded_is_heard_when_it_is_there() -> None:
    loading, go_on = threading.Event(), threading.Event()

    def load() -> None:
        loading.set()
        go_on.wait(20)

    heard = Heard()
    live = heard.live(scenario(model="story"), load=load).start()
    assert loading.wait(20)
    assert live.state == "loading"
    live.stop()
    assert (live.state, live.running) == ("stopping", True)
    go_on.set()
    assert live.wait(20)
    assert heard.ends == [("stopped", None)]
    assert not heard.progress


def test_two_runs_take_turns_and_the_one_that_waits_can_be_stopped() -> None:
    one, other = Heard(), Heard()
    long = one.live(scenario(tokens=20_000), most_steps=10**6).start()
    assert one.first.wait(20)
    waiting = other.live(scenario()).start()
    waiting.stop()
    assert waiting.wait(5)
    assert other.ends == [("stopped", None)]
    assert long.state == "running"
    long.stop()
    assert long.wait(5)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"most_steps": 3}, "after 3 steps"),
        ({"most_seconds": 0.0}, "after 0 seconds"),
    ],
)
def test_a_run_beyond_its_bounds_fails_and_says_which(bounds: Any, words: str) -> None:
    heard = Heard()
    live = heard.live(scenario(), **bounds)
    live.start().wait(20)
    ((how, text),) = heard.ends
    assert (how, live.state) == ("error", "failed")
    assert words in text
    assert "smaller" in text


def test_what_a_person_got_wrong_is_told_in_its_own_words_and_our_fault_in_one_sentence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def missing() -> None:
        raise BadInput("model nobody: there is no such folder.")

    def broken() -> None:
        raise KeyError("secret detail")

    heard = Heard()
    for load in (missing, broken):
        live = heard.live(scenario(model="story"), load=load)
        live.start().wait(20)
        assert live.state == "failed"
    (_, theirs), (_, ours) = heard.ends
    assert theirs == "model nobody: there is no such folder."
    assert ours == "This run failed, and that is our fault (KeyError)."
    assert "secret detail" in caplog.text


def test_a_page_that_fails_to_show_the_run_is_told_of_it() -> None:
    said: list[str] = []

    def fall_over(run: Run) -> None:
        raise ValueError("no place")

    live = LiveRun(scenario(), on_done=fall_over, on_error=said.append)
    live.start().wait(20)
    assert said == ["This run failed, and that is our fault (ValueError)."]
    assert live.state == "failed"


def test_whoever_leaves_the_thread_by_force_is_told_of_too() -> None:
    """A SystemExit would end the thread without a word, and the page would wait for ever."""

    def leave(_: Progress) -> None:
        raise SystemExit(3)

    ends: list[str] = []
    live = LiveRun(scenario(), on_progress=leave, on_done=lambda _: None, on_error=ends.append)
    live.start().wait(20)
    assert ends == ["This run failed, and that is our fault (SystemExit)."]
    assert live.state == "failed"
