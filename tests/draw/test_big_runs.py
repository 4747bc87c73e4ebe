"""Runs too large for elements: canvases drawn by deltas, a list of which only what is seen exists."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from kvlab.bench.player import Times, long_run, run, sizes
from kvlab.draw.packed import packed
from kvlab.trace import replay
from kvlab.trace.narration import load_words

Document = dict[str, Any]


@cache
def dense_run() -> Document:
    """1,024 blocks of 16 slots, 40 requests, with shortages and swaps."""
    requests = [
        {"id": f"R{number}", "prompt": [1 + number, *range(400)], "max_tokens": 12 + number % 20}
        for number in range(40)
    ]
    engine = {"num_blocks": 1024, "block_size": 16, "host_blocks": 512, "method": "swap"}
    return run("dense", engine, requests)


def cursor(page: Any) -> int:
    return int(page.locator(".k-where").get_attribute("data-event"))


@pytest.mark.browser
def test_deltas_and_a_fresh_drawing_are_the_same(open_player: Any) -> None:
    trace = dense_run()
    page = open_player(trace, covered=False)
    events = len(trace["events"])
    same = page.evaluate(
        """([trace, words, events]) => {
            const shot = () => [...document.querySelectorAll("canvas")]
                .map((canvas) => canvas.toDataURL());
            const differing = [];
            for (const at of [0, 90, 91, 400, 399, 1200, 800, events, 5]) {
                const goal = Math.min(at, events);
                player.goto(goal);
                const drawn = shot();
                player.destroy();
                window.player = kvlab.mount(root, trace, { words, cursor: goal, covered: false });
                if (shot().join() !== drawn.join()) differing.push(at);
            }
            return differing;
        }""",
        [packed(trace), load_words(), events],
    )
    assert same == []
    assert page.locator("canvas").count() == 2, "nothing is swapped: no CPU pool"


@pytest.mark.browser
def test_a_block_of_a_canvas_opens(open_player: Any) -> None:
    trace = dense_run()
    page = open_player(trace, cursor=600)
    state = replay.state_at(trace, 600)
    canvas = page.locator("canvas[data-dense=pool]")
    box = canvas.bounding_box()
    label = canvas.get_attribute("aria-label")
    held = sum(block["status"] != "free" for block in state["blocks"])
    assert f"{held} of 1024 blocks in use" in label
    canvas.click(position={"x": 3, "y": 3})
    assert page.locator("[data-sheet=block]").get_attribute("aria-label") == "Block P0"
    page.keyboard.press("Escape")
    canvas.hover(position={"x": box["width"] / 2, "y": 30})
    title = canvas.get_attribute("title")
    name, _, owner = title.partition(": ")
    owners = state["blocks"][int(name[1:])]["owners"]
    assert owner == (", ".join(owners) or "free")


@pytest.mark.browser
def test_requests_are_found(open_player: Any) -> None:
    trace = dense_run()
    page = open_player(trace, cursor=600)
    assert page.locator(".k-many-row").count() < 20, "only what is seen exists"
    page.locator(".k-many").evaluate("(el) => { el.scrollTop = el.scrollHeight; }")
    page.wait_for_selector('[data-pick="R39"]')
    search = page.locator("input[type=search]")
    search.fill("r17")
    assert page.locator(".k-many-row").count() == 1
    page.locator('[data-pick="R17"]').click()
    assert page.locator('.k-card[data-request="R17"]').count() == 1
    assert page.locator('.k-row[data-table="R17"]').count() == 1
    search.press("n")
    assert cursor(page) == 600, "what is typed is no command"
    search.fill("nobody")
    assert page.locator(".k-many-row").count() == 0


@pytest.mark.browser
def test_a_click_on_the_overview_goes_there(open_player: Any) -> None:
    trace = dense_run()
    page = open_player(trace, covered=False)
    box = page.locator("canvas[data-dense=time]").bounding_box()
    page.locator("canvas[data-dense=time]").click(position={"x": box["width"] * 0.5, "y": 9})
    middle = trace["steps"][len(trace["steps"]) // 2]
    assert abs(cursor(page) - middle["end"]) <= middle["end"] - middle["first"]


@pytest.mark.browser
def test_few_elements_and_no_overflow(open_player: Any) -> None:
    trace = dense_run()
    for width in (360, 800, 1240):
        page = open_player(trace, width=width, cursor=900)
        assert page.evaluate("document.querySelectorAll('*').length") < 1500
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.locator(".kvlab-player").focus()
        page.keyboard.press("t")
        assert page.evaluate("document.querySelectorAll('*').length") < 9000


@pytest.mark.browser
def test_an_input_takes_little_script(open_player: Any) -> None:
    """Half of the inputs stay below one frame, on a machine that does other things, too."""
    trace = dense_run()
    page = open_player(trace, cursor=300)
    times = page.evaluate(
        """() => {
            const times = [];
            for (let i = 0; i < 120; i += 1) {
                const start = performance.now();
                const key = i % 10 ? "ArrowRight" : "PageDown";
                const shiftKey = key === "ArrowRight";
                const press = { key, shiftKey, bubbles: true };
                player.element.dispatchEvent(new KeyboardEvent("keydown", press));
                times.push(performance.now() - start);
            }
            return times;
        }"""
    )
    assert Times.of(times).p50 < 16


def test_a_long_run_travels_light() -> None:
    trace = long_run(1000)
    assert len(trace["steps"]) >= 950
    found = sizes(trace)
    assert found.trace_wire < 2_000_000
    assert found.module < 100_000
