"""A dead kernel, closed widgets, hidden outputs, two players, hostile text."""

from __future__ import annotations

import copy
import gc
import json
import re
import weakref
from typing import Any

import pytest

from kvlab.draw.packed import pack, packed
from kvlab.draw.player import Player, answer_heartbeat
from kvlab.errors import BadInput
from kvlab.trace.document import Trace
from kvlab.trace.narration import load_words
from tests.trace.test_mutated import NAMES, mutated

Document = dict[str, Any]

CLOCK = """
() => {
  window.skip = 0;
  const now = Date.now.bind(Date);
  Date.now = () => now() + window.skip;
  window.beats = [];
  window.setInterval = (run) => beats.push(run);
  window.after = (seconds) => { window.skip += seconds * 1000; beats.at(-1)(); };
}
"""


def pong(page: Any) -> None:
    page.evaluate("model.hear({ type: 'pong', beat: sent.at(-1).beat })")


@pytest.mark.browser
def test_a_dead_kernel_is_said_within_ten_seconds(
    open_player: Any, open_widget: Any, trace_named: Any
) -> None:
    page = open_player(trace_named("figure-5"))
    page.evaluate(CLOCK)
    open_widget(page, trace_named("figure-5"))
    assert page.evaluate("sent") == [{"type": "ping", "beat": 1}]
    pong(page)
    for _ in range(20):
        page.evaluate("after(3)")
        pong(page)
    assert page.locator(".k-banner").count() == 0
    for _ in range(3):
        page.evaluate("after(3)")
    banner = page.locator(".k-banner")
    assert "replay only" in banner.inner_text(), "9 s after the last answer"
    page.locator("[data-control=last]").click()
    assert page.locator(".k-where").get_attribute("data-event") == "72"
    pong(page)
    assert banner.count() == 0


@pytest.mark.browser
def test_a_busy_kernel_is_not_dead(open_player: Any, open_widget: Any, trace_named: Any) -> None:
    page = open_player(trace_named("figure-5"))
    page.evaluate(CLOCK)
    open_widget(page, trace_named("figure-5"))
    page.evaluate(
        """() => {
            model.widget_manager = { kernel: { status: "busy", connectionStatus: "connected" } };
            for (let i = 0; i < 10; i += 1) after(3);
        }"""
    )
    assert page.locator(".k-banner").count() == 0
    page.evaluate("model.widget_manager.kernel.connectionStatus = 'disconnected'")
    for _ in range(4):
        page.evaluate("after(3)")
    assert page.locator(".k-banner").count() == 1


@pytest.mark.browser
def test_a_page_that_nobody_touches_lets_the_kernel_sleep(
    open_player: Any, open_widget: Any, trace_named: Any
) -> None:
    page = open_player(trace_named("figure-5"))
    page.evaluate(CLOCK)
    open_widget(page, trace_named("figure-5"))
    pong(page)
    page.evaluate("after(11 * 60)")
    count = page.evaluate("sent.length")
    for _ in range(5):
        page.evaluate("after(3)")
    assert page.evaluate("sent.length") == count
    page.locator("#widget .k-say").hover()
    assert page.evaluate("sent.length") == count + 1
    assert page.locator(".k-banner").count() == 0


@pytest.mark.browser
def test_a_model_that_cannot_send(open_player: Any, open_widget: Any, trace_named: Any) -> None:
    page = open_player(trace_named("figure-5"))
    page.evaluate(CLOCK)
    open_widget(page, trace_named("figure-5"))
    page.evaluate("void (model.send = () => { throw new Error('no comm'); })")
    for _ in range(4):
        page.evaluate("after(3)")
    assert page.locator(".k-banner").is_visible()


def test_python_answers(trace_named: Any) -> None:
    sent: list[Any] = []

    class Page:
        def send(self, content: Any) -> None:
            sent.append(content)

    for content in (
        {"type": "ping", "beat": 7},
        {"type": "ping", "beat": "x"},
        {"type": "ping", "beat": 10**5000},
        {"type": "other"},
        "ping",
        None,
    ):
        answer_heartbeat(Page(), content, [])
    assert sent == [{"type": "pong", "beat": 7}]


def test_a_closed_widget_is_collected(trace_named: Any) -> None:
    players = [Player(trace=trace_named("figure-1")) for _ in range(5)]
    seen = [weakref.ref(player) for player in players]
    for player in players:
        player.close()
    del player, players
    gc.collect()
    assert [ref() for ref in seen] == [None] * 5


