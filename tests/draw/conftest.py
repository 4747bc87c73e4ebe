"""Players on pages of their own, without a server and without a network."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import kvlab.draw
from kvlab.draw.packed import pack, packed_json
from kvlab.draw.player import Player
from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import scenario_from
from kvlab.trace.narration import load_words

AXE = Path(kvlab.draw.__file__).parent / "js/node_modules/axe-core/axe.min.js"
TRACES = sorted((Path(__file__).resolve().parents[2] / "assets" / "traces").glob("*.json"))

Document = dict[str, Any]
Open = Callable[..., Any]

MOUNT = """
async ([module, trace, options]) => {
  const url = URL.createObjectURL(new Blob([module], { type: "text/javascript" }));
  window.kvlab = await import(url);
  window.player = kvlab.mount(document.getElementById("root"), JSON.parse(trace), options);
}
"""


MODEL = """
async ([state, words, packed]) => {
  const decode = (text) => Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const values = {
    packed: decode(packed), words, title: "", start: 0, stop: null, cursor: 0, predict: false,
    answers: [], presenter: false, link: "", ...state,
  };
  const listeners = new Map();
  window.saved = [];
  window.sent = [];
  window.model = {
    get: (name) => values[name],
    set: (name, value) => { values[name] = value; },
    save_changes: () => saved.push({ cursor: values.cursor, answers: values.answers }),
    on: (name, run) => listeners.set(name, run),
    off: (name) => listeners.delete(name),
    send: (content) => sent.push(content),
    change: (name, value) => { values[name] = value; listeners.get(`change:${name}`)?.(); },
    hear: (content) => listeners.get("msg:custom")?.(content),
    pack: decode,
    listeners,
  };
  const el = document.body.appendChild(document.createElement("div"));
  el.id = "widget";
  window.cleanup = kvlab.default.render({ model, el });
}
"""


def read(path: Path) -> Document:
    document: Document = json.loads(path.read_text("utf-8"))
    return document


@pytest.fixture
def trace_named() -> Callable[[str], Document]:
    """A recorded trace by name; the test is skipped where it is not there."""

    def find(name: str) -> Document:
        for path in TRACES:
            if path.stem == name:
                return read(path)
        pytest.skip(f"assets/traces has no {name}.json")

    return find


@pytest.fixture
def open_player(new_page: Callable[..., Any], trouble: Any) -> Iterator[Open]:
    """Opens a page with a player: open_player(trace, width=…, theme=…, language=…, **options).

    At the end no page may have complained or asked for anything over the network.
    """

    def open_page(
        trace: Document | str,
        width: int = 1240,
        theme: str = "light",
        motion: str = "reduce",
        page_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        page = new_page(
            viewport={"width": width, "height": 860},
            color_scheme=theme,
            reduced_motion=motion,
            **page_options or {},
        )
        page.set_content('<body style="margin:0"><div id="root"></div></body>')
        options.setdefault("words", load_words(options.pop("language", "en")))
        packed = trace if isinstance(trace, str) else packed_json(trace)
        page.evaluate(MOUNT, [Player._esm, packed, {"css": Player._css, **options}])
        return page

    yield open_page
    assert not trouble, trouble


@pytest.fixture
def open_widget() -> Callable[..., None]:
    """Puts a widget with a model of the test's own in the place of the player: `open_widget(page,
    trace, **traits)`; bytes stand for a trace that cannot be read."""

    def open_in(page: Any, trace: Document | bytes, **state: Any) -> None:
        packed = trace if isinstance(trace, bytes) else pack(trace)
        page.evaluate("player.destroy()")
        page.evaluate(MODEL, [state, load_words(), base64.b64encode(packed).decode()])
        page.wait_for_selector("#widget .kvlab-player")

    return open_in


@cache
def run_drawn_by_chance(seed: int) -> Document:
    """The trace of a run with shortages: another method, victim and size for each seed."""
    draw = random.Random(seed)
    names = "ABCDEFGH"[: draw.randint(2, 8)]
    document = {
        "name": f"random-{seed}",
        "title": "A run drawn by chance",
        "model": None,
        "engine": {
            "num_blocks": draw.randint(7, 12),
            "block_size": draw.randint(1, 4),
            "host_blocks": draw.choice([0, 4, 12]),
            "method": ["recompute", "swap", "pause_only"][seed % 3],
            "victim": draw.choice(["newest", "oldest", "most_computed"]),
            "free_order": draw.choice(["head_first", "tail_first"]),
            "copy_blocks_per_step": draw.choice([None, 1, 2]),
            "prefix_cache": draw.random() < 0.5,
            # From 12 on every ordering is broken that changes which blocks are used when.
            "unsafe": [] if seed < 12 else ["reuse_before_copied", "read_before_copy_in"],
        },
        "requests": [
            {
                "id": name,
                "prompt": [draw.randint(1, 3) for _ in range(draw.randint(1, 7))],
                "max_tokens": draw.randint(1, 7),
                "arrival_step": draw.randint(0, 4),
            }
            for name in names
        ],
    }
    if seed % 2 and seed > 30:  # changed while it runs
        document["actions"] = [
            {"step": draw.randint(1, 4), "next_victim": draw.choice(names)},
            {"step": draw.randint(2, 6), "set": {"method": "swap", "free_order": "tail_first"}},
            {"step": draw.randint(4, 9), "set": {"victim": "random", "method": "recompute"}},
        ]
    return run_scenario(scenario_from(document, Path(), "a random run")).trace.document


@pytest.fixture
def random_run() -> Callable[[int], Document]:
    """A run of the real scheduler, without a model, in a pool too small for its requests."""
    return run_drawn_by_chance


@pytest.fixture
def violations() -> Any:
    """Runs axe-core in a page: rule and element of everything it finds."""
    if not AXE.is_file():
        pytest.skip("axe-core is not installed (npm ci in kvlab/draw/js)")

    def run(page: Any) -> list[str]:
        if not page.evaluate("Boolean(window.axe)"):
            page.evaluate("(source) => { (0, eval)(source); }", AXE.read_text("utf-8"))
        found = page.evaluate(
            """async () => {
                const { violations } = await axe.run(document.querySelector("#root"), {
                    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
                    rules: { region: { enabled: false }, "page-has-heading-one": { enabled: false } },
                });
                const said = ({ html, failureSummary }) => `${html.slice(0, 160)} ${failureSummary}`;
                return violations.flatMap((one) =>
                    one.nodes.map((node) => `${one.id}: ${said(node)}`));
            }"""
        )
        return [str(one) for one in found]

    return run
