"""The pages' catalogues: the same texts with the same fields in every language, and no English left."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from kvlab.runs.scenario import load_scenario, scenario_names
from kvlab.trace.narration import FIELD, FOLDER, languages
from kvlab.trace.speech import Speech

SHIPPED = "shipped"
FORM = "form"
ENGLISH = re.compile(
    r"\b(the|and|of|is|are|with|block|blocks|step|steps|free|run|runs|request|requests|token of)\b"
)


def texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(key, text) of every text below a place; of a list its parts."""
    if isinstance(value, str):
        yield path, value
        return
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield from texts(inner, f"{path}.{key}".lstrip("."))


def catalogue(language: str) -> dict[str, str]:
    groups = json.loads((FOLDER / "pages" / f"{language}.json").read_text("utf-8"))
    groups = {name: group for name, group in groups.items() if name not in (SHIPPED, FORM)}
    return dict(texts(groups))


@pytest.mark.parametrize("language", languages())
def test_every_language_has_the_same_texts_with_the_same_fields(language: str):
    english, own = catalogue("en"), catalogue(language)
    assert own.keys() == english.keys()
    forms = Speech(language).words["forms"]
    maps = Speech(language).words["maps"]
    for key, text in own.items():
        fields = {name for name, _ in FIELD.findall(text)}
        assert fields == {name for name, _ in FIELD.findall(english[key])}, key
        for _, spec in FIELD.findall(text):
            known = spec in forms or spec in maps or spec in ("", "list", "P", "H")
            assert known, (key, spec)


def test_no_english_is_left_in_german():
    for key, text in catalogue("de").items():
        said = re.sub("`[^`]*`", "", FIELD.sub("", text))  # commands are the same everywhere
        assert not ENGLISH.search(said), (key, text)


def test_every_shipped_lesson_speaks_german():
    german = Speech("de")
    for name in scenario_names():
        document = load_scenario(name).document
        lesson = document["lesson"]
        notes = [entry["text"] for entry in lesson.get("narration", [])]
        for text in [document["title"], lesson.get("about"), *notes]:
            if text:
                assert german.shipped(str(text)) != str(text), (name, text)


def test_numbers_are_written_in_one_way_a_language():
    english, german = Speech("en"), Speech("de")
    assert (english.number(20_480), german.number(20_480)) == ("20,480", "20.480")
    assert (english.number(1.25), german.number(1.25)) == ("1.25", "1,25")
    assert german.count(20_480, "byte") == "20.480 Byte"
    assert english.count(1, "step") == "1 step"
    assert german.listed([1, 5, 1]) == "1, 5 und 1"
    assert german.listed([3]) == "3"
