"""One screen: everything in view at every event, controls that never move, in any place."""

from __future__ import annotations

from typing import Any

import pytest

from kvlab.trace.document import Trace
from kvlab.trace.ranges import lesson_range

pytestmark = pytest.mark.browser

Document = dict[str, Any]
FIGURES = ("figure-1", "figure-2", "figure-3", "figure-4", "figure-5")
TOP_LINE = 44
SCREENS = ((1280, 720), (1366, 768), (1920, 1080))


def opened(open_player: Any, trace: Document, size: tuple[int, int], **options: Any) -> Any:
    """A chapter's part below a top line, as on the Story page."""
    start, stop = lesson_range(Trace(trace))
    page = open_player(trace, width=size[0], start=start, stop=stop, cursor=start, **options)
    page.evaluate(
        """(top) => {
            root.style.setProperty("--kvlab-fit", `calc(100vh - ${top}px)`);
            root.style.marginTop = `${top}px`;
        }""",
        TOP_LINE,
    )
    page.set_viewport_size({"width": size[0], "height": size[1]})
    return page


# What is not whole in the window at any cursor of the range: its place, and the cursor.
OUT_OF_VIEW = """
([low, high, parts, scrollers]) => {
  const found = [];
  const outside = (el) => {
    const box = el.getBoundingClientRect();
    return !box.width || box.left < -0.5 || box.top < -0.5 ||
      box.right > innerWidth + 0.5 || box.bottom > innerHeight + 0.5;
  };
  const arrows = new Set();
  for (let at = low; at <= high; at += 1) {
    player.goto(at);
    for (const part of parts) {
      const all = [...document.querySelectorAll(part)];
      if (!all.length || all.some(outside)) found.push(`${at}: ${part}`);
    }
    for (const name of scrollers) {
      for (const el of document.querySelectorAll(name)) {
        const over = el.scrollHeight - el.clientHeight;
        if (over > 1) found.push(`${at}: ${name} scrolls by ${over}`);
      }
    }
    const { documentElement: all } = document;
    if (all.scrollHeight > innerHeight || all.scrollWidth > innerWidth) found.push(`${at}: scroll`);
    const arrow = document.querySelector("[data-control=forward]").getBoundingClientRect();
    arrows.add([arrow.x, arrow.y, arrow.width, arrow.height].join());
  }
  if (arrows.size !== 1) found.push(`the arrow moves: ${[...arrows].join(" | ")}`);
  return found;
}
"""
WHOLE = [
    ".kvlab-player", ".k-say", ".k-block", ".k-requests", ".k-grid", ".k-lab", ".k-keys",
    "[data-control]", ".k-slider", ".k-where", ".k-model",
]  # fmt: skip
INSIDE = [".k-guide", ".k-cards", ".k-blocks", ".k-scroll"]


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("name", FIGURES)
def test_all_of_it_is_in_view_at_every_event(
    open_player: Any, trace_named: Any, name: str, language: str
) -> None:
    trace = trace_named(name)
    low, high = lesson_range(Trace(trace))
    page = opened(open_player, trace, SCREENS[0], predict=True, language=language)
    for width, height in SCREENS:
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate(OUT_OF_VIEW, [low, high, WHOLE, INSIDE]) == [], (width, height)


@pytest.mark.parametrize("name", FIGURES)
def test_small_places(open_player: Any, trace_named: Any, name: str) -> None:
    """A tablet: sentence, blocks and controls; a phone: sentence, controls, and a line a request."""
    trace = trace_named(name)
    low, high = lesson_range(Trace(trace))
    page = opened(open_player, trace, (1024, 768))
    parts = [".k-say", ".k-block", ".k-keys", "[data-control]", ".k-slider"]
    assert page.evaluate(OUT_OF_VIEW, [low, high, parts, [".k-guide"]]) == []
    page.set_viewport_size({"width": 390, "height": 844})
    parts = [".k-say", "[data-block='0']", ".k-keys", "[data-control=forward]", ".k-slider"]
    assert page.evaluate(OUT_OF_VIEW, [low, high, parts, []]) == []
    card = page.locator(".k-card").first
    assert card.bounding_box()["height"] < 80
    assert not card.locator(".k-strip").is_visible()
    card.locator(".k-unfold").click()
    assert card.locator(".k-strip").is_visible()
    assert card.locator(".k-row").is_visible()


