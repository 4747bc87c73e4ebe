"""Moving through a run: speeds, pauses, jumps, keys, links that lead back."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kvlab.draw.player import Player
from kvlab.trace import replay

pytestmark = pytest.mark.browser

Document = dict[str, Any]


def cursor(page: Any) -> int:
    return int(page.locator(".k-where").get_attribute("data-event"))


def after(trace: Document, kind: str, **fields: Any) -> list[int]:
    return [
        at + 1
        for at, event in enumerate(trace["events"])
        if event["kind"] == kind and fields.items() <= event.items()
    ]


def test_speeds(open_player: Any, trace_named: Any) -> None:
    page = open_player(trace_named("figure-1"))
    speeds = page.locator("select option").all_inner_texts()
    assert speeds == ["0.25×", "0.5×", "1×", "2×", "4×"]


def test_playing_pauses_at_key_moments(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-5")
    (at,) = after(trace, "preempted")
    page = open_player(trace, cursor=at - 2, stop=at + 2)
    page.locator("select").select_option("4")
    page.locator("[data-control=play]").click()
    page.wait_for_function(f"player.cursor === {at}")
    page.wait_for_selector("[data-control=play][aria-pressed=false]")
    page.locator("[data-control=play]").click()
    page.wait_for_function(f"player.cursor === {at + 2}")


def test_playing_through(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-5")
    (at,) = after(trace, "preempted")
    page = open_player(trace, cursor=at - 1, stop=at + 2, state={"pauses": False, "speed": 4})
    page.locator("[data-control=play]").click()
    page.wait_for_function(f"player.cursor === {at + 2}")


def test_jumps(open_player: Any, random_run: Any) -> None:
    trace = next(t for t in map(random_run, range(80)) if len(after(t, "preempted")) > 2)
    page = open_player(trace)
    gone = after(trace, "preempted")
    root = page.locator(".kvlab-player")
    root.focus()
    for at in gone:
        page.keyboard.press("n")
        assert cursor(page) == at
    page.keyboard.press("N")
    assert cursor(page) == gone[-1]
    page.keyboard.press("p")
    assert cursor(page) == gone[-2]
    page.keyboard.press("Home")
    states = [state["free"] for state in map(copy.deepcopy, replay.states(trace))]
    full = [at for at in range(1, len(states)) if states[at] == 0 < states[at - 1]]
    assert full
    for at in full:
        page.keyboard.press("0")
        assert cursor(page) == at
        assert page.locator("[data-free]").get_attribute("data-free") == "0"
    page.keyboard.press("Home")
    page.locator("[data-act=more]").click()
    name = trace["requests"][-1]["id"]
    own = [at + 1 for at, event in enumerate(trace["events"]) if event.get("id") == name]
    for at in own[:4]:
        page.locator(f'[data-event-of="{name}"]').click()
        assert cursor(page) == at
    root.focus()
    page.keyboard.press("e")
    assert cursor(page) == own[4]


def test_a_presenters_remote(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-5")
    page = open_player(trace)
    page.locator(".kvlab-player").focus()
    page.keyboard.press("PageDown")
    assert cursor(page) == trace["steps"][0]["end"]
    page.keyboard.press(".")
    assert not page.locator(".k-pool").is_visible()
    page.keyboard.press("PageDown")
    assert cursor(page) == trace["steps"][1]["end"], "it moves behind the curtain"
    page.keyboard.press(".")
    assert page.locator(".k-pool").is_visible()
    page.keyboard.press(".")
    page.keyboard.press("Escape")
    assert page.locator(".k-pool").is_visible()


def test_ticks_differ_in_shape_and_colour(open_player: Any, trace_named: Any) -> None:
    page = open_player(trace_named("figure-4"), covered=False)
    looks = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll(".k-slider .k-mark")].map((mark) => {
            const style = getComputedStyle(mark);
            const shape = [style.clipPath, style.borderRadius, style.borderWidth, style.width];
            return [mark.dataset.mark, [shape.join(), style.backgroundColor + style.borderColor]];
        }))"""
    )
    assert set(looks) == {"allocated", "preempted", "copied", "resumed", "finished"}
    for kind in (0, 1):
        assert len({look[kind] for look in looks.values()}) == 5


@pytest.mark.parametrize("link", ["query", "hash"])
def test_a_link_leads_back(open_player: Any, trace_named: Any, link: str) -> None:
    page = open_player(trace_named("figure-4"), cursor=34, link=link)
    page.locator("[data-act=more]").click()
    page.locator("[data-act=copyLink]").click()
    shown = page.locator(".k-address")
    shown.wait_for()
    address = shown.input_value()
    sign = "?" if link == "query" else "#"
    text = address.partition(sign)[2]
    assert text == "scenario=figure-4&method=swap&cursor=34"
    expected = {"scenario": "figure-4", "method": "swap", "cursor": 34}
    assert page.evaluate("(text) => kvlab.placeIn(text)", sign + text) == expected


def test_no_link_unless_the_host_says_so(open_player: Any, trace_named: Any) -> None:
    page = open_player(trace_named("figure-4"))
    page.locator("[data-act=more]").click()
    assert page.locator("[data-act=copyLink]").count() == 0


def test_place_in_python(trace_named: Any) -> None:
    player = Player(trace=trace_named("figure-4"), cursor=12)
    assert player.place == "scenario=figure-4&method=swap&cursor=12"


def test_state_can_be_kept_and_given_back(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-5")
    page = open_player(trace, start=20, stop=40)
    page.locator("[data-act=lift]").click()
    page.evaluate("player.goto(50)")
    page.locator("select").select_option("2")
    state = page.evaluate("JSON.parse(JSON.stringify(player.state))")
    assert (state["cursor"], state["speed"], state["lifted"]) == (50, 2, True)
    again = open_player(trace, start=20, stop=40, state=state)
    assert cursor(again) == 50
    assert again.evaluate("player.state") == state


def test_two_runs_on_one_axis(open_player: Any, trace_named: Any) -> None:
    page = open_player(trace_named("figure-5"), axis=9)
    columns = page.evaluate(
        "getComputedStyle(document.querySelector('.k-grid')).gridTemplateColumns"
    )
    assert len(columns.split()) == 10
