"""Two runs side by side in a page: one slider, one axis, one voice, and a table of what differs."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from kvlab.draw.packed import packed
from kvlab.draw.pair import Pair
from kvlab.runs.fork import Fork, scenario_of
from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import load_scenario
from kvlab.trace.document import Trace
from kvlab.trace.narration import load_words

pytestmark = pytest.mark.browser

MOUNT = """
async ([module, css, traces, options]) => {
  const style = document.head.appendChild(document.createElement("style"));
  style.textContent = css;
  const url = URL.createObjectURL(new Blob([module], { type: "text/javascript" }));
  window.kvlab = await import(url);
  window.told = [];
  options.onStep = (step) => told.push(step);
  window.pair = kvlab.mountPair(document.getElementById("root"), traces, options);
}
"""


@cache
def story() -> Trace:
    stand_ins = [f"requests.{id}.prompt=[1,2,3,4,5,6,{n}]" for n, id in enumerate("AB")]
    return run_scenario(load_scenario("figure-5", ["model=null", *stand_ins])).trace


@cache
def forked(setting: str, value: str, step: int = 3) -> Trace:
    return run_scenario(Fork(step, setting, value).scenario(scenario_of(story()))).trace


@pytest.fixture
def open_pair(new_page: Any, trouble: Any) -> Any:
    """open_pair(other trace, width=…, theme=…): the story and a fork of it at step 3."""

    def open_page(
        other: Trace, width: int = 1280, theme: str = "light", language: str = "en", **options: Any
    ) -> Any:
        page = new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        page.set_content('<body style="margin:0"><main id="root"></main></body>')
        page.evaluate("document.documentElement.lang = 'en'; document.title = 'Two runs'")
        widget = Pair(story(), other, fork=3, title="A instead of B", language=language)
        options |= {"words": load_words(language), "table": widget.table, "fork": widget.fork}
        traces = [packed(story().document), packed(other.document)]
        options.setdefault("title", widget.title)
        page.evaluate(MOUNT, [Pair._esm, Pair._css, traces, options])
        return page

    yield open_page
    assert not trouble, trouble


def shown(page: Any) -> dict[str, Any]:
    """What a person sees of each run: the owners of P0 … P3, the free count and the sentence."""
    found: dict[str, Any] = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll(".k-pair-run")].map((run) => [
            run.dataset.run,
            {
                owners: [...run.querySelectorAll(".k-pool [data-block]")].map((block) =>
                    [...block.querySelectorAll(".k-badge")].map((badge) => badge.textContent).join()),
                free: run.querySelector(".k-pool .k-free").textContent,
                says: run.querySelector(".k-pair-says").textContent,
            },
        ]))"""
    )
    return found


def live(page: Any) -> str:
    assert page.locator("[aria-live]").count() == 1
    return str(page.locator("[aria-live]").text_content())


def test_one_slider_drives_both_runs(open_pair: Any) -> None:
    """figures.md on the left; on the right A gives up P0 P1 in step 3 and B takes P0."""
    page = open_pair(forked("next_victim", "A"))
    at_fork = shown(page)
    assert at_fork["before"]["owners"] == ["A", "A", "A", ""]
    assert at_fork["after"]["owners"] == ["B", "", "B", "B"]
    assert live(page).startswith("Step 3. As it was: A needs a block and too few are free, so B is")
    assert "With the change: A needs a block and too few are free. It is itself" in live(page)
    page.locator("input[type=range]").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    five = shown(page)
    assert five["before"]["owners"] == ["A", "A", "A", ""]
    assert five["after"]["owners"] == ["", "A", "A", "A"]
    assert "A" in five["after"]["says"]
    page.keyboard.press("Home")
    assert live(page) == "before step 1 of 8"
    page.keyboard.press("ArrowRight")
    assert live(page).startswith("Step 1, the same in both runs: ")
    page.locator("[data-act=to_fork]").click()
    assert shown(page) == at_fork
    assert page.evaluate("told") == [4, 5, 0, 1, 3]
    page.locator(".k-pair-time[data-run=after] .k-step").nth(6).click(position={"x": 8, "y": 6})
    assert page.locator(".k-pair-where").inner_text() == "step 7 of 8"
    assert page.locator("input[type=range]").get_attribute("aria-valuetext") == "step 7 of 8"