def test_a_notebook_of_650_pixels(open_player: Any, trace_named: Any) -> None:
    """Without a word of the host's about heights the controls are in view, bars above and below."""
    trace = trace_named("figure-4")
    low, high = lesson_range(Trace(trace))
    page = open_player(trace, width=960, start=low, stop=high)
    page.set_viewport_size({"width": 960, "height": 650})
    page.evaluate("document.body.style.paddingTop = '90px'")
    parts = [".k-say", ".k-block", ".k-keys", "[data-control]"]
    assert page.evaluate(OUT_OF_VIEW, [low, high, parts, []]) == []
    box = page.locator(".kvlab-player").bounding_box()
    assert box["y"] + box["height"] <= 650 - 24


SMALL_TEXT = """
() => {
  const found = [];
  const walker = document.createTreeWalker(player.element, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const el = node.parentElement;
    if (!node.data.trim() || !el.checkVisibility() || el.closest(".k-hidden, style")) continue;
    const size = parseFloat(getComputedStyle(el).fontSize);
    if (size < 18) found.push(`${size} ${el.className} ${node.data}`);
  }
  return found;
}
"""


@pytest.mark.parametrize("name", FIGURES)
def test_a_projector_shows_nothing_small(open_player: Any, trace_named: Any, name: str) -> None:
    trace = trace_named(name)
    low, high = lesson_range(Trace(trace))
    page = opened(open_player, trace, (1280, 720))
    page.locator(".kvlab-player").focus()
    page.keyboard.press("f")
    for at in range(low, high + 1, 4):
        page.evaluate("(at) => player.goto(at)", at)
        assert page.evaluate(SMALL_TEXT) == []
    lead = ".k-grid" if name == "figure-5" else ".k-block"
    parts = [".k-say", ".k-block", "[data-control=forward]", ".k-slider", lead]
    assert page.evaluate(OUT_OF_VIEW, [low, high, parts, [".k-blocks", ".k-guide"]]) == []
    page.keyboard.press("Escape")
    assert not page.evaluate("player.element.hasAttribute('data-projector')")


@pytest.mark.parametrize("name", FIGURES)
def test_few_presses_a_chapter(open_player: Any, trace_named: Any, name: str) -> None:
    """The large arrow stops where a teacher would, and at the end it has nothing to do."""
    page = opened(open_player, trace_named(name), (1280, 720))
    arrow, presses = page.locator("[data-control=forward]"), 0
    while arrow.is_enabled():
        arrow.click()
        presses += 1
    assert 4 <= presses <= 8
    assert page.evaluate("player.cursor") == lesson_range(Trace(trace_named(name)))[1]


