"""The page on a visitor's graphics card: the same runs, and one that goes on when the card goes away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import load_scenario
from tests.tab.tabs import CARD_FLAGS, SCRIPTS
from tests.tab.test_lab_page import MINUTES, opened_in, ran, shown, until, without_measured

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.long]

KEEP_DEVICE = """
const request = GPUAdapter.prototype.requestDevice;
GPUAdapter.prototype.requestDevice = async function (...given) {
  return (self.device = await request.apply(this, given));
};
"""
"""Before the page's own script for the card, so that a test can take the device away."""


@pytest.fixture(scope="module")
def page(browser: Browser, chromium_path: Path, lab: str) -> Iterator[Page]:
    chromium = browser.browser_type.launch(executable_path=str(chromium_path), args=CARD_FLAGS)
    context = chromium.new_context(viewport={"width": 1280, "height": 720}, service_workers="block")
    context.set_default_timeout(MINUTES)
    script = (SCRIPTS / "gpu.js").read_text("utf-8") + KEEP_DEVICE
    context.route(
        "**/tab/gpu.js", lambda route: route.fulfill(body=script, content_type="text/javascript")
    )
    page = opened_in(context, lab)
    if not page.evaluate("navigator.gpu?.requestAdapter().then(Boolean)"):
        chromium.close()
        pytest.skip("this browser offers no graphics card by WebGPU")
    if not page.evaluate("'Suspending' in WebAssembly"):
        chromium.close()
        pytest.skip("in this browser Python cannot wait for a graphics card (JSPI)")
    yield page
    chromium.close()


def without_device(summary: dict[str, Any]) -> Any:
    return without_measured({key: of for key, of in summary.items() if key != "device"})


def test_a_lost_card_in_mid_run_is_told_and_the_run_is_made(page: Page) -> None:
    page.get_by_role("button", name="Run", exact=True).click()
    until(page, "/^Step \\d/.test(document.querySelector('.lab-status').textContent)")
    page.workers[0].evaluate("self.device.destroy()")
    got = shown(page)
    status = page.locator(".lab-status").inner_text()
    assert "The graphics card went away in mid-run" in status
    assert "typed arrays" in status
    assert got["device"] == "cpu"
    expected = run_scenario(load_scenario("victims")).summary
    assert without_device(got) == without_device(expected)
    assert ran(page, "figure-1")["device"] == "cpu", "the card stays away"


def test_runs_are_made_on_the_card_and_the_page_says_so(page: Page) -> None:
    page.reload()
    page.evaluate("kvlab.ready")
    page.get_by_role("button", name="Run", exact=True).click()
    got = shown(page)
    assert got["device"] == "webgpu"
    assert "WebGPU" in page.locator(".lab-status").inner_text()
    expected = run_scenario(load_scenario("victims")).summary
    assert without_device(got) == without_device(expected)
    plain = ran(page, {**load_scenario("figure-5").raw, "device": "cpu"})
    assert plain["device"] == "cpu"
