"""The dashboard's texts as HTML. Everything that is not a constant of ours is escaped."""

from __future__ import annotations

import re
from functools import cache
from html import escape
from importlib.resources import files

from kvlab.course.chapters import Chapter
from kvlab.course.compare import made
from kvlab.runs.limits import Progress
from kvlab.trace.document import Trace
from kvlab.trace.speech import ENGLISH, Speech


def style() -> str:
    """The pages' style sheets, as an element."""
    sheets = (
        files(package).joinpath(name)
        for package, name in (("kvlab.pages", "page.css"), ("kvlab.draw", "controls.css"))
    )
    return f"<style>{''.join(sheet.read_text(encoding='utf-8') for sheet in sheets)}</style>"


def heading(text: str) -> str:
    """The name of a part of a page."""
    return f"<h2>{escape(text)}</h2>"


# Words that explain themselves: a button that opens a card of the glossary.


@cache
def term_expression(speech: Speech) -> tuple[re.Pattern[str], dict[str, str]]:
    """One expression for every form of every term, longer ones first; and the term of a form."""
    keys = {
        form.lower(): key for key, entry in speech.words["terms"].items() for form in entry["words"]
    }
    forms = sorted(keys, key=len, reverse=True)
    return re.compile(rf"\b({'|'.join(map(re.escape, forms))})\b", re.IGNORECASE), keys


def termed(text: str, speech: Speech = ENGLISH, seen: set[str] | None = None) -> str:
    """Escaped text in which a term is a button where it stands for the first time; `seen` holds those
    that texts before it had."""
    expression, keys = term_expression(speech)
    seen = set() if seen is None else seen
    parts, at = [], 0
    for match in expression.finditer(text):
        key = keys[match[0].lower()]
        if key in seen:
            continue
        seen.add(key)
        parts += [
            escape(text[at : match.start()]),
            f'<button type="button" class="kp-term" popovertarget="kp-term-{key}">',
            f"{escape(match[0])}</button>",
        ]
        at = match.end()
    return "".join([*parts, escape(text[at:])])


def glossary(speech: Speech = ENGLISH) -> str:
    """The cards that the terms of all pages open, once for the whole document."""
    return "".join(
        f'<div popover id="kp-term-{key}" class="kp-term-card" role="note">'
        f"<b>{escape(entry['name'])}</b><p>{escape(entry['text'])}</p></div>"
        for key, entry in speech.words["terms"].items()
    )


# A chapter


def opens(trace: Trace, start: int, speech: Speech) -> str:
    """What has happened before the picture opens; nothing where it opens at the beginning."""
    if not start:
        return ""
    state = trace.state_at(start)
    requests = [
        speech(
            "story.opens_request",
            id=id,
            kv=request["kv"],
            blocks=len(request["table"]),
            sent=request["delivered"],
        )
        for id, request in state["requests"].items()
    ]
    return speech(
        "story.opens",
        step=trace.events[start - 1]["step"],
        steps=len(trace.steps),
        requests="; ".join(requests),
        free=state["free"],
        blocks=len(state["blocks"]),
    )


FURTHER = {3: ("compare", "compare"), 4: ("cost", "costs"), 5: ("delay", "delays")}
"""By chapter: the page that goes on from there, and the key of the link's text."""


def further(chapter: Chapter, speech: Speech) -> str:
    """A link to the page that goes on from a chapter, where one does."""
    if chapter.number not in FURTHER:
        return ""
    page, key = FURTHER[chapter.number]
    text = escape(speech(f"story.{key}"))
    return f'<p><a href="?page={page}" data-page="{page}">{text}</a></p>'


def note(text: str) -> str:
    return f'<p class="kp-note">{escape(text)}</p>' if text else ""


# What is on show


def status(trace: Trace, speech: Speech) -> str:
    """What is on show: recorded or run when, device, model."""
    text = made(trace, speech)
    where = speech("live.on_cpu") if trace.document["run"]["device"] == "cpu" else ""
    return on_show(f"{text[0].upper()}{text[1:]}. {where}", speech)


def two_on_show(runs: list[tuple[str, str]], speech: Speech) -> str:
    """What two runs are on show: (way, how it was made) of each."""
    return on_show("; ".join(f"{way}: {how}" for way, how in runs) + ".", speech)


def opened(name: str, trace: Trace, speech: Speech) -> str:
    """On show: a trace that the reader has opened."""
    return on_show(speech("live.opened", name=name, how=made(trace, speech)), speech)


def on_show(text: str, speech: Speech) -> str:
    return said(speech("live.on_show"), escape(text))


def said(lead: str, html: str) -> str:
    """A line that a screen reader hears."""
    return f'<p class="kp-status" role="status"><b>{escape(lead)}</b> {html}</p>'


def busy(text: str, speech: Speech = ENGLISH) -> str:
    """What is being done just now."""
    return said(speech("live.running"), escape(text))


def progress(now: Progress, run: int, runs: int, speech: Speech) -> str:
    """How far a run has got, in a bar and in words."""
    which = speech("live.which", run=run, runs=runs) if runs > 1 else ""
    done = (run - 1 + now.finished / max(1, now.requests)) / runs
    text = speech(
        "live.progress",
        step=now.step,
        finished=now.finished,
        requests=now.requests,
        tokens=now.tokens,
        seconds=speech.number(now.seconds, ",.1f"),
    )
    bar = f'<progress value="{done:.3f}" aria-label="{escape(speech("live.bar"))}"></progress>'
    return said(speech("live.running"), f"{bar} {escape(which + text)}")


def stopped(resting: str, speech: Speech) -> str:
    """Said once a run was stopped; what was on show before still is."""
    return said(speech("live.stopped"), escape(speech("live.nothing_kept"))) + resting


def card(message: str, speech: Speech = ENGLISH) -> str:
    """One clear card; nothing where there is no message."""
    if not message:
        return ""
    lead = escape(speech("page.failed"))
    return f'<div class="kp-card" role="alert"><b>{lead}</b> {escape(message)}</div>'
