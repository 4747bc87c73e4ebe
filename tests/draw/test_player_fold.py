"""The player's fold and words are Python's: equal at every cursor, in every direction."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from kvlab.trace import replay
from kvlab.trace.changes import State, as_json
from kvlab.trace.narration import load_words, narrate

pytestmark = pytest.mark.browser

Document = dict[str, Any]
SAY = "([events, words]) => events.map((event) => kvlab.narrate(event, words))"
TRACES = sorted((Path(__file__).resolve().parents[2] / "assets" / "traces").glob("*.json"))


def read(path: Path) -> Document:
    document: Document = json.loads(path.read_text("utf-8"))
    return document


def plain(state: State) -> State:
    """A state without what the page's own fold does not have."""
    found: State = copy.deepcopy(as_json(state))
    found.pop("cursor")
    for block in found["blocks"]:
        block["damaged"] = block["damaged"] is not None
        block.pop("copy")
    for block in [*found["blocks"], *found["host_blocks"]]:
        for cell in filter(None, block["cells"]):
            cell.pop("event", None)
    return found


def states(trace: Document) -> list[State]:
    return [plain(state) for state in replay.states(trace)]


def equal_everywhere(page: Any, trace: Document) -> None:
    """Forwards, backwards, by jumps and from nothing. JSON texts travel faster than objects."""
    expected = [json.loads(json.dumps(state)) for state in states(trace)]
    cursors = list(range(len(expected)))
    jumps = random.Random(7).choices(cursors, k=min(40, len(cursors)))
    page.evaluate("(text) => { window.trace = JSON.parse(text); }", json.dumps(trace))
    for order in (cursors, cursors[::-1], jumps):
        found = page.evaluate(
            """(cursors) => {
                const replay = kvlab.fold(trace);
                const texts = cursors.map((cursor) => JSON.stringify(replay.to(cursor)));
                return `[${texts.join(",")}]`;
            }""",
            order,
        )
        assert json.loads(found) == [expected[cursor] for cursor in order]
    for cursor in jumps[:5]:
        text = page.evaluate("(cursor) => JSON.stringify(kvlab.stateAt(trace, cursor))", cursor)
        assert json.loads(text) == expected[cursor]


@pytest.fixture
def page(open_player: Any, trace_named: Any) -> Any:
    return open_player(trace_named("figure-5"))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_recorded_traces(page: Any, path: Path) -> None:
    equal_everywhere(page, read(path))


@pytest.mark.parametrize("seed", [*range(12), 37, 61])
def test_random_runs(page: Any, random_run: Any, seed: int) -> None:
    equal_everywhere(page, random_run(seed))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_every_sentence(page: Any, path: Path) -> None:
    trace = read(path)
    words = load_words()
    found = page.evaluate(SAY, [trace["events"], words])
    assert found == [narrate(event, words) for event in trace["events"]]


@pytest.mark.parametrize("seed", range(12))
def test_every_sentence_of_random_runs(page: Any, random_run: Any, seed: int) -> None:
    trace = random_run(seed)
    words = load_words()
    found = page.evaluate(SAY, [trace["events"], words])
    assert found == [narrate(event, words) for event in trace["events"]]


def test_an_id_may_be_any_text(page: Any, random_run: Any) -> None:
    trace = random_run(0)
    text = json.dumps(trace).replace('"A"', '"__proto__"').replace('"B"', '"constructor"')
    equal_everywhere(page, json.loads(text))
