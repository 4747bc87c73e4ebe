"""What the seconds of a step are made of, on a clock that only moves when it is told to."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kvlab.engine.stand_in import StandInRunner
from kvlab.models.loading import load_model
from kvlab.runs import run
from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import load_scenario, scenario_from
from kvlab.runtime.clock import StepClock, StepSeconds
from kvlab.runtime.model_runner import ModelRunner
from kvlab.runtime.probe import CacheProbe
from kvlab.runtime.transfer import Transfer


class Hand:
    """The time, and a device that is `behind` by so much."""

    def __init__(self) -> None:
        self.time = 100.0
        self.behind = 0.0

    def finish(self) -> None:
        self.time += self.behind
        self.behind = 0.0

    def clock(self) -> StepClock:
        return StepClock(self.finish, lambda: self.time)


def test_a_step_is_work_and_scheduling_and_not_what_is_done_aside() -> None:
    hand = Hand()
    clock = hand.clock()
    clock.start()
    hand.time += 1  # scheduling
    with clock.work():
        hand.time += 10
        with clock.aside():
            hand.time += 100
        hand.time += 20
    hand.time += 2  # scheduling
    with clock.aside():
        hand.time += 200
    assert clock.stop() == StepSeconds(whole=33, scheduling=3)


def test_what_the_device_has_still_to_do_is_work_whoever_waits_for_it() -> None:
    hand = Hand()
    clock = hand.clock()
    clock.start()
    with clock.work():
        hand.behind += 5
    with clock.aside():  # waits for the device before it looks
        hand.time += 100
    with clock.work():
        hand.behind += 7
    assert clock.stop() == StepSeconds(whole=12, scheduling=0)  # and so does the end of a step


def test_a_step_that_breaks_off_does_not_count_in_the_next() -> None:
    hand = Hand()
    clock = hand.clock()
    clock.start()
    with suppress(ArithmeticError), clock.work():
        hand.time += 10
        raise ArithmeticError
    hand.time += 50
    clock.start()
    hand.time += 1
    assert clock.stop() == StepSeconds(1, 1)


@pytest.mark.parametrize("slots", [4_096, 0], ids=["looked at", "not looked at"])
def test_a_run_has_the_same_seconds_whether_its_values_are_looked_at_or_not(
    slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look takes 1,000 s, a pass of the model 10, a copy 1, a rate 500; all else no time at all."""
    hand = Hand()
    model = load_model("story", device="cpu")
    calls: list[str] = []

    def costing(name: str, seconds: float, work: Any) -> Any:
        def timed(*arguments: Any, **named: Any) -> Any:
            calls.append(name)
            hand.time += seconds
            return work(*arguments, **named)

        return timed

    monkeypatch.setattr(run, "MOST_PROBED_SLOTS", slots)
    for name, seconds in (("_written", 1_000), ("_checksum", 1_000)):
        monkeypatch.setattr(CacheProbe, name, costing(name, seconds, getattr(CacheProbe, name)))
    monkeypatch.setattr(ModelRunner, "_execute", costing("pass", 10, ModelRunner._execute))
    monkeypatch.setattr(
        "kvlab.runtime.model_runner.measure_costs",
        costing("rates", 500, lambda runner: StandInRunner().costs()),
    )
    for way in ("copy_out", "copy_in"):
        monkeypatch.setattr(Transfer, way, costing(way, 1, getattr(Transfer, way)))
    monkeypatch.setattr(
        ModelRunner, "clock", property(lambda self: clock, lambda self, value: None), raising=False
    )
    clock = hand.clock()
    found = run_scenario(
        load_scenario("figure-5", ["device=cpu", "engine.method=auto"]), None, model
    )
    copied = calls.count("copy_out") + calls.count("copy_in") - 2  # the warm-up's
    assert ("_written" in calls) == (slots > 0)
    assert "rates" in calls
    passes = sum(1 for step in found.summary["per_step"] if step["scheduled"])
    assert found.summary["seconds"] == 10 * passes + copied
    assert found.summary["scheduling_seconds"] == 0


def test_without_a_model_all_is_scheduling(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = Hand()
    execute = StandInRunner.execute

    def slowly(runner: StandInRunner, batch: Any) -> Any:
        hand.time += 1
        return execute(runner, batch)

    monkeypatch.setattr(run, "StepClock", hand.clock)
    monkeypatch.setattr(StandInRunner, "execute", slowly)
    raw = {
        "name": "ids",
        "model": None,
        "engine": {"num_blocks": 4, "block_size": 4},
        "requests": [{"id": "A", "prompt": [1, 2, 3], "max_tokens": 3}],
    }
    found = run_scenario(scenario_from(raw, Path(), "a test"))
    assert [step["seconds"] for step in found.trace.steps] == [1, 1, 1]
    assert [step["scheduling_seconds"] for step in found.trace.steps] == [1, 1, 1]


def test_a_warm_up_touches_no_kv_and_changes_no_token() -> None:
    model = load_model("story", device="cpu")
    runner = ModelRunner(model, num_blocks=4, block_size=4, host_blocks=2)
    before = runner.cache.data.clone().fill_(0.5)
    runner.cache.data.copy_(before)
    runner.host.data.fill_(0.5)
    runner.warm_up(200)
    assert runner.cache.data.equal(before)
    assert runner.host.data.eq(0.5).all()