@pytest.mark.browser
def test_a_closed_view_is_collected(open_player: Any, trace_named: Any) -> None:
    page = open_player(trace_named("figure-5"))
    page.evaluate("player.destroy()")
    page.evaluate(
        """async ([trace, words]) => {
            window.refs = [];
            for (let i = 0; i < 5; i += 1) {
                const place = document.body.appendChild(document.createElement("div"));
                const one = kvlab.mount(place, structuredClone(trace), { words, cursor: 30 });
                refs.push(new WeakRef(one.element));
                one.destroy();
                place.remove();
            }
            await new Promise((done) => setTimeout(done, 600));
        }""",
        [packed(trace_named("figure-5")), load_words()],
    )
    devtools = page.context.new_cdp_session(page)
    for _ in range(3):
        devtools.send("HeapProfiler.collectGarbage")
    assert page.evaluate("refs.filter((ref) => ref.deref()).length") == 0


@pytest.mark.browser
def test_a_view_that_is_taken_out_and_put_back_shows_the_same(
    open_player: Any, open_widget: Any, trace_named: Any
) -> None:
    """A windowed notebook takes outputs out of the page while they are scrolled out."""
    page = open_player(trace_named("figure-5"))
    open_widget(page, trace_named("figure-5"), cursor=34)
    page.evaluate("window.before = document.querySelector('#widget').innerHTML")
    page.evaluate(
        """() => {
            window.place = document.querySelector("#widget");
            place.remove();
            document.body.append(place);
        }"""
    )
    page.wait_for_timeout(300)
    assert page.evaluate("before === document.querySelector('#widget').innerHTML")
    page.locator("[data-control=event]").click()
    assert page.locator(".k-where").get_attribute("data-event") == "35"


@pytest.mark.browser
def test_playing_ends_when_the_view_is_taken_out(open_player: Any, trace_named: Any) -> None:
    page = open_player(trace_named("figure-5"), state={"speed": 4, "pauses": False})
    page.locator("[data-control=play]").click()
    page.evaluate("window.place = document.querySelector('#root'); place.remove()")
    page.wait_for_timeout(900)
    at = page.evaluate("player.cursor")
    page.wait_for_timeout(500)
    assert page.evaluate("player.cursor") == at
    page.evaluate("document.body.append(place); player.update({})")
    assert page.locator("[data-control=play]").get_attribute("aria-pressed") == "false"


@pytest.mark.browser
@pytest.mark.parametrize(
    "text",
    [
        "<script>window.struck = 1</script>",
        "مرحبا \u202e שלום",
        "👩‍🚀" * 50,
        "a" * 10_000,
        "x\u0000\ud800y",
        "{id} {history:token} $& $1",
    ],
    ids=["markup", "right to left", "emoji", "long", "odd", "template"],
)
def test_any_text_is_text(open_player: Any, trace_named: Any, text: str) -> None:
    trace = copy.deepcopy(trace_named("figure-5"))
    trace["tokens"] = dict.fromkeys(trace["tokens"], text)
    trace["scenario"]["title"] = text
    trace["scenario"]["lesson"] |= {
        "about": text,
        "narration": [{"at": {"step": 3}, "text": text}],
        "notes": {"3": text},
        "questions": [{"at": {"step": 3}, "ask": text, "options": [text, "b"], "answer": "b"}],
    }
    plain = json.dumps(trace)
    name = json.dumps(text[:60])
    trace = json.loads(re.sub(r'"B"', lambda _: name, plain))
    page = open_player(trace, predict=True, presenter=True, width=390)
    for at in (0, 26, 28, 40, 72):
        page.evaluate("(at) => player.goto(at)", at)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.keyboard.press("t")
    assert page.evaluate("window.struck") is None
    assert page.locator("#root script").count() == 0


def test_odd_text_travels(trace_named: Any) -> None:
    trace = copy.deepcopy(trace_named("figure-1"))
    trace["tokens"]["14"] = "x\ud800\u0000👩‍🚀"
    assert pack(trace)


@pytest.mark.long
@pytest.mark.browser
def test_a_changed_trace_that_python_accepts_is_shown_at_every_cursor(
    open_player: Any, trace_named: Any
) -> None:
    """What passes the reader is not refused by the player, and no picture of it fails."""
    page = open_player(trace_named("figure-4"))
    for name in NAMES:
        accepted = [document for seed in range(60) if (document := shown(name, seed))]
        assert accepted
        faults = page.evaluate(
            """([traces, words]) => {
                const faults = [];
                for (const [i, trace] of traces.entries()) {
                    player.destroy();
                    window.player = kvlab.mount(root, trace, { words });
                    if (document.querySelector(".k-failed")) faults.push([i, "refused"]);
                    for (let at = 0; at <= trace.rows.length; at += 1) {
                        try { player.goto(at); } catch (error) { faults.push([i, at, String(error)]); }
                    }
                }
                return faults;
            }""",
            [list(map(packed, accepted[:8])), load_words()],
        )
        assert faults == []


def shown(name: str, seed: int) -> Document | None:
    """The changed trace, where Python accepts it."""
    try:
        return Trace.from_json(mutated(name, seed)[0]).document
    except BadInput:
        return None
