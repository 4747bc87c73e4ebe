"""For everyone: axe, contrast settings, greyscale, projector, tables, widths, a second language."""

from __future__ import annotations

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

import kvlab.draw
from kvlab.draw.packed import packed
from kvlab.draw.player import Player
from kvlab.trace import replay
from kvlab.trace.narration import FIELD, languages, load_words, narrate

Document = dict[str, Any]
JS = Path(kvlab.draw.__file__).parent / "js"
TESTS = Path(__file__).resolve().parents[1]


def after(trace: Document, kind: str, **fields: Any) -> int:
    for at, event in enumerate(trace["events"]):
        if event["kind"] == kind and fields.items() <= event.items():
            return at + 1
    raise AssertionError(f"no {kind} with {fields}")


# axe-core


@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1240])
def test_axe(open_player: Any, trace_named: Any, violations: Any, width: int, theme: str) -> None:
    trace = trace_named("figure-4")
    page = open_player(trace, width=width, theme=theme, predict=True, presenter=True, link="hash")
    page.evaluate("document.documentElement.lang = 'en'; document.title = 'A player'")
    assert violations(page) == []
    for at in (after(trace, "preempted") - 1, after(trace, "swap_out_started"), 64):
        page.evaluate("(at) => player.goto(at)", at)
        assert violations(page) == [], at
    for steps in (
        ["more", "openKeys"],
        ["more", "openLegend"],
        ["more"],
        ["more", "terms"],
        ["more", "results"],
    ):
        for name in steps:
            page.locator(f"[data-act={name}]").click()
        assert violations(page) == [], steps
        page.keyboard.press("Escape")
    page.locator("[data-block='0']").click()
    assert violations(page) == []
    page.locator(".kvlab-player").focus()
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    assert violations(page) == []


# Contrast settings, greyscale, projector, widths


@pytest.mark.browser
def test_high_contrast(open_player: Any, trace_named: Any) -> None:
    """With the system's own few colours: what is filled, free, written now can be told apart."""
    trace = trace_named("figure-5")
    page = open_player(
        trace,
        cursor=after(trace, "kv_written", id="A", block=2),
        page_options={"forced_colors": "active"},
    )
    look = page.evaluate(
        """() => {
            const style = (selector) => getComputedStyle(document.querySelector(selector));
            return {
                filled: style("[data-cell=filled]").borderTopWidth,
                ghost: style("[data-cell=ghost]").borderTopStyle,
                now: style("[data-cell][data-now]").outlineStyle,
                block: style("[data-status=free]").borderTopStyle,
                bar: style("[data-kv=gpu] .k-kv").backgroundColor,
                none: style("[data-kv=none] .k-kv").backgroundColor,
            };
        }"""
    )
    assert (look["filled"], look["ghost"], look["block"]) == ("2px", "dashed", "dashed")
    assert look["now"] == "solid"
    assert look["bar"] != look["none"]


@pytest.mark.browser
def test_owners_differ_without_colour(open_player: Any, random_run: Any) -> None:
    """In greyscale no two requests look the same: another pattern or another shape, and a letter."""
    trace = next(t for t in map(random_run, range(40)) if len(t["requests"]) >= 6)
    page = open_player(trace, cursor=len(trace["events"]))
    page.evaluate("document.body.style.filter = 'grayscale(1)'")
    cards = page.locator(".k-card")
    looks = [
        (card.get_attribute("data-pattern"), card.locator(".k-badge").first.inner_text())
        for card in cards.all()[:6]
    ]
    assert len({pattern for pattern, _ in looks}) == 6
    assert len({letter for _, letter in looks}) == 6
    drawn = page.evaluate(
        """() => [0, 1, 2, 3, 4, 5].map((pattern) => {
            const el = document.querySelector(".k-body").appendChild(document.createElement("span"));
            el.className = "k-cell";
            el.dataset.cell = "filled";
            el.dataset.hue = "0";
            el.dataset.pattern = pattern;
            const image = getComputedStyle(el).backgroundImage;
            el.remove();
            return image;
        })"""
    )
    assert len(set(drawn)) == 6


@pytest.mark.browser
@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("width", [360, 390, 620, 800, 980, 1240, 1920, 2560, 3840])
def test_every_width(open_player: Any, trace_named: Any, width: int, language: str) -> None:
    trace = trace_named("figure-4")
    page = open_player(trace, width=width, language=language, predict=True)
    for state in ({}, {"table": True}, {"projector": True}):
        page.evaluate(
            """([trace, words, state]) => {
                player.destroy();
                window.player = kvlab.mount(root, trace, { words, state, predict: true });
            }""",
            [packed(trace), load_words(language), state],
        )
        for at in range(0, len(trace["events"]) + 1, 9):
            page.evaluate("(at) => player.goto(at)", at)
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, (state, at)


# Tables


