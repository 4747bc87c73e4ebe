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
SIZES = ((1280, 720), (1366, 768), (1920, 1080))


@pytest.fixture(scope="module")
def url(serve: Callable[..., Any]) -> str:
    return str(serve("app").url)


def opened(page: Page, url: str, query: str = "") -> None:
    """Opened, and answered: the address has been looked at and is shown."""
    page.goto(f"{url.rstrip('/')}/{query}")
    answered(page)


def answered(page: Page) -> None:
    page.locator(".kp-bar[aria-busy=false] [aria-current=page]").wait_for(timeout=60_000)


def reload(page: Page, trouble: Any) -> None:
    """The old page's farewell to its kernel is broken off by the browser: no trouble of ours."""
    page.reload()
    answered(page)
    trouble.failed = [what for what in trouble.failed if "/voila/api/shutdown/" not in what]
    late = "Could not send widget sync message"  # what the old page had still wanted to tell
    trouble.console = [what for what in trouble.console if late not in what]


def turn(page: Page, name: str) -> None:
    page.locator(f".kp-bar [data-page={name}]").click()
    page.locator(f".kp-bar [data-page={name}][aria-current=page]").wait_for(timeout=20_000)


def chapter(page: Page) -> str:
    return str(page.evaluate("new URLSearchParams(location.search).get('chapter')"))


def free(page: Page) -> int:
    shown = page.locator(".kvlab-player [data-free]:visible").first
    return int(shown.get_attribute("data-free") or -1)


def forward(page: Page, control: str = "forward") -> bool:
    """One moment on, or one event; False at the range's end."""
    button = page.locator(f".kvlab-player [data-control={control}]:visible")
    if button.is_disabled():
        return False
    button.click()
    return True


def to_the_end(page: Page) -> None:
    """By the large arrow: a question on the way is passed over."""
    for _ in range(30):
        if not forward(page):
            return
    raise AssertionError("the large arrow comes to no end")


def settings(page: Page) -> Any:
    """The Lab's form, with its settings open."""
    toggle = page.locator(".kp-toggle")
    toggle.wait_for(timeout=20_000)
    if toggle.get_attribute("aria-expanded") == "false":
        toggle.click()
    return page.locator(".kp-form")