def test_a_run_that_has_ended_stays_at_its_end(open_pair: Any) -> None:
    """pause_only ends both requests in step 3; the first run goes on to step 8."""
    page = open_pair(forked("method", "pause_only"))
    page.locator("[data-act=to_end]").click()
    after = shown(page)["after"]
    assert after["says"] == "This run has ended: step 3 was its last."
    assert after["owners"] == ["", "", "", ""]
    assert "This run has ended" in live(page)
    axes = page.evaluate(
        """() => [...document.querySelectorAll(".k-pair-time .k-step")].map((step) =>
            [step.closest("[data-run]").dataset.run, Math.round(step.getBoundingClientRect().left)])"""
    )
    columns = {run: [left for name, left in axes if name == run] for run in ("before", "after")}
    assert (len(columns["before"]), len(columns["after"])) == (8, 3)
    assert columns["before"][:3] == columns["after"]
    marked = page.locator(".k-step[data-fork]")
    assert [marked.nth(i).get_attribute("data-goto") for i in range(marked.count())] == [
        str(trace.steps[2]["end"]) for trace in (story(), forked("method", "pause_only"))
    ]


def test_the_differences_are_a_table_with_headings(open_pair: Any) -> None:
    page = open_pair(forked("next_victim", "A"), width=390)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    table = page.get_by_role("table", name="What the change made different")
    assert table.get_by_role("columnheader").all_inner_texts() == [
        "What",
        "As it was",
        "With the change",
        "In words",
    ]
    row = table.get_by_role("row").filter(
        has=page.get_by_role("rowheader", name="Longest gap of B")
    )
    assert row.get_by_role("cell").all_inner_texts() == [
        "5 steps",
        "1 step",
        "The user of B waits 4 steps less in the longest gap.",
    ]


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1280, "light")])
def test_axe(open_pair: Any, violations: Any, width: int, theme: str) -> None:
    page = open_pair(forked("method", "swap"), width=width, theme=theme, note="Made elsewhere.")
    assert page.locator(".kvlab-pair").get_attribute("data-theme") == theme
    assert violations(page) == []
    page.locator(".k-pair-run[data-run=after] [data-host='0']").click()
    assert page.locator(".k-pair-run[data-run=after] .k-sheet").is_visible()
    assert violations(page) == []
    page.keyboard.press("Escape")
    assert page.locator(".k-sheet").count() == 0


def test_in_the_second_language_nothing_is_left_in_the_first(open_pair: Any) -> None:
    page = open_pair(forked("method", "swap"), language="de", title="Auslagern")
    assert page.locator(".kvlab-pair").get_attribute("lang") == "de"
    english, german = load_words("en")["pair"], load_words("de")["pair"]
    text = page.locator(".kvlab-pair").inner_text()
    for name, words in english.items():
        if "{" not in words and words != german[name] and len(words) > 5:
            assert words not in text, name
    assert german["differences"] in text


def test_no_key_leaves_the_pair(open_pair: Any) -> None:
    page = open_pair(forked("method", "swap"))
    page.evaluate("document.body.addEventListener('keydown', () => { window.leaked = true; })")
    page.locator(".kvlab-pair").focus()
    for key in ("d", "ArrowLeft", "Escape", "Enter", "?"):
        page.keyboard.press(key)
    assert page.evaluate("window.leaked") is None
    assert page.locator(".k-pair-where").inner_text() == "step 2 of 8"


def test_large_runs_are_drawn_as_overviews_on_one_axis(open_pair: Any, new_page: Any) -> None:
    """400 steps against 200: the canvas of the shorter run is half as wide."""
    asks = "[{id: A, prompt: [1], max_tokens: %d}]"
    runs = [
        run_scenario(
            load_scenario(
                "figure-5", ["model=null", "engine.num_blocks=400", f"requests={asks % tokens}"]
            )
        ).trace
        for tokens in (400, 200)
    ]
    page = new_page(viewport={"width": 1280, "height": 900})
    page.set_content('<body style="margin:0"><main id="root"></main></body>')
    options = {"words": load_words(), "title": "Long"}
    traces = [packed(trace.document) for trace in runs]
    page.evaluate(MOUNT, [Pair._esm, Pair._css, traces, options])
    page.evaluate("pair.goto(300)")
    widths = page.evaluate(
        "[...document.querySelectorAll('.k-pair-time canvas')].map((one) => one.clientWidth)"
    )
    assert abs(widths[0] - 2 * widths[1]) <= 2
    painted = page.evaluate(
        """() => [...document.querySelectorAll("canvas")].map((one) => one.getContext("2d")
            .getImageData(0, 0, one.width, one.height).data.some((value) => value !== 0))"""
    )
    assert painted == [True] * 4  # a time picture and a pool of 400 blocks for each
