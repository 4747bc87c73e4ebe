"""The dashboard in a browser whose network ends at this machine: what people click, type and read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from waiting import until

import kvlab.draw

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser
AXE = Path(kvlab.draw.__file__).parent / "js" / "node_modules" / "axe-core" / "axe.min.js"
AT_REST = """() => {
    const seen = document.querySelector(".kvlab-page").outerHTML;
    const same = globalThis.seenBefore === seen;
    globalThis.seenBefore = seen;
    return same && document.getAnimations().every((one) => one.playState !== "running");
}"""
"""Whether the page is what it was when this was asked before, and nothing on it moves."""
PAGES = ("story", "lab", "compare", "cost", "delay")


@pytest.fixture(scope="module")
def url(serve: Callable[..., Any]) -> str:
    return str(serve("app").url)


def opened(page: Page, url: str, query: str = "") -> None:
    """Opened, and answered: the address has been looked at and is shown."""
    page.goto(f"{url.rstrip('/')}/{query}")
    page.locator(".kp-bar [aria-current=page]").wait_for(timeout=60_000)
    page.wait_for_function("new URLSearchParams(location.search).has('page')", timeout=60_000)


def reload(page: Page, trouble: Any) -> None:
    """The old page's farewell to its kernel is broken off by the browser: no trouble of ours."""
    page.reload()
    trouble.failed = [what for what in trouble.failed if "/voila/api/shutdown/" not in what]


def turn(page: Page, name: str) -> None:
    page.locator(f".kp-bar [data-page={name}]").click()
    page.locator(f".kp-bar [data-page={name}][aria-current=page]").wait_for(timeout=20_000)
    page.locator(".kp-room h1:visible").wait_for()


def choose(page: Page, text: str) -> None:
    page.locator(".kvlab-page .widget-radio-box label:visible", has_text=text).first.click()


def free(page: Page) -> int:
    shown = page.locator(".kvlab-player [data-free]:visible").first
    return int(shown.get_attribute("data-free") or -1)


def forward(page: Page) -> bool:
    """One event on; False at the range's end."""
    button = page.locator(".kvlab-player [data-control=event]:visible")
    if button.is_disabled():
        return False
    button.click()
    return True


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
    page.get_by_role("button", name="Show me without predicting").click()
    page.locator(".kvlab-chart .plot-container").first.wait_for(timeout=60_000)
    assert page.locator(".kvlab-player").first.get_attribute("data-theme") == scheme
    ink = page.locator(".kvlab-page h1").first.evaluate("el => getComputedStyle(el).color")
    axis = page.locator(".kvlab-chart .xtick text").first.evaluate(
        "el => getComputedStyle(el).fill"
    )
    bright = [sum(map(int, re.findall(r"\d+", colour)[:3])) > 380 for colour in (ink, axis)]
    assert bright == [scheme == "dark"] * 2
    assert not trouble


def test_predict_then_see_then_reload(page, url, trouble):
    opened(page, url, "?page=story&scenario=figure-5")
    veil = page.locator(".kvlab-player .k-veil")
    veil.wait_for(timeout=20_000)
    assert not page.locator(".kvlab-chart").first.is_visible()
    choose(page, "5")  # the chapter's own pill comes first
    page.locator(".kp-ask .widget-radio-box label", has_text="5").click()
    page.locator(".kp-verdict", has_text="Right: 5").wait_for(timeout=20_000)
    page.locator(".kvlab-chart .plot-container").first.wait_for(timeout=60_000)
    assert veil.count() == 0
    page.keyboard.press("Escape")
    page.locator("h1:visible").click()
    before = page.locator(".k-where").get_attribute("data-event")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("ArrowRight")  # nothing has the focus: the player in sight moves
    page.locator(f".k-where:not([data-event='{before}'])").wait_for()
    page.wait_for_function("new URLSearchParams(location.search).has('cursor')")
    event = page.locator(".k-where").get_attribute("data-event")
    reload(page, trouble)
    page.locator(".kp-verdict", has_text="Right: 5").wait_for(timeout=60_000)
    page.locator(f".k-where[data-event='{event}']").wait_for(timeout=20_000)
    term = page.locator(".kp-term:visible").first
    term.click()
    page.locator(".kp-term-card:popover-open").wait_for()
    assert not trouble


def test_a_live_run_replaces_the_recorded_one_and_its_link_brings_it_back(page, url, trouble):
    opened(page, url, "?page=story&scenario=figure-3&predict=off")
    status = page.locator(".kp-status:visible")
    status.filter(has_text="Recorded run on cpu, model story").wait_for(timeout=20_000)
    page.locator(".kvlab-page .widget-radio-box label", has_text="Swap").last.click()
    status.filter(has_text="Run of 2").wait_for(timeout=120_000)
    page.locator(".k-pill", has_text="swap").wait_for(timeout=10_000)
    assert "run just now" in page.locator(".k-facts").inner_text()
    page.locator(".kvlab-chart", has_text="The CPU pool keeps").wait_for(timeout=10_000)
    page.wait_for_function("location.search.includes('run=now')")
    reload(page, trouble)
    status.filter(has_text="Run of 2").wait_for(timeout=120_000)
    page.locator(".k-pill", has_text="swap").wait_for(timeout=10_000)
    assert not trouble