def test_a_step_does_not_pass_over_a_preemption(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-5")
    gone = next(i for i, e in enumerate(trace["events"]) if e["kind"] == "preempted")
    page = open_player(trace, cursor=trace["steps"][1]["end"])
    page.locator(".kvlab-player").focus()
    page.keyboard.press("PageDown")
    assert page.evaluate("player.cursor") == gone + 1
    assert "so B is paused" in page.locator(".k-say").inner_text()
    page.keyboard.press("PageDown")
    assert page.evaluate("player.cursor") == trace["steps"][2]["end"]


def test_the_cpu_pool_is_drawn_where_it_is_used(open_player: Any, trace_named: Any) -> None:
    for name in FIGURES:
        page = open_player(trace_named(name))
        assert page.locator(".k-host").count() == (name == "figure-4"), name
    page = open_player(trace_named("figure-4"))
    sizes = page.evaluate(
        """() => [".k-block[data-block] .k-cell", ".k-block[data-host] .k-cell"].map((cells) => {
            const { width, height } = document.querySelector(cells).getBoundingClientRect();
            return [Math.round(width), Math.round(height)];
        })"""
    )
    assert sizes[0] == sizes[1], "cells of one size"


def test_ghosts_are_their_former_owners(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-5")
    at = next(i for i, e in enumerate(trace["events"]) if e["kind"] == "block_released") + 1
    page = open_player(trace, cursor=at)
    ghosts = page.locator("[data-cell=ghost]")
    hue = page.locator('.k-card[data-request="B"]').get_attribute("data-hue")
    assert ghosts.count() == 8
    assert {ghost.get_attribute("data-hue") for ghost in ghosts.all()} == {hue}
    letters = page.evaluate(
        """() => [...document.querySelectorAll("[data-cell=ghost]")]
            .map((ghost) => getComputedStyle(ghost, "::before").content)"""
    )
    assert set(letters) == {'"B"'}


def test_b_looks_the_same_in_every_run(open_player: Any, trace_named: Any) -> None:
    """Also where C arrives before it."""
    looks = set()
    for name in ("figure-5", "shared-stays", "victims"):
        trace = trace_named(name)
        page = open_player(trace, cursor=len(trace["events"]))
        card = page.locator('.k-card[data-request="B"]')
        badge = card.locator(".k-badge").first
        looks.add((card.get_attribute("data-hue"), badge.get_attribute("data-shape")))
    assert looks == {("1", "1")}


def test_a_copy_under_way_holds_the_blocks_that_it_reads(
    open_player: Any, trace_named: Any
) -> None:
    """The table says so, and the KV is where it was until it has arrived."""
    trace = trace_named("figure-4")
    at = next(i for i, e in enumerate(trace["events"]) if e["kind"] == "swap_out_started") + 1
    page = open_player(trace, cursor=at)
    card = page.locator('.k-card[data-request="B"]')
    assert card.locator("[data-entry] b").all_inner_texts() == ["P2", "P3"]
    assert card.locator("[data-host-entry] b").all_inner_texts() == ["H0", "H1"]
    assert card.locator(".k-numbers [data-kv] b").inner_text() == "8"
    assert card.locator("[data-blocks] b").inner_text() == "2"
    released = next(
        i for i, e in enumerate(trace["events"]) if e["kind"] == "block_released" and e["step"] == 3
    )
    page.evaluate("(at) => player.goto(at)", released + 1)
    assert card.locator("[data-entry]").count() == 0
    assert card.locator(".k-numbers [data-kv] b").inner_text() == "0"


def test_a_line_leads_from_the_entry_to_its_block(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-5")
    at = next(
        i
        for i, e in enumerate(trace["events"])
        if e["kind"] == "block_allocated" and e["step"] == 3
    )
    page = open_player(trace, cursor=at + 1)
    page.wait_for_selector(".k-lines path", state="attached")
    ends = page.evaluate(
        """() => {
            const line = document.querySelector(".k-lines path");
            const long = line.getTotalLength();
            return [0, long].map((at) => {
                const { x, y } = line.getPointAtLength(at);
                return [x, y];
            });
        }"""
    )
    boxes = [
        page.locator(selector).bounding_box()
        for selector in ('[data-request="A"] [data-entry="2"] b', '[data-block="2"]')
    ]
    for (x, y), box in zip(ends, boxes, strict=True):
        assert box["x"] - 2 <= x <= box["x"] + box["width"] + 6
        assert box["y"] - 2 <= y <= box["y"] + box["height"] + 2
    page.evaluate("player.goto(1)")
    page.wait_for_selector(".k-lines path", state="detached")
    page.evaluate("(at) => player.goto(at)", at)
    page.locator('[data-block="0"]').hover()
    page.wait_for_selector(".k-lines path", state="attached")


CUT_RINGS = """
() => {
  const cut = [];
  for (const el of document.querySelectorAll(".kvlab-player *")) {
    const look = getComputedStyle(el);
    const line = look.outlineStyle === "none" ? 0 : parseFloat(look.outlineWidth);
    const shadows = look.boxShadow.split(/,(?![^(]*\\))/).filter((one) => !one.includes("inset"));
    const spreads = shadows.map((one) => parseFloat(/0px 0px 0px ([\\d.]+)px/.exec(one)?.[1] ?? 0));
    const out = Math.max(line ? line + parseFloat(look.outlineOffset) : 0, ...spreads);
    const box = el.getBoundingClientRect();
    if (!box.width || out <= 0) continue;
    window.rings = (window.rings ?? 0) + 1;
    for (let at = el.parentElement; at && !at.matches(".kvlab-player"); at = at.parentElement) {
      if (getComputedStyle(at).overflowX === "visible") continue;
      const room = at.getBoundingClientRect();
      if (box.left - out < room.left - 0.5 || box.right + out > room.right + 0.5) {
        cut.push(`${el.className} in ${at.className}: ${box.left - out} in ${room.left}`);
      }
    }
  }
  return cut;
}
"""


@pytest.mark.parametrize("width", [1280, 390])
def test_no_ring_is_cut_at_the_side(open_player: Any, trace_named: Any, width: int) -> None:
    """What an event touched has a ring: whole, at the first block of a row as well."""
    page = open_player(trace_named("figure-4"))
    page.set_viewport_size({"width": width, "height": 844})
    for cursor in range(len(trace_named("figure-4")["events"]) + 1):
        page.evaluate("(at) => player.goto(at)", cursor)
        assert page.evaluate(CUT_RINGS) == [], cursor
    assert page.evaluate("window.rings") >= 20
