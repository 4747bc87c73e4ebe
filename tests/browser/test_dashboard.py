"""The dashboard: what its callbacks survive, and the page in a browser with the network cut off."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kvlab.app import views
from kvlab.app.dashboard import Dashboard
from kvlab.app.guard import guarded
from kvlab.errors import BadInput
from kvlab.lessons.chapters import CHAPTERS, METHODS
from kvlab.lessons.facts import method_of
from kvlab.lessons.runs import run_lesson

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(views.__file__).resolve().parents[2]

# Without a browser


@pytest.fixture
def board() -> Dashboard:
    return Dashboard()


def wait(board: Dashboard) -> None:
    end = time.monotonic() + 120
    while board.busy.locked():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_opens_on_a_recorded_run(board: Dashboard):
    assert board.trace.name == "figure-1"
    assert "Recorded run on cpu, model story" in board.status.value
    assert board.player.start < (board.player.stop or 0)
    assert board.memory.caption
    assert board.card.value == ""


def test_the_first_paint_needs_no_torch():
    code = (
        "import sys; import kvlab.app.dashboard as d; d.Dashboard(); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_the_switch_runs_the_engine(board: Dashboard):
    board.chapters.index = 2
    board.methods.index = METHODS.index("swap")
    assert board.run_button.disabled
    wait(board)
    assert board.card.value == ""
    assert "Run just now on" in board.status.value
    assert not board.player.trace["recorded"]
    assert any(event["kind"] == "swap_in_finished" for event in board.player.trace["events"])
    assert "The CPU pool keeps 8 positions" in board.memory.caption
    assert not board.run_button.disabled
    board.back_pressed(None)
    assert "Recorded run" in board.status.value
    assert board.methods.index == METHODS.index("recompute")


def test_one_thing_can_be_changed(board: Dashboard):
    board.change_pressed(None)
    wait(board)
    assert board.card.value == ""
    assert board.player.trace["pool"]["num_blocks"] == 6
    assert "Changed: Give the pool 6 blocks" in board.status.value


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda one: one.scenario)
def test_every_chapter_runs_with_both_methods(chapter, method: str):
    trace = run_lesson(chapter.scenario, chapter.settings_for(method)).trace
    assert method_of(trace) == method
    assert run_lesson(chapter.scenario, chapter.settings_for(method, changed=True)).trace.steps
    prediction = chapter.prediction
    assert prediction.answer(trace) in prediction.options(trace)
    assert prediction.look(trace)


def test_predictions_are_answered_by_the_run(board: Dashboard):
    board.chapters.index = 4
    assert board.verdict.value == ""
    board.options.index = 0
    assert "The run says otherwise: 5" in board.verdict.value
    board.options.index = 2
    assert "Right: 5" in board.verdict.value
    assert "4 of waiting and 1 of recovery" in board.verdict.value


@pytest.mark.parametrize("index", [-1, 99, None, "1", 1.5, True, [0], "<script>"])
def test_choices_of_others_are_refused(board: Dashboard, index: Any):
    board.chapter_chosen({"new": index})
    assert "That did not work" in board.card.value
    assert "<script>" not in board.card.value
    assert board.chapter is CHAPTERS[0]


def test_a_press_while_something_runs_is_not_heard(board: Dashboard):
    heard: list[int] = []
    with board.busy:
        board.in_background("", lambda: heard.append(1))
        board.run_pressed(None)
    assert heard == []


def test_a_failing_run_becomes_a_card(board: Dashboard, caplog: pytest.LogCaptureFixture):
    def broken() -> None:
        raise RuntimeError("secret detail")

    with caplog.at_level(logging.ERROR, "kvlab.app"):
        board.in_background("", broken)
        wait(board)
    assert "our fault (RuntimeError)" in board.card.value
    assert "secret detail" not in board.card.value
    assert "secret detail" in caplog.text
    assert "On show" in board.status.value
    assert not board.run_button.disabled


def test_the_guard_tells_bad_input_in_its_own_words():
    class Page:
        said = ""

        def fail(self, message: str) -> None:
            self.said = message

        @guarded
        def callback(self, error: Exception) -> None:
            raise error

    page = Page()
    page.callback(BadInput("block_size: must be at least 1."))
    assert page.said == "block_size: must be at least 1."


def test_texts_are_escaped():
    hostile = "<img src=x onerror=alert(1)>"
    for text in (views.card(hostile), views.question(hostile), views.busy(hostile)):
        assert "<img" not in text
    assert "<img" not in views.verdict(1, 1, hostile)


# In a browser


@pytest.fixture(scope="module")
def url(serve: Callable[..., Any]) -> str:
    return str(serve("app").url)


def opened(page: Page, url: str) -> None:
    page.goto(url)
    page.locator(".kvlab-player [data-free]").wait_for(timeout=60_000)
    page.locator(".kvlab-chart .plot-container").first.wait_for(timeout=60_000)


def choose(page: Page, text: str) -> None:
    page.locator(".kvlab-page .widget-radio-box label", has_text=text).first.click()


def free(page: Page) -> int:
    return int(page.locator(".kvlab-player [data-free]").get_attribute("data-free") or -1)


def forward(page: Page) -> bool:
    """One event on; False at the range's end."""
    button = page.locator(".kvlab-player [data-act=forward]")
    if button.get_attribute("aria-disabled") == "true":
        return False
    button.click()
    return True


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figure_2_reads_0_then_2_then_1(new_page, url, trouble, scheme):
    page = new_page(color_scheme=scheme, viewport={"width": 1280, "height": 1000})
    opened(page, url)
    choose(page, "2 Skip")
    page.locator(".k-title", has_text="Figure 2").wait_for(timeout=20_000)
    counts = [free(page)]
    while forward(page):
        counts.append(free(page))
    turns = [count for at, count in enumerate(counts) if at == 0 or counts[at - 1] != count]
    assert turns == [0, 2, 1]
    table = page.locator('.kvlab-player [data-table="A"] [data-entry]')
    assert table.evaluate_all("all => all.map(one => 'P' + one.dataset.entry)") == [
        "P0",
        "P1",
        "P2",
    ]
    assert page.locator(".kvlab-player").get_attribute("data-theme") == scheme
    ink = page.locator(".kvlab-page h1").evaluate("el => getComputedStyle(el).color")
    axis = page.locator(".kvlab-chart .xtick text").first.evaluate(
        "el => getComputedStyle(el).fill"
    )
    bright = [sum(map(int, re.findall(r"\d+", colour)[:3])) > 380 for colour in (ink, axis)]
    assert bright == [scheme == "dark"] * 2
    assert not trouble