@pytest.mark.browser
@pytest.mark.parametrize("name", ["figure-4", "figure-5"])
def test_the_picture_as_tables(open_player: Any, trace_named: Any, name: str) -> None:
    trace = trace_named(name)
    page = open_player(trace)
    page.locator("[data-act=more]").click()
    page.locator("[data-act=table]").click()
    page.keyboard.press("Escape")
    assert page.locator(".k-pool").count() == 0
    state = replay.state_at(trace, 40)
    page.evaluate("player.goto(40)")
    pool = page.locator(".k-as-tables table").first
    assert pool.locator("caption").inner_text() == (
        f"GPU pool: {state['free']} of {len(state['blocks'])} blocks free"
    )
    rows = pool.locator("tbody tr")
    assert rows.count() == len(state["blocks"])
    for at, block in enumerate(state["blocks"]):
        cells = rows.nth(at).locator("th, td").all_inner_texts()
        assert cells[0] == f"P{at}"
        assert cells[2] == (", ".join(block["owners"]) or "–")
    requests = page.locator(".k-as-tables table").last.locator("tbody tr")
    for at, request in enumerate(state["requests"].values()):
        cells = requests.nth(at).locator("td").all_inner_texts()
        assert cells[1:5] == [
            str(request["history"]), str(request["kv"]), str(len(request["table"])),
            str(request["delivered"]),
        ]  # fmt: skip
    assert page.locator("th[scope=col]").count() > 10


# Languages


@pytest.fixture(scope="module")
def samples() -> list[Document]:
    """Events of every kind, in every variant: those of the narration's own test."""
    name = "events_of_every_kind"
    spec = spec_from_file_location(name, TESTS / "trace" / "test_narration.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    found: list[Document] = module.samples()
    return found


def names_in(words: Any) -> dict[str, Any]:
    return {part: set(words[part]) for part in ("events", "player", "terms")} | {
        f"map {name}": set(values) for name, values in words["maps"].items()
    }


def fields_in(template: str) -> set[str]:
    return {match[1] for match in FIELD.finditer(template)}


def test_every_language_has_every_string() -> None:
    english = load_words("en")
    assert {"de", "en"} <= set(languages())
    for language in languages():
        words = load_words(language)
        assert words["language"] == language
        assert names_in(words) == names_in(english)
        for part in ("events", "player"):
            for name, template in words[part].items():
                assert template.strip(), name
                assert fields_in(template) <= fields_in(english[part][name]), (language, name)
                for match in FIELD.finditer(template):
                    spec = match[2]
                    known = (None, "list", "P", "H", *words["forms"], *words["maps"])
                    assert spec in known, (language, name, spec)
        for name, term in words["terms"].items():
            assert term["name"], name
            assert term["words"], name
            assert term["text"].endswith("."), name


@pytest.mark.parametrize("language", languages())
def test_every_sentence_is_a_sentence(samples: list[Document], language: str) -> None:
    words = load_words(language)
    for event in samples:
        sentence = narrate(event, words)
        assert sentence
        assert not re.search(r"[{}!]|None|  ", sentence), sentence
        assert sentence[-1] == ".", sentence


def test_german_is_german(samples: list[Document]) -> None:
    english, german = load_words("en"), load_words("de")
    same = {
        name
        for name, text in german["player"].items()
        if text == english["player"][name] and re.search("[a-z]{3}", re.sub(r"\{[^}]*\}", "", text))
    }
    assert same <= {
        "player", "number_kv", "column_token", "column_position", "block", "table_block",
        "phase_prefill",
    }  # fmt: skip
    for event in samples:
        assert narrate(event, english) != narrate(event, german)


@pytest.mark.browser
def test_german_throughout(open_player: Any, trace_named: Any) -> None:
    """No English is left in what can be read; the sentences are held by test_player_fold."""
    trace = trace_named("figure-4")
    words = load_words("de")
    page = open_player(trace, language="de", predict=True, title="Ein Lauf")
    assert page.locator(".kvlab-player").get_attribute("lang") == "de"
    english = load_words("en")["player"]
    foreign = [
        text
        for name, text in english.items()
        if "{" not in text and len(text) > 5 and text != words["player"][name]
    ]
    for sheet in ("more", "openKeys", "more", "openLegend"):
        page.locator(f"[data-act={sheet}]").click()
        shown = page.locator(".kvlab-player").inner_text()
        left = [text for text in foreign if re.search(rf"(?<!\w){re.escape(text)}(?!\w)", shown)]
        assert left == [], sheet


@pytest.mark.browser
def test_the_language_is_a_trait(open_player: Any, trace_named: Any) -> None:
    player = Player(trace=trace_named("figure-5"), cursor=30, language="de")
    assert player.words["language"] == "de"
    assert "2 von 4 Blöcken frei" in player.as_text()
    assert "Historie 9" in player.as_text()
    player.language = "en"
    assert player.words["language"] == "en"


# Two at once must not share an id


@pytest.mark.browser
def test_ids_are_unique(open_player: Any, trace_named: Any) -> None:
    page = open_player(trace_named("figure-5"), predict=True, cursor=28)
    page.evaluate(
        """([trace, words]) => {
            const place = document.body.appendChild(document.createElement("div"));
            window.other = kvlab.mount(place, trace, { cursor: 28, words, predict: true });
        }""",
        [packed(trace_named("figure-5")), load_words()],
    )
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((el) => el.id)")
    assert len(ids) == len(set(ids))