def boxes(page: Page, *selectors: str) -> list[tuple[float, float, float, float]]:
    """Left, top, right and bottom of what is seen of each, in pixels of the window."""
    return [
        tuple(
            page.locator(f"{one}:visible").first.evaluate(
                "el => { const r = el.getBoundingClientRect();"
                " return [r.left, r.top, r.right, r.bottom]; }"
            )
        )
        for one in selectors
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figure_2_reads_0_then_2_then_1(new_page, url, trouble, scheme):
    page = new_page(color_scheme=scheme, viewport={"width": 1280, "height": 720})
    opened(page, url, "?chapter=2")
    counts = [free(page)]
    while forward(page, "event"):
        counts.append(free(page))
    turns = [count for at, count in enumerate(counts) if at == 0 or counts[at - 1] != count]
    assert turns == [0, 2, 1]
    page.locator(".kvlab-chart .plot-container").first.wait_for(timeout=60_000)
    assert page.locator(".kvlab-player").first.get_attribute("data-theme") == scheme
    ink = page.locator(".kp-below h2").first.evaluate("el => getComputedStyle(el).color")
    axis = page.locator(".kvlab-chart .xtick text").first.evaluate(
        "el => getComputedStyle(el).fill"
    )
    bright = [sum(map(int, re.findall(r"\d+", colour)[:3])) > 380 for colour in (ink, axis)]
    assert bright == [scheme == "dark"] * 2
    assert not trouble


def test_every_chapter_stands_whole_on_the_first_screen(page, url, trouble):
    """Line, player and large arrow, without a scroll, where the chapter opens and where it ends."""
    opened(page, url)
    for number in "12345":
        page.locator(f".kp-bar [data-chapter='{number}']").click()
        page.wait_for_function(f"location.search === '?chapter={number}'")
        for ends in (False, True):
            if ends:
                to_the_end(page)
            for width, height in SIZES:
                page.set_viewport_size({"width": width, "height": height})
                for what, box in zip(
                    ("line", "player", "arrow"),
                    boxes(page, ".kp-bar", ".kvlab-player", "[data-control=forward]"),
                    strict=True,
                ):
                    inside = box[0] >= 0 and box[1] >= 0 and box[2] <= width and box[3] <= height
                    assert inside, (number, ends, width, what, box)
                (line,) = boxes(page, ".kp-bar")
                assert line[3] - line[1] <= 44.5
    assert not trouble


def test_what_one_came_for_is_on_the_first_screen(page, url, trouble):
    page.set_viewport_size({"width": 1280, "height": 720})
    opened(page, url)
    wanted = {
        "lab": (".kvlab-player", ".kp-run", "[data-control=forward]"),
        "compare": (".kvlab-race", ".kvlab-race [data-control=play]"),
        "cost": (".kvlab-chart", ".widget-slider"),
        "delay": (".kvlab-chart", ".kvlab-delays"),
    }
    for name, selectors in wanted.items():
        turn(page, name)
        page.locator(f"{selectors[0]}:visible").first.wait_for(timeout=30_000)
        for selector, box in zip(selectors, boxes(page, *selectors), strict=True):
            assert box[1] >= 0, (name, selector, box)
            assert box[3] <= 720, (name, selector, box)
    assert not trouble


def test_the_line_stays_in_view(page, url, trouble):
    opened(page, url, "?page=delay")
    page.set_viewport_size({"width": 1280, "height": 500})
    page.mouse.wheel(0, 400)
    page.wait_for_function("scrollY > 100")
    assert boxes(page, ".kp-bar")[0][1] == 0
    assert not trouble


def test_back_goes_the_way_one_came(page, url, trouble):
    opened(page, url, "?chapter=1")
    for number in "45":
        page.locator(f".kp-bar [data-chapter='{number}']").click()
        page.wait_for_function(f"location.search.includes('chapter={number}')")
        assert forward(page)
    turn(page, "cost")
    for number in "541":
        page.go_back()
        page.wait_for_function(f"location.search.includes('chapter={number}')")
        page.locator(f".kp-bar [data-chapter='{number}'][aria-current]").wait_for()
        answered(page)
    page.go_forward()
    page.locator(".kp-bar [data-chapter='4'][aria-current]").wait_for()
    answered(page)
    for _ in range(3):  # faster than anybody answers
        page.go_back()
        page.go_forward()
    answered(page)
    page.wait_for_function("location.search.includes('chapter=4')")
    assert page.locator(".kp-bar [data-chapter='4'][aria-current]").count() == 1
    assert not trouble


def test_next_at_a_chapters_end_opens_the_next(page, url, trouble):
    opened(page, url, "?chapter=1")
    to_the_end(page)
    page.locator(".kvlab-player [data-act=next]").click()
    page.wait_for_function("location.search.includes('chapter=2')")
    page.go_back()
    page.wait_for_function("location.search.includes('chapter=1')")
    assert not trouble


def test_what_is_not_reached_is_not_in_the_page(page, url, trouble):
    """Chapter 1 says nothing of what becomes of B: not in the picture, not in a chart's data."""
    opened(page, url, "?chapter=1")
    later = re.compile(r"recompute 9|5 steps|paused|waiting \+|kitchen|window")
    assert not later.search(page.locator(".kvlab-page .kp-story").inner_text())
    assert page.locator(".kvlab-chart").count() == 0
    to_the_end(page)
    page.locator(".kvlab-chart .plot-container").first.wait_for(timeout=60_000)
    shown = page.locator(".kp-charts").evaluate(
        "el => [...el.querySelectorAll('.js-plotly-plot')].map(one => JSON.stringify(one.data))"
    )
    assert shown
    assert not any(re.search("kitchen|3 steps|4 waiting", one) for one in shown)
    caption = page.locator(".kvlab-chart figcaption").first.inner_text()
    assert "Free after steps 1 and 2: 0 and 0 of 4 blocks." in caption
    assert not trouble


@pytest.mark.long
def test_an_end_that_was_reached_and_the_place_outlive_a_reload(page, url, trouble):
    opened(page, url, "?chapter=5")
    assert forward(page)
    page.wait_for_function("new URLSearchParams(location.search).has('cursor')")
    to_the_end(page)
    page.locator(".kvlab-chart .plot-container").first.wait_for(timeout=60_000)
    page.locator("[data-control=first]").click()
    page.evaluate("document.activeElement.blur()")
    before = page.locator(".k-where").get_attribute("data-event")
    page.keyboard.press("ArrowRight")  # nothing has the focus: the player in sight moves
    page.locator(f".k-where:not([data-event='{before}'])").wait_for()
    page.wait_for_function(  # the motion is over, and the address has followed
        """before => {
            const at = document.querySelector(".k-where").dataset.event;
            return at !== before && new URLSearchParams(location.search).get("cursor") === at;
        }""",
        arg=before,
    )
    event = page.locator(".k-where").get_attribute("data-event")
    reload(page, trouble)
    page.locator(f".k-where[data-event='{event}']").wait_for(timeout=20_000)
    page.locator(".kvlab-chart").first.wait_for(timeout=20_000)
    assert not trouble


def test_a_live_run_replaces_the_recorded_one_and_its_link_brings_it_back(page, url, trouble):
    opened(page, url, "?chapter=3")
    status = page.locator(".kp-status:visible")
    status.filter(has_text="Recorded run on cpu, model story").wait_for(timeout=20_000)
    page.locator(".kvlab-page .widget-radio-box label", has_text="Swap").click()
    status.filter(has_text="Run of 2").wait_for(timeout=120_000)
    page.locator(".k-pill", has_text="swap").wait_for(timeout=10_000)
    page.wait_for_function("scrollY === 0")
    page.locator(".jupyter-button", has_text="Try: Use 8 blocks").click()
    page.locator(".k-guide", has_text="Blocks copied out: 4, before the change 2.").wait_for(
        timeout=120_000
    )
    page.wait_for_function("location.search.includes('changed=yes')")
    reload(page, trouble)
    page.locator(".k-guide", has_text="Blocks copied out: 4, before the change 2.").wait_for(
        timeout=120_000
    )
    assert not trouble


@pytest.mark.parametrize("way", ["address", pytest.param("browser", marks=pytest.mark.long)])
def test_german_throughout(new_page, url, trouble, way):
    page = new_page(locale="de-DE" if way == "browser" else "en-US")
    lang = "&lang=de" if way == "address" else ""
    opened(page, url, f"?chapter=4{lang}")
    assert page.locator("html").get_attribute("lang") == "de"
    english = re.compile(
        r"\b(the|and|of|is|are|with|step|block|blocks|free|run|running|request|requests)\b"
    )
    to_the_end(page)
    page.locator(".kvlab-chart .plot-container").first.wait_for(timeout=60_000)
    for name in PAGES:
        turn(page, name)
        page.locator(".kp-room > :visible").first.wait_for()
        if name == "lab":
            settings(page)
        if name in ("cost", "delay"):
            page.locator(".kvlab-chart:visible .plot-container").first.wait_for(timeout=60_000)
        # The model's own tokens are English, and so are the data sheets' names.
        text = page.evaluate(
            """() => {
                const left = "[data-token], .k-token, .k-chip, .k-out, .k-race-text, textarea";
                const clone = document.querySelector(".kvlab-page").cloneNode(true);
                for (const one of clone.querySelectorAll(left)) one.remove();
                for (const one of clone.querySelectorAll("[style*='display: none'], style")) {
                    one.remove();
                }
                document.body.append(clone);
                const text = clone.innerText;
                clone.remove();
                return text;
            }"""
        )
        found = set(english.findall(text))
        lines = [line for line in text.splitlines() if english.search(line)]
        assert not found - {"the", "of"}, (name, lines[:5])
    reload(page, trouble)
    assert page.locator("html").get_attribute("lang") == "de"
    assert not trouble


def test_another_language_keeps_the_place(page, url, trouble):
    opened(page, url, "?page=compare&left=swap&right=recompute")
    page.locator(".kp-language").click()
    page.locator(".kp-bar[lang=de]").wait_for()
    answered(page)
    assert page.locator("html").get_attribute("lang") == "de"
    query = page.evaluate("Object.fromEntries(new URLSearchParams(location.search))")
    assert (query["left"], query["lang"]) == ("swap", "de")
    page.go_back()
    page.locator(".kp-bar[lang=en]").wait_for()
    answered(page)
    assert page.locator("html").get_attribute("lang") == "en"
    assert not trouble


def test_the_lab_refuses_stops_and_keeps_what_was_typed(page, url, trouble, tmp_path):
    opened(page, url, "?page=lab&scenario=victims")
    form = settings(page)
    prompt = form.get_by_label("prompt", exact=True).first
    prompt.wait_for(timeout=20_000)
    prompt.fill("Mia keeps two boxes")
    prompt.press("ArrowLeft")  # stays in the field
    assert prompt.evaluate("el => el === document.activeElement")
    blocks = form.get_by_label("blocks in the GPU pool")
    blocks.fill("0")
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator(".kp-card", has_text="Blocks in the GPU pool: must be").wait_for(timeout=20_000)
    assert blocks.get_attribute("aria-invalid") == "true"
    assert blocks.evaluate("el => el === document.activeElement")
    assert prompt.input_value() == "Mia keeps two boxes"
    assert blocks.input_value() == "0"

    # Long enough to be stopped.
    settings(page)
    blocks.fill("2000")
    form.get_by_label("outputs", exact=True).first.fill("2000")
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator(".kp-status", has_text="step").wait_for(timeout=120_000)
    page.get_by_role("button", name="Stop", exact=True).first.click()
    page.locator(".kp-status", has_text="Stopped.").wait_for(timeout=5_000)

    settings(page)
    blocks.fill("30")
    form.get_by_label("outputs", exact=True).first.fill("5")
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator(".kp-status", has_text="Run of 2").wait_for(timeout=120_000)
    settings(page)
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


@pytest.mark.long
def test_what_the_kernel_never_heard_is_there_after_a_reload(page, url, trouble):
    opened(page, url, "?page=lab&scenario=victims")
    prompt = settings(page).get_by_label("prompt", exact=True).first
    prompt.fill("Told")
    page.wait_for_function("new URLSearchParams(location.search).has('s')")
    prompt.fill("Typed and not told")
    reload(page, trouble)
    page.wait_for_function(
        "document.querySelector('.kp-form textarea')?.value === 'Typed and not told'",
        timeout=60_000,
    )
    assert not trouble


@pytest.mark.long
def test_two_runs_side_by_side_and_back(page, url, trouble):
    opened(page, url)
    turn(page, "compare")
    race = page.locator(".kvlab-race")
    race.wait_for(timeout=20_000)
    race.locator("input[type=range]").fill("8")
    assert "30 tokens through the model, 0 bytes moved" in race.inner_text()
    assert "40,960" in race.inner_text()
    page.locator(".widget-radio-box label", has_text="Step by step").click()
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


def test_the_race_is_seen_to_move(page, url, trouble):
    """Nine tokens on the left, two blocks on the right, alive long enough to be seen; the next press
    ends them at once."""
    opened(page, url, "?page=compare&step=6")
    race = page.locator(".kvlab-race")
    race.locator("[data-control=forward]").click()
    moving = "[...document.querySelectorAll('.kvlab-race [data-side=\"{}\"] [data-moving]')].length"
    page.wait_for_function(f"{moving.format(0)} === 9")
    assert page.evaluate(moving.format(1)) == 3  # and the one token that is processed
    page.wait_for_timeout(200)
    assert page.evaluate(moving.format(0)) == 9
    race.locator("[data-control=forward]").click()
    page.wait_for_function("document.querySelector('.kvlab-race').innerText.includes('step 7')")
    page.wait_for_function(f"{moving.format(0)} === 1")
    assert not trouble


def test_a_slider_moves_the_crossover(page, url, trouble):
    opened(page, url, "?page=cost")
    marks = page.locator(".kvlab-chart:visible .annotation-text")
    marks.first.wait_for(timeout=60_000)
    assert marks.all_text_contents() == ["96 tokens", "32,016 tokens"]
    assert "machine=H100" in page.url
    page.locator(".widget-slider .noUi-handle").nth(2).focus()
    page.keyboard.press("Home")  # the slowest link
    page.wait_for_function("location.search.includes('machine=Own')")
    page.wait_for_function(
        "document.querySelector('.kvlab-chart .annotation-text')?.textContent !== '96 tokens'"
    )
    assert not trouble


@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 1280), pytest.param("dark", 390, marks=pytest.mark.long)]
)
def test_every_page_is_clean_and_fits(new_page, url, trouble, scheme, width):
    if not AXE.is_file():
        pytest.skip("axe-core is not installed (npm ci in kvlab/draw/js)")
    page = new_page(color_scheme=scheme, viewport={"width": width, "height": 844})
    opened(page, url, "?chapter=4")
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
