"""The page that runs, in a browser: the same runs as here, Stop, offline, two tabs, no other machine."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import load_scenario, scenario_names
from tests.tab.conftest import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = pytest.mark.browser

MEASURED = ("seconds", "scheduling_seconds", "goodput_per_second", "logprobs", "costs", "memory")
MINUTES = 180_000  # ms that a first start may take beside other tests
LONG: dict[str, Any] = {
    "name": "long",
    "engine": {"num_blocks": 200, "block_size": 16},
    "requests": [{"id": f"R{at}", "prompt": "Ana and Ben", "max_tokens": 290} for at in range(60)],
}
"""Takes minutes in a tab."""


def without_measured(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_measured(of) for key, of in value.items() if key not in MEASURED}
    return [without_measured(of) for of in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """One visitor: what a first test has loaded is there for the next."""
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    context.set_default_timeout(MINUTES)
    yield context
    context.close()


@pytest.fixture
def opened(context: BrowserContext, lab: str) -> Iterator[Page]:
    page = opened_in(context, lab)
    yield page
    page.close()


def opened_in(context: BrowserContext, address: str) -> Page:
    page = context.new_page()
    page.goto(address)
    page.evaluate("kvlab.ready")
    return page


def until(page: Page, condition: str) -> None:
    """Wait for a condition; Playwright's own way would evaluate a text, which the page forbids."""
    page.evaluate(
        f"async () => {{ while (!({condition})) await new Promise((on) => setTimeout(on, 50)); }}"
    )


def ran(page: Page, scenario: Any) -> dict[str, Any]:
    summary: dict[str, Any] = page.evaluate("(scenario) => kvlab.run(scenario)", scenario)
    return summary


def shown(page: Page) -> dict[str, Any]:
    """The summary of the run that is made now, when it is on show."""
    until(page, "kvlab.shown")
    summary: dict[str, Any] = page.evaluate("kvlab.shown")
    return summary


def here(scenario: Any) -> dict[str, Any]:
    return run_scenario(scenario).summary


