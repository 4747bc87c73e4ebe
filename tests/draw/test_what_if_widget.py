"""The controls of a fork: what is on offer, the live run, Stop, and what a page may not do."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from kvlab.draw.player import Player
from kvlab.draw.what_if import WhatIf
from kvlab.lab.notebook import what_if
from kvlab.runs.run import Run, run_scenario
from kvlab.runs.scenario import load_scenario, scenario_from
from kvlab.trace.document import Trace


@cache
def story() -> Run:
    stand_ins = [f"requests.{id}.prompt=[1,2,3,4,5,6,{n}]" for n, id in enumerate("AB")]
    return run_scenario(load_scenario("figure-5", ["model=null", *stand_ins]))


def at_step(made: Run, step: int) -> int:
    return made.trace.cursor_of(step)


@pytest.fixture
def widget() -> Iterator[WhatIf]:
    made = what_if(story())
    made.player.cursor = at_step(story(), 3)
    yield made
    made.close()


def choose(widget: WhatIf, setting: str, value: str | int) -> None:
    widget.what.index = widget.settings.index(setting)
    if isinstance(value, int):
        widget.blocks.value = value
    else:
        widget.value.index = widget.values[setting].index(value)


def wait(until: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not until():
        assert time.monotonic() < end
        time.sleep(0.01)


def run(widget: WhatIf, setting: str, value: str | int) -> None:
    choose(widget, setting, value)
    widget.run_button.click()
    wait(lambda: widget.live is None)


def text_of(html: str) -> str:
    return re.sub(r"<[^>]*>", " ", html)


def test_what_is_on_offer_follows_the_cursor(widget: WhatIf) -> None:
    assert widget.settings == ["victim", "next_victim", "method", "free_order", "num_blocks"]
    assert "from the start of step 3 on" in widget.where.value
    choose(widget, "next_victim", "B")
    assert list(widget.value.options) == ["A", "B"]
    choose(widget, "num_blocks", 6)
    assert widget.value.layout.display == "none"
    assert "differs from step 1 on" in widget.where.value
    widget.player.cursor = at_step(story(), 7)
    assert widget.settings == ["num_blocks"]
    assert "decide nothing any more" in widget.where.value


def test_both_runs_and_what_differs_are_shown_and_the_scenario_can_be_saved(widget: WhatIf) -> None:
    run(widget, "next_victim", "A")
    assert widget.pair
    assert widget.result.children == (widget.pair,)
    assert (widget.pair.fork, widget.pair.step, widget.pair.note) == (3, 3, "")
    rows = {row[0]: row[3] for row in widget.pair.table["rows"]}
    assert rows["Longest gap of B"] == "The user of B waits 4 steps less in the longest gap."
    before = sum(event["step"] < 3 for event in story().trace.events)
    assert f"all {before} events are the same" in text_of(widget.status.value)
    saved = re.search(r'href="data:application/json;base64,([^"]+)"', widget.file.value)
    assert saved
    document = json.loads(base64.b64decode(saved[1]))
    assert document["actions"] == [{"step": 3, "next_victim": "A"}]
    scenario_from(document, load_scenario("figure-5").base, "saved")
    # The next one takes its place, and the first is closed.
    first = widget.pair
    run(widget, "num_blocks", 6)
    assert widget.pair is not first
    assert first.comm is None
    assert widget.pair.fork == 1
    data, _ = widget._repr_mimebundle_()
    assert "a pool of 6 blocks from the start" in data["text/html"]


def test_stop_is_heard_and_the_old_run_stays() -> None:
    """A run of 40,000 steps, stopped; the pair that was there before is still there."""
    tokens = 20_000
    ask = {"prompt": [1, 2, 3], "max_tokens": tokens}
    document = {
        "name": "long",
        "model": None,
        "engine": {"num_blocks": 5_100, "block_size": 4, "host_blocks": 6_000},
        "requests": [{"id": "A", **ask}, {"id": "B", "arrival_step": 1, **ask, "max_tokens": 500}],
    }
    short = run_scenario(
        load_scenario_of(document | {"engine": {"num_blocks": 4, "block_size": 4}})
    )
    widget = WhatIf(short)
    run(widget, "num_blocks", 5)
    kept = widget.pair
    assert kept
    progress: list[str] = []
    widget.status.observe(lambda change: progress.append(text_of(change["new"])), "value")
    choose(widget, "num_blocks", 5_600)
    widget.run_button.click()
    wait(lambda: any("Running: step" in text for text in progress))
    assert widget.run_button.disabled
    assert not widget.stop_button.disabled
    widget.stop_button.click()
    wait(lambda: widget.live is None)  # the whole run takes minutes
    assert "What was shown before still is." in widget.status.value
    assert widget.result.children == (kept,)
    assert widget.stop_button.disabled
    assert not widget.run_button.disabled
    widget.close()


def load_scenario_of(document: dict[str, Any]) -> Any:
    return scenario_from(document, load_scenario("figure-5").base, "test")


def test_a_page_can_choose_nothing_that_is_not_on_offer(widget: WhatIf) -> None:
    """Messages set traits as they like; what reaches the engine is looked up in our own lists."""
    for name, state in (
        (widget.blocks, {"value": 10**30}),
        (widget.blocks, {"value": "many"}),
        (widget.what, {"index": 99}),
        (widget.value, {"index": -1}),
    ):
        try:
            name.set_state(state)
        except Exception:
            continue  # refused by the trait already
    choose(widget, "num_blocks", 6)
    widget.blocks.max = 10**30
    widget.blocks.value = 10**29
    widget.run_button.click()
    assert widget.live is None
    assert "num_blocks = 10000000000000000000" in widget.card.value
    assert 'role="alert"' in widget.card.value


def test_what_fails_becomes_a_card_and_the_controls_stay_alive() -> None:
    def broken() -> None:
        raise KeyError("secret")

    document = story().trace.document
    named = Trace(document | {"scenario": document["scenario"] | {"model": "story"}})
    widget = WhatIf(named, load=broken)
    widget.player.cursor = at_step(story(), 3)
    run(widget, "method", "swap")
    assert "our fault (KeyError)" in widget.card.value
    assert "secret" not in widget.card.value
    assert not widget.run_button.disabled
    widget.close()


def test_a_player_that_is_there_is_followed_and_its_next_run_is_forked() -> None:
    player = Player(story().trace)
    widget = WhatIf(story(), player=player)
    assert player not in widget.children
    player.cursor = at_step(story(), 3)
    assert widget.step == 3
    go_on = threading.Event()
    other = run_scenario(load_scenario_of(story().scenario.raw | {"name": "other"}))

    def load() -> None:
        go_on.wait(20)

    widget.load = load
    choose(widget, "method", "swap")
    widget.scenario = load_scenario("figure-5", ["device=cpu"])  # it has to be loaded first
    widget.run_button.click()
    live = widget.live
    assert live
    player.trace = other.trace.document
    assert widget.live is None
    assert widget.trace.name == "other"
    go_on.set()
    assert live.wait(20)
    assert live.state == "stopped"
    assert widget.pair is None
    widget.close()


def test_two_runs_go_when_the_player_shows_another(widget: WhatIf) -> None:
    run(widget, "method", "swap")
    assert widget.result.children
    widget.player.trace = story().trace.document | {"name": "other"}
    assert (widget.result.children, widget.pair, widget.status.value) == ((), None, "")


def test_a_run_that_was_made_elsewhere_is_told_apart(widget: WhatIf) -> None:
    elsewhere = run_scenario(
        story().scenario.with_settings(["requests.A.prompt=[1,2,3,4,5,6,9]"])
    )  # another prompt gives other tokens, as other hardware might
    document = elsewhere.trace.document | {"scenario": story().trace.document["scenario"]}
    events = document["events"]
    at = next(i for i, event in enumerate(events) if event["kind"] == "token_sampled")
    document["run"] |= {"device": "cuda", "dtype": "float16"}
    other = WhatIf(Trace(document))
    other.player.cursor = at_step(story(), 3)
    run(other, "method", "swap")
    assert other.pair
    assert f"they part at event {at + 1}, in step 1 already" in other.pair.note
    assert "made on cuda in float16, this one on none in none" in other.pair.note
    assert "are the same" not in other.status.value
    other.close()
