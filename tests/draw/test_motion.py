"""Every move forward is seen to happen, is a state of the trace, and never keeps a reader waiting."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.browser

Document = dict[str, Any]


def before(trace: Document, kind: str, **fields: Any) -> int:
    """The cursor just before an event."""
    for at, event in enumerate(trace["events"]):
        if event["kind"] == kind and fields.items() <= event.items():
            return at
    raise AssertionError(f"no {kind} with {fields}")


# Watches in the page itself, frame by frame: {kind: milliseconds that one was there},
# and how many blocks' frames flew at once.
WATCH = """
() => {
  const since = new Map();
  window.seen = {};
  window.frames = 0;
  const look = (now) => {
    for (const el of document.querySelectorAll("[data-moving]")) {
      const key = el.dataset.moving;
      if (!since.has(key)) since.set(key, now);
      window.seen[key] = Math.max(window.seen[key] ?? 0, now - since.get(key));
    }
    const frames = document.querySelectorAll(".k-fly[data-frame]").length;
    window.frames = Math.max(window.frames, frames);
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}
"""

# The scene as text, whatever the order of attributes.
SCENE = """
() => {
  const copy = document.querySelector(".k-scene").cloneNode(true);
  const of = (el) => [el.tagName, [...el.attributes].map(({ name, value }) => `${name}=${value}`).sort(),
    [...el.childNodes].map((node) => (node.nodeType === 1 ? of(node) : node.data))];
  return JSON.stringify(of(copy));
}
"""

KINDS = [
    ("copy", "figure-4", "swap_out_advanced", {}),
    ("copy", "figure-4", "swap_in_advanced", {}),
    ("recompute", "figure-5", "kv_written", {"why": "rebuilt"}),
    ("prefill", "figure-1", "kv_written", {"step": 1}),
    ("decode", "figure-5", "kv_written", {"step": 4}),
    ("release", "figure-5", "block_released", {"id": "B"}),
    ("release", "figure-4", "host_block_released", {}),
    ("allocation", "figure-5", "block_allocated", {"step": 3}),
    ("preemption", "figure-5", "preempted", {}),
    ("preemption", "figure-2", "paused", {}),
    ("arrival", "figure-1", "arrived", {}),
]


@pytest.mark.parametrize("key", ["ArrowRight", "Shift+ArrowRight"])
@pytest.mark.parametrize(("kind", "name", "event", "fields"), KINDS)
def test_each_kind_is_alive(
    open_player: Any,
    trace_named: Any,
    kind: str,
    name: str,
    event: str,
    fields: dict[str, Any],
    key: str,
) -> None:
    """By the large arrow and event by event; at the end the picture is the one of that cursor."""
    trace = trace_named(name)
    at = before(trace, event, **fields)
    page = open_player(trace, cursor=at, motion="no-preference")
    page.locator(".kvlab-player").focus()
    page.evaluate(WATCH)
    page.keyboard.press(key)
    page.wait_for_function("(kind) => window.seen[kind] >= 200", arg=kind)
    page.wait_for_selector("[data-moving], .k-fly", state="detached")
    assert page.locator("[data-coming], [data-old]").count() == 0
    goal = page.evaluate("player.cursor")
    assert goal > at
    moved = page.evaluate(SCENE)
    page.evaluate("(goal) => { player.goto(0); player.goto(goal); }", goal)
    assert page.evaluate(SCENE) == moved


def test_nothing_is_there_before_it_has_arrived(open_player: Any, trace_named: Any) -> None:
    """A copy: the source stays solid, the target fills cell by cell, and at last all of it is there."""
    trace = trace_named("figure-4")
    page = open_player(
        trace,
        cursor=before(trace, "swap_out_advanced"),
        motion="no-preference",
        state={"speed": 0.25},
    )
    page.locator(".kvlab-player").focus()
    page.keyboard.press("Shift+ArrowRight")
    look = """() => ["host", "block"].map((kind) =>
        [...document.querySelectorAll(`[data-${kind}] .k-cell[data-cell=filled]`)]
            .filter((cell) => !cell.hasAttribute("data-coming")).length)"""
    seen = [page.evaluate(look)]
    while page.locator("[data-moving]").count():
        now = page.evaluate(look)
        if now != seen[-1]:
            seen.append(now)
    stored = [host for host, _ in seen]
    assert stored[0] == 0
    assert stored == sorted(stored)
    assert page.evaluate(look) == [8, 16]
    assert {block for _, block in seen} == {16}, "the source is solid to the end"


def test_the_next_move_ends_the_one_before(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-5")
    page = open_player(trace, motion="no-preference", state={"speed": 0.25})
    page.locator(".kvlab-player").focus()
    for count in range(1, 9):
        page.keyboard.press("Shift+ArrowRight")
        assert page.evaluate("player.cursor") == count, "no press waits for a motion"
    page.keyboard.press("Home")
    assert page.evaluate("document.querySelectorAll('[data-moving], .k-fly').length") == 0


def test_play_shows_it_too(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-5")
    page = open_player(
        trace, motion="no-preference", cursor=before(trace, "block_released", id="B")
    )
    page.evaluate(WATCH)
    page.locator("[data-control=play]").click()
    page.wait_for_function("window.seen.release >= 200")
    page.locator("[data-control=play]").click()


def test_a_pool_on_a_canvas_moves_too(open_player: Any) -> None:
    from kvlab.bench.player import run

    engine = {"num_blocks": 600, "block_size": 16, "host_blocks": 0}
    requests = [{"id": "A", "prompt": list(range(1, 60)), "max_tokens": 3}]
    trace = run("canvas", engine, requests)
    page = open_player(trace, cursor=before(trace, "block_allocated"), motion="no-preference")
    page.locator(".kvlab-player").focus()
    page.evaluate(WATCH)
    page.keyboard.press("ArrowRight")
    page.wait_for_function("window.seen.allocation >= 0 && window.frames >= 4")
