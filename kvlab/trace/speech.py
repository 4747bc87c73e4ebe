"""One language of the pages, charts and chapters: `words/pages/<language>.json`, filled in.

The player's own words and every event's sentence stand in `words/<language>.json` (see narration.py,
which also describes the templates). The pages' catalogue has the same keys in every language.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from kvlab.trace.narration import FOLDER, Words, fill, load_words

LANGUAGE = "en"
"""What is spoken where nobody asked for another language."""


class Speech:
    """Texts, numbers and lists in one language.

        speech("top.copy")                      "Copy link"
        speech("chart.span_one", first=3)       "step 3"
        speech.number(20480)                    "20,480", in German "20.480"

    Raises BadInput for a language without words, KeyError for a text that there is not.
    """

    def __init__(self, language: str = LANGUAGE) -> None:
        own = load_words(language)
        pages = read_pages(language)
        self.language = language
        self.pages = pages
        self.words: Words = {**own, "forms": {**own["forms"], **pages["form"]}}

    def __call__(self, key: str, **values: Any) -> str:
        return fill(self.text(key), values, self.words)

    def text(self, key: str) -> Any:
        """What the catalogue has under a key, as it is: `top.copy`, or a list, or a whole group."""
        found: Any = self.pages
        for name in key.split("."):
            found = found[name]
        return found

    def shipped(self, text: str) -> str:
        """A title or a lesson's sentence of a shipped scenario; what is none of ours stays as it is."""
        found: str = self.pages["shipped"].get(text, text)
        return found

    def has(self, key: str) -> bool:
        """Whether the catalogue has the key."""
        try:
            self.text(key)
        except KeyError:
            return False
        return True

    def count(self, number: int, unit: str) -> str:
        """`1 step`, `5 steps`: a unit of the catalogue's `form`s."""
        return fill(f"{{n:{unit}}}", {"n": number}, self.words)

    def listed(self, items: Iterable[object]) -> str:
        """`1, 5 and 1`, however many; at least one."""
        grammar = self.words["grammar"]["list"]
        *before, last = (str(item) for item in items)
        return f"{grammar['between'].join(before)}{grammar['last']}{last}" if before else last

    def number(self, value: float, form: str = "") -> str:
        """A number with the language's point and groups of three; `form` as in Python's format."""
        return localised(
            format(value, form or ("," if isinstance(value, int) else ",g")), self.words
        )


def localised(text: str, words: Words) -> str:
    """Python's `20,480.5` with the signs of a language."""
    grammar = words["grammar"]
    swap = {",": grammar["thousands"], ".": grammar["point"]}
    return "".join(swap.get(sign, sign) for sign in text)


def in_language(document: dict[str, Any], speech: Speech) -> dict[str, Any]:
    """A trace document whose scenario's title and lesson are spoken, where they are of ours."""
    scenario, t = document["scenario"], speech.shipped
    lesson = dict(scenario["lesson"])
    if "about" in lesson:
        lesson["about"] = t(str(lesson["about"]))
    if "narration" in lesson:
        lesson["narration"] = [
            one | {"text": t(str(one["text"]))} if "text" in one else one
            for one in lesson["narration"]
        ]
    return document | {"scenario": scenario | {"title": t(scenario["title"]), "lesson": lesson}}


@cache
def read_pages(language: str) -> Mapping[str, Any]:
    """The pages' catalogue of a language."""
    pages: Mapping[str, Any] = json.loads(
        (FOLDER / "pages" / f"{language}.json").read_text("utf-8")
    )
    return pages


ENGLISH = Speech()
