"""The page's state is Python's at every cursor, in every direction, and so is every sentence."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from kvlab.draw.packed import packed_json
from kvlab.trace import replay
from kvlab.trace.changes import as_json
from kvlab.trace.narration import load_words, narrate

pytestmark = pytest.mark.browser

Document = dict[str, Any]
TRACES = sorted((Path(__file__).resolve().parents[2] / "assets" / "traces").glob("*.json"))
STATES = """
(cursors) => {
  const replay = kvlab.replay(model.trace);
  return `[${cursors.map((cursor) => JSON.stringify(replay.to(cursor))).join(",")}]`;
}
"""


def read(path: Path) -> Document:
    document: Document = json.loads(path.read_text("utf-8"))
    return document


def prepare(page: Any, trace: Document, language: str = "en") -> None:
    """The packed trace, made ready in the page as a player makes it."""
    load = "([text, words]) => { window.model = kvlab.prepare(JSON.parse(text), words); }"
    page.evaluate(load, [packed_json(trace), load_words(language)])


def equal_everywhere(page: Any, trace: Document) -> None:
    """Forwards, backwards, by jumps. JSON texts travel faster than objects."""
    expected = [json.loads(json.dumps(as_json(state))) for state in replay.states(trace)]
    cursors = list(range(len(expected)))
    jumps = random.Random(7).choices(cursors, k=min(40, len(cursors)))
    prepare(page, trace)
    for order in (cursors, cursors[::-1], jumps):
        found = json.loads(page.evaluate(STATES, order))
        assert found == [expected[cursor] for cursor in order]


@pytest.fixture
def page(open_player: Any, trace_named: Any) -> Any:
    return open_player(trace_named("figure-5"))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_recorded_traces(page: Any, path: Path) -> None:
    equal_everywhere(page, read(path))


@pytest.mark.parametrize("seed", [1, 4, 13, 37, 61])
def test_random_runs(page: Any, random_run: Any, seed: int) -> None:
    equal_everywhere(page, random_run(seed))


@pytest.mark.parametrize("language", ["en", "de"])
def test_every_sentence(page: Any, random_run: Any, language: str) -> None:
    words = load_words(language)
    for trace in [*map(read, TRACES), *map(random_run, range(4))]:
        prepare(page, trace, language)
        found = page.evaluate("() => model.trace.events.map((event) => model.say(event))")
        assert found == [narrate(event, words) for event in trace["events"]]


def test_an_id_may_be_any_text(page: Any, random_run: Any) -> None:
    trace = random_run(0)
    text = json.dumps(trace).replace('"A"', '"__proto__"').replace('"B"', '"constructor"')
    equal_everywhere(page, json.loads(text))