@pytest.mark.browser
def test_the_switch_replaces_the_recorded_run(page, url, trouble):
    opened(page, url)
    status = page.locator(".kp-status")
    assert "Recorded run on cpu, model story" in status.inner_text()
    choose(page, "3 Recompute")
    page.locator(".k-title", has_text="Figure 3").wait_for(timeout=20_000)
    page.locator(".kvlab-page .widget-radio-box label", has_text="Swap").last.click()
    page.locator(".kp-status", has_text="Run just now on").wait_for(timeout=120_000)
    page.locator(".k-pill", has_text="swap").wait_for(timeout=10_000)
    assert "run just now" in page.locator(".k-facts").inner_text()
    page.locator(".kvlab-chart", has_text="The CPU pool keeps").wait_for(timeout=10_000)
    assert not trouble


@pytest.mark.browser
def test_a_narrow_page_has_no_sideways_scroll(new_page, url, trouble):
    page = new_page(viewport={"width": 390, "height": 844})
    opened(page, url)
    for number in range(1, 6):
        choose(page, f"{number} ")
        page.locator(".k-title", has_text=f"Figure {number}").wait_for(timeout=20_000)
        page.wait_for_timeout(300)
        wide = "el => el.scrollWidth - el.clientWidth"
        assert page.locator("html").evaluate(wide) <= 0
        assert page.locator(".kvlab-page").evaluate(wide) <= 0
    assert not trouble
