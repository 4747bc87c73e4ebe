"""The player as a reader meets it: clicks, keys, widths, themes, hostile text."""

from __future__ import annotations

import base64
import copy
import json
import re
from typing import Any

import pytest

from kvlab.draw.packed import pack, packed
from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import load_scenario
from kvlab.trace.narration import load_words

pytestmark = pytest.mark.browser

FIGURES = ("figure-1", "figure-2", "figure-3", "figure-4", "figure-5")


def free(page: Any) -> int:
    """The free blocks as the picture says it, in its attribute and in words."""
    node = page.locator("[data-free]").first
    number = int(node.get_attribute("data-free"))
    assert node.inner_text().startswith(f"{number} of ")
    return number


def table(page: Any, name: str) -> Any:
    return page.locator(f'[data-table="{name}"] [data-entry] b').all_inner_texts()


def cursor(page: Any) -> int:
    return int(page.locator(".k-where").get_attribute("data-event"))


def event_cursor(trace: dict[str, Any], kind: str, **fields: Any) -> int:
    for at, event in enumerate(trace["events"]):
        if event["kind"] == kind and fields.items() <= event.items():
            return at + 1
    raise AssertionError(f"no {kind} with {fields}")


def test_figure_2_clicked_through(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-2")
    start = event_cursor(trace, "paused")
    stop = event_cursor(trace, "kv_written", id="A", block=2, first=8)
    page = open_player(trace, start=start, stop=stop)
    forward = page.locator("[data-control=forward]")
    seen = [free(page)]
    while cursor(page) < stop:
        forward.click()
        if free(page) != seen[-1]:
            seen.append(free(page))
    assert seen == [0, 2, 1]
    assert table(page, "A") == ["P0", "P1", "P2"]
    assert page.locator('[data-request="B"] [data-history]').get_attribute("data-history") == "9"
    forward.press("Enter")  # it cannot be clicked any more, but it has kept the focus
    assert cursor(page) == stop
    page.locator("[data-act=lift]").click()
    page.locator("[data-control=last]").click()
    assert cursor(page) == len(trace["events"])


def test_the_unmet_need_is_an_empty_slot(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-1")
    page = open_player(trace, cursor=event_cursor(trace, "block_needed"))
    slot = page.locator('[data-table="A"] [data-unmet]')
    assert slot.inner_text().split() == ["2", "?"]
    assert free(page) == 0


def test_released_values_are_ghosts(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-5")
    page = open_player(trace, cursor=event_cursor(trace, "block_released", id="B"))
    for block, numbers in ((2, ["0", "1", "2", "3"]), (3, ["4", "5", "6", "7"])):
        cells = page.locator(f'[data-block="{block}"] [data-cell=ghost]')
        assert cells.all_inner_texts() == numbers
        assert page.locator(f'[data-block="{block}"]').get_attribute("data-status") == "free"


def test_rebuilt_and_first_time_are_told_apart(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-3")
    written = [
        at + 1
        for at, event in enumerate(trace["events"])
        if event["kind"] == "kv_written" and event["id"] == "B" and event["step"] == 7
    ]
    page = open_player(trace, cursor=written[-1])
    assert page.locator("[data-how=rebuilt]").count() == 8
    assert page.locator("[data-how=first]").all_inner_texts() == ["8"]


def test_a_copy_is_in_flight_until_it_is_complete(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-4")
    page = open_player(trace, cursor=event_cursor(trace, "swap_out_started"))
    assert page.locator("[data-status=in_flight]").count() == 2
    assert free(page) == 0
    page.evaluate("(c) => player.goto(c)", event_cursor(trace, "swap_in_finished"))
    assert page.locator("[data-how=restored]").count() == 8


def test_keys(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-5")
    page = open_player(trace)
    page.evaluate(
        """() => {
            window.leaked = [];
            for (const kind of ["keydown", "keyup", "keypress"])
                document.addEventListener(kind, (event) => leaked.push(event.key));
        }"""
    )
    page.locator(".kvlab-player").focus()
    for key, expected in (
        ("Shift+ArrowRight", 1),
        ("Shift+ArrowRight", 2),
        ("Shift+ArrowLeft", 1),
        ("PageDown", trace["steps"][0]["end"]),
        ("PageDown", trace["steps"][1]["end"]),
        ("PageUp", trace["steps"][0]["end"]),
        ("n", event_cursor(trace, "preempted")),
        ("End", len(trace["events"])),
        ("Home", 0),
    ):
        page.keyboard.press(key)
        assert cursor(page) == expected, key
    page.keyboard.press("?")
    assert page.locator("[data-sheet=help]").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("[data-sheet]").count() == 0
    page.keyboard.press(" ")
    assert page.locator("[data-control=play]").get_attribute("aria-pressed") == "true"
    page.keyboard.press(" ")
    page.keyboard.press("d")
    page.keyboard.press("a")
    assert page.evaluate("leaked.filter((key) => key !== 'Shift')") == []


def test_what_the_player_does_not_use_goes_to_the_host(open_player: Any, trace_named: Any) -> None:
    """JupyterLab looks at keys first, and passes over those in an element with its attribute."""
    page = open_player(trace_named("figure-5"))
    page.evaluate(
        """() => {
            window.heard = [];
            const ours = (event) => event.target.closest("[data-lm-suppress-shortcuts=true]");
            const hear = (event) => heard.push([event.key, Boolean(ours(event))]);
            document.addEventListener("keydown", hear, true);
        }"""
    )
    page.locator(".kvlab-player").focus()
    for key in ("Shift+Enter", "Control+s", "Control+Shift+C", "Tab", "F2"):
        page.keyboard.press(key)
        assert page.evaluate("heard.at(-1)[1]") is False, key
    page.locator(".kvlab-player").focus()
    for key in ("ArrowRight", "Shift+ArrowRight", "d", "ArrowDown", "PageDown", "Escape"):
        page.locator(".kvlab-player").focus()
        page.keyboard.press(key)
        assert page.evaluate("heard.at(-1)[1]") is True, key


def test_escape_gives_the_focus_back(open_player: Any, trace_named: Any) -> None:
    page = open_player(trace_named("figure-5"))
    page.evaluate("document.getElementById('root').tabIndex = 0")  # a notebook's cell
    page.locator("[data-control=forward]").focus()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "root"


def test_few_stops_to_the_arrow_and_out(open_player: Any, trace_named: Any) -> None:
    """With a question open, which is when there is most to press."""
    trace = trace_named("figure-4")
    at = event_cursor(trace, "preempted") - 1
    page = open_player(trace, cursor=at, predict=True, link="hash")
    stops = []
    for _ in range(60):
        page.keyboard.press("Tab")
        stops.append(
            page.evaluate(
                "document.activeElement.dataset.control ?? document.activeElement.tagName"
            )
        )
        if stops[-1] == "BODY":
            break
    assert stops.index("forward") < 10
    assert len(stops) < 30


def test_keys_on_controls(open_player: Any, trace_named: Any) -> None:
    """The slider moves by events, the space bar presses a button, and focus stays where it was."""
    page = open_player(trace_named("figure-5"))
    page.locator("input[type=range]").focus()
    page.keyboard.press("Shift+ArrowRight")
    assert cursor(page) == 1
    value = page.locator("input[type=range]").get_attribute("aria-valuetext")
    assert value == "event 1, step 1", "how long the run is comes with its end"
    page.locator("[data-control=event]").focus()
    page.keyboard.press(" ")
    assert cursor(page) == 2
    page.keyboard.press("End")
    active = page.evaluate("document.activeElement.className")
    assert active == "kvlab-player", "a button that loses its use does not take the focus with it"
    page.keyboard.press("Home")
    assert cursor(page) == 0


def test_playing_moves_and_stops_at_the_end(open_player: Any, trace_named: Any) -> None:
    page = open_player(trace_named("figure-5"), start=0, stop=2)
    page.locator("select").select_option("4")
    page.locator("[data-control=play]").click()
    page.wait_for_function("player.cursor === 2")
    page.wait_for_selector("[data-control=play][aria-pressed=false]")


def test_one_polite_sentence_a_move(open_player: Any, trace_named: Any) -> None:
    page = open_player(trace_named("figure-5"))
    assert page.locator("[aria-live=polite]").count() == 1
    sentence = page.locator("[aria-live=polite]")
    page.evaluate("window.live = document.querySelector('[aria-live]')")
    page.locator("[data-control=event]").click()
    assert sentence.inner_text().startswith("Step 1 begins")
    assert page.evaluate("window.live === document.querySelector('[aria-live]')")


def test_hostile_text_stays_text(open_player: Any, trace_named: Any) -> None:
    markup = '<img src=x onerror="window.struck = true">'
    trace = copy.deepcopy(trace_named("figure-5"))
    trace["tokens"] = dict.fromkeys(trace["tokens"], markup)
    trace["scenario"]["title"] = markup
    text = re.sub(r'"A"', '"<b>A</b>"', json.dumps(trace))
    page = open_player(json.loads(text), cursor=40, title=markup)
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert page.locator("#root img, #root b b").count() == 0
    assert page.evaluate("window.struck") is None
    assert markup in page.locator("h2").inner_text()
    chip = page.locator(".k-chip").first
    chip.hover()
    assert markup in chip.get_attribute("data-tip")


@pytest.mark.parametrize("name", FIGURES)
def test_no_width_overflows(open_player: Any, trace_named: Any, name: str) -> None:
    trace = trace_named(name)
    page = open_player(trace)
    for width in (360, 390, 800, 1240):
        page.set_viewport_size({"width": width, "height": 860})
        widest = page.evaluate(
            """(events) => {
                let widest = 0;
                for (let at = 0; at <= events; at += 7) {
                    player.goto(at);
                    widest = Math.max(widest, document.documentElement.scrollWidth);
                }
                return widest;
            }""",
            len(trace["events"]),
        )
        assert widest <= width


def test_a_narrow_player_stacks_and_keeps_its_buttons_in_reach(
    open_player: Any, trace_named: Any
) -> None:
    page = open_player(trace_named("figure-4"), width=360)
    tops = page.evaluate(
        """() => ["guide", "memory", "host", "model", "requests", "time", "transport"]
            .map((name) => document.querySelector(".k-" + name).getBoundingClientRect().top)"""
    )
    assert tops == sorted(tops)
    bar = page.locator(".k-keys").bounding_box()
    assert bar["y"] + bar["height"] <= 860


def test_touch_targets(open_player: Any, trace_named: Any) -> None:
    page = open_player(trace_named("figure-2"), width=390, start=3, stop=30)
    for box in page.locator(".k-transport :is(button, select, input)").all():
        size = box.bounding_box()
        if size:
            assert size["height"] >= 44
            assert size["width"] >= 44


CONTRAST = """
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const paint = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b]
    .map((value) => value / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
    .reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);
  const poor = [];
  const walker = document.createTreeWalker(document.querySelector(".kvlab-player"), 4);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || !element.checkVisibility()) continue;
    if (element.closest("[aria-disabled], :disabled, option, style")) continue;
    const grounds = [];
    for (let up = element; up; up = up.parentElement) {
      grounds.unshift(getComputedStyle(up).backgroundColor);
    }
    const ground = paint(["white", ...grounds]);
    const ink = paint(["white", ...grounds, getComputedStyle(element).color]);
    const [low, high] = [light(ground), light(ink)].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) poor.push(`${ratio.toFixed(2)} ${element.className} ${node.data}`);
  }
  return poor;
}
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["figure-4", "figure-5"])
def test_contrast(open_player: Any, trace_named: Any, theme: str, name: str) -> None:
    """Every text has 4.5:1 against its ground, at every ninth cursor and in the sheets."""
    trace = trace_named(name)
    page = open_player(trace, theme=theme)
    assert page.locator(".kvlab-player").get_attribute("data-theme") == theme
    for at in range(0, len(trace["events"]) + 1, 9):
        page.evaluate("(cursor) => player.goto(cursor)", at)
        assert page.evaluate(CONTRAST) == []
    for names in (("more", "openLegend"), ("help",)):
        for name in names:
            page.locator(f"[data-act={name}]").click()
        assert page.evaluate(CONTRAST) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_contrast_of_every_owner(open_player: Any, random_run: Any, theme: str) -> None:
    trace = next(t for t in map(random_run, range(12)) if len(t["requests"]) >= 6)
    page = open_player(trace, theme=theme)
    for at in range(0, len(trace["events"]) + 1, 17):
        page.evaluate("(cursor) => player.goto(cursor)", at)
        assert page.evaluate(CONTRAST) == []


def test_the_host_decides_the_theme(open_player: Any, trace_named: Any) -> None:
    page = open_player(trace_named("figure-1"), theme="light")
    root = page.locator(".kvlab-player")
    page.evaluate("document.body.setAttribute('data-jp-theme-light', 'false')")
    page.wait_for_function("document.querySelector('.kvlab-player').dataset.theme === 'dark'")
    page.evaluate("document.body.setAttribute('data-jp-theme-light', 'true')")
    page.wait_for_function("document.querySelector('.kvlab-player').dataset.theme === 'light'")
    assert root.count() == 1


def test_a_trace_that_does_not_fit_shows_a_card(open_player: Any) -> None:
    page = open_player('{"format": "something else"}')
    assert "cannot show this run" in page.locator("[role=alert]").inner_text()


def test_two_players_do_not_touch_each_other(open_player: Any, trace_named: Any) -> None:
    page = open_player(trace_named("figure-5"), cursor=10)
    page.evaluate(
        """([trace, words]) => {
            const place = document.body.appendChild(document.createElement("div"));
            window.other = kvlab.mount(place, trace, { cursor: 3, words });
        }""",
        [packed(trace_named("figure-4")), load_words()],
    )
    page.locator("[data-control=event]").first.click()
    assert page.evaluate("[player.cursor, other.cursor]") == [11, 3]
    page.evaluate("other.destroy()")
    assert page.locator(".kvlab-player").count() == 1


def test_a_detached_player_moves_and_comes_back(open_player: Any, trace_named: Any) -> None:
    """A windowed notebook takes outputs out of the page while they are out of sight."""
    page = open_player(trace_named("figure-5"))
    page.evaluate("window.root = document.getElementById('root'); root.remove()")
    page.evaluate("player.goto(30)")
    page.evaluate("document.body.append(root)")
    assert free(page) == 2


@pytest.mark.parametrize("seed", [0, 1, 2, 4])
def test_every_cursor_can_be_drawn(open_player: Any, random_run: Any, seed: int) -> None:
    trace = random_run(seed)
    page = open_player(trace)
    page.evaluate(
        "(events) => { for (let at = 0; at <= events; at += 1) player.goto(at); }",
        len(trace["events"]),
    )
    assert cursor(page) == len(trace["events"])
    assert page.locator("[role=alert]").count() == 0


def test_the_widget_speaks_with_its_model(
    open_player: Any, open_widget: Any, trace_named: Any
) -> None:
    """The kernel hears where the reader came to rest, once; its own changes come in at once."""
    page = open_player(trace_named("figure-5"))
    open_widget(page, trace_named("figure-5"))
    page.locator(".kvlab-player").focus()
    for _ in range(5):
        page.keyboard.press("Shift+ArrowRight")
    page.wait_for_function("saved.length > 0")
    assert page.evaluate("saved.map((state) => state.cursor)") == [5]
    page.evaluate("model.change('cursor', 30)")
    assert cursor(page) == 30
    page.evaluate("model.change('stop', 40)")
    page.keyboard.press("End")
    assert cursor(page) == 40
    page.evaluate("model.change('title', 'Another title')")
    assert page.locator("h2").inner_text() == "Another title"
    page.evaluate(
        "(text) => { model.set('stop', null); model.change('packed', model.pack(text)); }",
        base64.b64encode(pack(trace_named("figure-4"))).decode(),
    )
    page.wait_for_function("document.querySelector('.k-pill').innerText === 'swap'")
    page.evaluate("cleanup()")
    assert page.locator(".kvlab-player").count() == 0
    assert page.evaluate("model.listeners.size") == 0


def test_a_widget_whose_trace_cannot_be_read_shows_a_card(
    open_player: Any, open_widget: Any, trace_named: Any
) -> None:
    page = open_player(trace_named("figure-5"))
    open_widget(page, b"no trace")
    assert "cannot show this run" in page.locator("[role=alert]").inner_text()


def test_the_hosts_ground_decides_the_theme(open_player: Any, trace_named: Any) -> None:
    """Also when the widget is rendered before it has a place in the page."""
    page = open_player(trace_named("figure-1"), theme="light")
    page.evaluate(
        """([trace, words]) => {
            player.destroy();
            document.body.style.setProperty("--jp-layout-color1", "#212121");
            const place = document.createElement("div");
            window.late = kvlab.mount(place, trace, { words });
            document.body.append(place);
        }""",
        [packed(trace_named("figure-1")), load_words()],
    )
    page.wait_for_function("late.element.dataset.theme === 'dark'")
    assert page.evaluate(CONTRAST) == []


def test_a_swap_that_became_a_recomputation_is_said_beside_the_method(open_player: Any) -> None:
    """The pool of the CPU has no block, so that B, by method swap, is recomputed."""
    prompts = [f"requests.{id}.prompt=[1, 2, 3, 4, 5, 6, 7]" for id in "AB"]
    scenario = load_scenario("figure-4", ["model=null", "engine.host_blocks=0", *prompts])
    trace = run_scenario(scenario).trace.document
    at = next(i for i, event in enumerate(trace["events"]) if event["kind"] == "preempted")
    page = open_player(trace, cursor=at)
    pills = page.locator(".k-pill")
    assert pills.all_inner_texts() == ["swap", "stand-in tokens"]
    page.locator("[data-control=event]").click()
    assert pills.nth(1).inner_text() == "1 of 1 preemption: recompute instead"
    page.evaluate("player.destroy()")