def test_the_lab_refuses_stops_and_keeps_what_was_typed(page, url, trouble, tmp_path):
    opened(page, url, "?page=lab&scenario=victims")
    form = page.locator(".kp-form")
    prompt = form.get_by_label("prompt", exact=True).first
    prompt.wait_for(timeout=20_000)
    prompt.fill("Mia keeps two boxes")
    prompt.press("ArrowLeft")  # stays in the field
    assert prompt.evaluate("el => el === document.activeElement")
    blocks = form.get_by_label("blocks in the GPU pool")
    blocks.fill("0")
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator(".kp-card", has_text="engine.num_blocks").wait_for(timeout=20_000)
    assert prompt.input_value() == "Mia keeps two boxes"
    assert blocks.input_value() == "0"

    # Long enough to be stopped.
    blocks.fill("2000")
    form.get_by_label("outputs", exact=True).first.fill("2000")
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator(".kp-status", has_text="step").wait_for(timeout=120_000)
    page.get_by_role("button", name="Stop", exact=True).first.click()
    page.locator(".kp-status", has_text="Stopped.").wait_for(timeout=5_000)

    blocks.fill("30")
    form.get_by_label("outputs", exact=True).first.fill("5")
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator(".kp-status", has_text="Run of 2").wait_for(timeout=120_000)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save the scenario").click()
    scenario = json.loads(Path(saved.value.path()).read_text("utf-8"))
    assert scenario["engine"]["num_blocks"] == 30
    page.wait_for_function("new URLSearchParams(location.search).has('s')")
    file = tmp_path / "brought.yaml"
    file.write_text(
        "name: brought\nmodel: null\nengine: {num_blocks: 4, block_size: 2}\n"
        "requests: [{id: Z, prompt: [1, 2, 3], max_tokens: 3}]\n"
    )
    page.locator(".kp-open").set_input_files(file)
    page.locator(".kp-status", has_text="none, stand-in tokens").wait_for(timeout=60_000)
    assert form.get_by_label("prompt", exact=True).first.input_value() == "1, 2, 3"
    assert not trouble


def test_what_the_kernel_never_heard_is_there_after_a_reload(page, url, trouble):
    opened(page, url, "?page=lab&scenario=victims")
    prompt = page.locator(".kp-form").get_by_label("prompt", exact=True).first
    prompt.fill("Told")
    page.wait_for_function("new URLSearchParams(location.search).has('s')")
    prompt.fill("Typed and not told")
    reload(page, trouble)
    page.wait_for_function(
        "document.querySelector('.kp-form textarea')?.value === 'Typed and not told'",
        timeout=60_000,
    )
    assert not trouble


def test_two_runs_side_by_side_and_back(page, url, trouble):
    opened(page, url)
    turn(page, "compare")
    table = page.locator(".kvlab-pair table")
    table.wait_for(timeout=20_000)
    assert "Tokens computed again" in table.inner_text()
    assert "What differs" in page.locator(".kvlab-pair").inner_text()
    turn(page, "delay")
    page.locator(".kvlab-chart:visible .plot-container").first.wait_for(timeout=60_000)
    assert "1.25 a step" in page.locator(".kvlab-note:visible").inner_text()
    page.go_back()
    page.locator(".kp-bar [data-page=compare][aria-current]").wait_for(timeout=20_000)
    assert page.locator(".kvlab-pair").is_visible()
    assert not trouble


def test_own_numbers_out_of_bounds_are_told(page, url, trouble):
    opened(page, url, "?page=cost&machine=Own+numbers")
    link = page.get_by_label("link, peak one way")
    link.fill("-1")
    link.press("Enter")
    page.locator(".kp-card", has_text="must be a number from").wait_for(timeout=20_000)
    assert link.input_value() == "-1"
    link.fill("450")
    link.press("Enter")
    page.locator(".kp-card").wait_for(state="detached", timeout=20_000)
    page.wait_for_function("location.search.includes('link=450')")
    assert not trouble


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_every_page_is_clean_and_fits(new_page, url, trouble, scheme, width):
    if not AXE.is_file():
        pytest.skip("axe-core is not installed (npm ci in kvlab/draw/js)")
    page = new_page(color_scheme=scheme, viewport={"width": width, "height": 844})
    opened(page, url, "?page=story&scenario=figure-4&predict=off")
    page.evaluate("(source) => { (0, eval)(source); }", AXE.read_text("utf-8"))
    for name in PAGES:
        turn(page, name)
        until(lambda: page.evaluate(AT_REST), page)
        for what in ("html", ".kvlab-page"):
            wide = page.locator(what).evaluate("el => el.scrollWidth - el.clientWidth")
            assert wide <= 0, (name, what, wide)
        found = page.evaluate(
            """async () => {
                const { violations } = await axe.run(document.querySelector(".kvlab-page"), {
                    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"],
                });
                return violations.flatMap((one) => one.nodes.map((node) =>
                    `${one.id}: ${node.html.slice(0, 160)} ${node.failureSummary}`));
            }"""
        )
        assert found == [], name
    assert not trouble
