"""A trace that somebody has changed is refused in one sentence, or can be shown at every cursor.

Recorded traces are changed at one random place: a part deleted, told twice, exchanged with its
neighbour, or given another number or type.
"""

from __future__ import annotations

import copy
import json
import math
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvlab.draw.player import Player
from kvlab.errors import BadInput
from kvlab.files import schema as schemas
from kvlab.runs.step_table import step_table
from kvlab.trace import replay
from kvlab.trace.document import Trace
from kvlab.trace.narration import load_words, narrate

TRACES = Path(__file__).resolve().parents[2] / "assets" / "traces"
NAMES = ["figure-4", "shared-stays", "unsafe-reuse", "figure-2"]
OTHERS: list[Any] = [
    None,
    True,
    -1,
    0,
    3,
    1.5,
    math.nan,
    math.inf,
    10**30,
    1e308,
    "",
    "x",
    "\ud83d",
    [],
    {},
    [0],
]

Document = dict[str, Any]


@cache
def text_of(name: str) -> str:
    return (TRACES / f"{name}.json").read_text("utf-8")


def mutated(name: str, seed: int) -> tuple[Document, str]:
    """The trace with one change, and the change in words."""
    draw = random.Random(f"{name} {seed}")
    document: Document = json.loads(text_of(name))
    place: Any = document
    if draw.random() < 0.5:  # most of a trace is numbers of its summary: look at events as often
        place = document["events"]
    depth = draw.choice([0.3, 0.9])
    path: list[Any] = []
    while isinstance(place, dict | list) and place:
        key = draw.choice(list(place) if isinstance(place, dict) else range(len(place)))
        path.append(key)
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or draw.random() < depth:
            break
        place = inner
    how = draw.choice(["delete", "twice", "exchange", "other", "other"])
    if how == "delete":
        del place[key]
        recut(document, place, key, -1)
    elif how == "twice" and isinstance(place, list):
        place.insert(key, copy.deepcopy(place[key]))
        recut(document, place, key, 1)
    elif how == "exchange" and isinstance(place, list) and len(place) > 1:
        place[key - 1], place[key] = place[key], place[key - 1]
    else:
        place[key] = draw.choice(OTHERS)
        how = f"= {place[key]!r}"
    return document, f"{name} {seed}: {'.'.join(map(str, path))} {how}"


def recut(document: Document, place: Any, at: Any, by: int) -> None:
    """Where an event was taken out or told twice, the steps are made to fit again."""
    if place is document.get("events"):
        for step in document["steps"]:
            step["first"] += by if step["first"] > at else 0
            step["end"] += by if step["end"] > at else 0


def show(trace: Trace) -> None:
    """All that Python shows of a trace, at every cursor."""
    events = len(trace.events)
    assert sum(1 for _ in replay.states(trace.document)) == events + 1
    for language in ("en", "de"):
        for event in trace.events:
            assert narrate(event, load_words(language))
    player = Player(trace=trace)
    for cursor in range(0, events + 1, 7):
        player.cursor = cursor
        assert player.as_text()
        assert player.as_html()
    player.close()
    assert step_table(trace.summary)


def refused_or_shown(name: str, seed: int) -> bool:
    """True: shown."""
    document, change = mutated(name, seed)
    try:
        trace = Trace.from_json(document, "trace t")
    except BadInput as error:
        sentence = str(error)
        assert sentence.startswith("trace t: "), change
        assert sentence.isprintable(), change
        assert len(sentence) < 600, change
        return False
    try:
        show(trace)
    except Exception as error:
        raise AssertionError(f"{change}: {error!r}") from error
    return True


@pytest.mark.parametrize("name", NAMES)
def test_a_change_is_refused_or_can_be_shown(name: str) -> None:
    shown = sum(refused_or_shown(name, seed) for seed in range(60))
    assert 0 < shown < 40, "most changes contradict the rest"


@pytest.mark.parametrize("name", NAMES)
def test_every_token_of_a_model_that_writes_has_its_text(name: str) -> None:
    for token in json.loads(text_of(name))["tokens"]:
        document = json.loads(text_of(name))
        del document["tokens"][token]
        with pytest.raises(BadInput, match=rf"^trace t: tokens has no text for token {token}\.$"):
            Trace.from_json(document, "trace t")


def test_the_quick_look_accepts_nothing_that_the_schema_does_not() -> None:
    rule = schemas.schema("trace")["properties"]["summary"]
    verdicts = set()
    for name in NAMES:
        for seed in range(60):
            document, change = mutated(name, seed)
            summary = document.get("summary")
            quick = schemas.surely_fits(summary, rule)
            verdicts.add(quick)
            assert not quick or schemas.validator(rule).is_valid(summary), change
    assert verdicts == {True, False}


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_many_changes(name: str) -> None:
    for seed in range(2_000):
        refused_or_shown(name, seed)