def test_before_the_first_run_little_is_loaded(browser: Browser, lab: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    sizes: list[int] = []
    page.on("response", lambda answer: sizes.append(len(answer.body())))
    page.goto(lab)
    page.evaluate("kvlab.ready")
    assert page.locator(".kvlab-player").count() == 1, "the recorded run is there at once"
    assert 50_000 < sum(sizes) <= 400_000
    context.close()


def test_the_folder_is_small_and_says_where_python_is_from(site: Path) -> None:
    files = [path for path in site.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 15_000_000
    text = (site / "lab.html").read_text("utf-8")
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert "'wasm-unsafe-eval'" in policy
    assert "'unsafe-eval'" not in policy
    assert "'unsafe-inline'" not in policy
    assert "http" not in policy
    assert not re.search(r"<[^>]+\son\w+=", text), "no inline handlers"


def test_shipped_scenarios_give_the_summaries_of_here(opened: Page) -> None:
    for name in scenario_names():
        expected = here(load_scenario(name))
        got = ran(opened, name)
        assert without_measured(got) == without_measured(expected), name
        assert got.keys() == expected.keys()


def test_another_pool_in_the_form_gives_the_run_of_here(opened: Page, lab: str) -> None:
    opened.goto(f"{lab}#scenario=figure-5")
    opened.reload()
    opened.evaluate("kvlab.ready")
    opened.get_by_role("button", name="Settings").click()
    opened.get_by_label("blocks in the GPU pool").fill("5")
    until(opened, "location.hash.includes('s=')")
    opened.get_by_role("button", name="Run", exact=True).click()
    got = shown(opened)
    expected = here(load_scenario("figure-5", ["engine.num_blocks=5"]))
    assert got["scenario"] == "mine"
    assert without_measured(got | {"scenario": "figure-5"}) == without_measured(expected)
    assert "Just run in this tab" in opened.get_by_role("status").first.inner_text()


def test_a_link_holds_the_scenario(opened: Page, context: BrowserContext) -> None:
    opened.get_by_role("button", name="Settings").click()
    opened.get_by_label("blocks in the GPU pool").fill("9")
    until(opened, "location.hash.includes('s=')")
    other = opened_in(context, opened.url)
    assert other.get_by_label("blocks in the GPU pool").input_value() == "9"
    other.close()


@pytest.mark.parametrize(
    "link", ["s=xyz", "s=eJwDAAAAAAE", "s=", "scenario=__proto__", "scenario=<b>"]
)
def test_a_damaged_link_says_so_and_shows_a_lesson(link: str, opened: Page, lab: str) -> None:
    opened.goto(f"{lab}#{link}")
    opened.reload()
    opened.evaluate("kvlab.ready")
    assert opened.locator(".kvlab-player").count() == 1
    if link != "s=":
        assert opened.get_by_role("alert").first.inner_text().endswith((".", "one."))


def test_a_scenario_that_does_not_fit_is_refused_as_here(opened: Page) -> None:
    for change, words in (
        ({"engine": {"num_blocks": 0, "block_size": 4}}, "engine.num_blocks"),
        ({"model": "smollm2"}, "smollm2 is not in a browser's tab"),
        ({"requests": [{"id": "A", "prompt": "a", "max_tokens": 30_000}]}, "30,001 letters"),
        ({"requests": [{"id": "A", "prompt": "a", "max_tokens": 1, "n": "2"}]}, "requests.A.n"),
        ({"unknown": 1}, "unknown is not a known key"),
    ):
        scenario = {**load_scenario("figure-5").raw, **change}
        said = opened.evaluate("(s) => kvlab.run(s).then(() => '', (e) => e.message)", scenario)
        assert words in said
        assert "\n" not in said
    assert ran(opened, "figure-1")["steps"]


def test_what_is_wrong_is_said_at_its_field(opened: Page) -> None:
    opened.get_by_role("button", name="Settings").click()
    opened.get_by_label("blocks in the GPU pool").fill("0")
    opened.get_by_role("button", name="Run", exact=True).click()
    opened.get_by_role("alert").get_by_text("engine.num_blocks").wait_for()
    assert opened.get_by_label("blocks in the GPU pool").get_attribute("aria-invalid") == "true"


def test_recompute_and_swap_beside_each_other_and_a_what_if(opened: Page, lab: str) -> None:
    opened.goto(f"{lab}#scenario=figure-5")
    opened.reload()
    opened.evaluate("kvlab.ready")
    opened.get_by_role("button", name="Compare recompute and swap").click()
    beside = opened.locator(".lab-pair")
    beside.get_by_role("row", name="Tokens computed again 8 tokens 0 tokens").wait_for()
    opened.locator(".lab-stage [data-control=forward]").click()
    opened.get_by_role("button", name="What if?").click()
    opened.get_by_label("Change").select_option(label="size of the pool")
    opened.get_by_label("to", exact=True).select_option(label="8")
    opened.get_by_role("button", name="Run it").click()
    beside.get_by_role("row", name="Preemptions 1 preemption no preemption").wait_for()


def test_a_long_run_is_stopped_and_the_page_goes_on(context: BrowserContext, lab: str) -> None:
    """From the form, as a visitor would; a run that hears nothing any more is ended with its worker."""
    page = opened_in(context, lab)
    open_file(page, LONG)
    status = page.locator(".lab-status")
    until(page, "/^Step \\d/.test(document.querySelector('.lab-status').textContent)")
    page.get_by_role("button", name="Stop").click()
    until(page, "document.querySelector('.lab-status').textContent.startsWith('Stopped')")
    assert "run before" in status.inner_text()
    assert page.get_by_role("button", name="Run", exact=True).is_enabled()
    assert ran(page, "figure-5")["steps"] == 8
    page.close()


def open_file(page: Page, scenario: dict[str, Any]) -> None:
    """Which runs it."""
    page.get_by_label("Open a scenario or trace file").set_input_files(
        {
            "name": "own.json",
            "mimeType": "application/json",
            "buffer": json.dumps(scenario).encode(),
        }
    )


@pytest.mark.long
def test_two_tabs_and_a_reload_in_mid_run(context: BrowserContext, lab: str) -> None:
    one, other = opened_in(context, lab), opened_in(context, lab)
    open_file(one, LONG)
    until(one, "/^Step/.test(document.querySelector('.lab-status').textContent)")
    assert ran(other, "figure-2")["steps"] == len(here(load_scenario("figure-2"))["per_step"])
    one.reload()
    one.evaluate("kvlab.ready")
    assert ran(one, "figure-1")["steps"]
    for page in (one, other):
        page.close()


@pytest.mark.long
def test_what_was_loaded_once_needs_no_server(
    browser: Browser, own_server: Callable[[], Server]
) -> None:
    """Stopped after a first run: the page goes on, and comes back from the cache, engine and all."""
    server = own_server()
    context = browser.new_context()
    page = opened_in(context, server.url)
    assert ran(page, "figure-5")["steps"]
    until(page, "navigator.serviceWorker.controller")
    page.reload()
    page.evaluate("kvlab.ready")
    assert ran(page, "figure-5")["steps"]
    server.stop()
    assert ran(page, "figure-2")["steps"]
    page.reload()
    page.evaluate("kvlab.ready")
    assert ran(page, "victims")["steps"]
    context.close()


def test_without_a_server_before_the_first_run_there_is_a_sentence(
    browser: Browser, own_server: Callable[[], Server]
) -> None:
    server = own_server()
    context = browser.new_context()
    page = opened_in(context, server.url)
    server.stop()
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("alert").get_by_text("could not be loaded").wait_for()
    assert page.locator(".kvlab-player").count() == 1
    context.close()


def test_a_phone(browser: Browser, lab: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, is_mobile=True)
    page = opened_in(context, lab)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()


def test_nothing_from_outside_and_no_error(
    new_page: Callable[..., Page], trouble: Any, lab: str
) -> None:
    page = new_page()
    page.set_default_timeout(MINUTES)
    page.goto(lab)
    page.evaluate("kvlab.ready")
    assert ran(page, "figure-5")["steps"]
    assert not trouble
