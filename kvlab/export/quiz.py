"""A form of the quiz as one HTML file: it opens offline, tells the result and saves the answers."""

from __future__ import annotations

from typing import Any

from kvlab.course.quiz.bank import Item, form
from kvlab.export.page import HERE, file, text
from kvlab.trace.narration import fill
from kvlab.trace.speech import Speech


def quiz_page(name: str, seed: int, language: str) -> str:
    """The page of form `name`. Raises BadInput for a form, a seed or a language that is none."""
    speech = Speech(language)
    items = form(name, seed)
    title = title_of_form(name, language)
    keys = ("lead", "student", "check", "open", "result", "right", "wrong", "none", "save", "why")
    asked = [as_json(one, speech) for one in items]
    data = {
        "form": name,
        "seed": seed,
        "words": {key: speech.text(f"quiz.{key}") for key in keys},
        "items": asked,
    }
    style = text(HERE / "page.css") + text(HERE / "quiz.css")
    script = text(HERE / "scorm.js") + text(HERE / "quiz.js")
    without = "".join(f"<p>{one['text']}</p>" for one in asked)
    return file(title, language, data, style, script, without)


def title_of_form(name: str, language: str) -> str:
    """What stands above the page."""
    return Speech(language)("quiz.title", form=name)


def as_json(item: Item, speech: Speech) -> dict[str, Any]:
    """A question as the page puts it; an output is named, all else are numbers."""
    label = "quiz.output" if item.construct == "next_output" else None
    return {
        "construct": item.construct,
        "text": fill(speech.text(f"quiz.items.{item.construct}"), item.values, speech.words),
        "options": list(item.options),
        "labels": [speech(label, n=n) if label else str(n) for n in item.options],
        "right": item.right,
        "misconceptions": item.misconceptions,
    }
