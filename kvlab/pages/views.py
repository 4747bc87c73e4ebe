"""The dashboard's texts as HTML. Everything that is not a constant of ours is escaped."""

from __future__ import annotations

import re
from functools import cache
from html import escape
from importlib.resources import files

from kvlab.course.chapters import Chapter
from kvlab.course.compare import made
from kvlab.draw.chart_look import count
from kvlab.runs.limits import Progress
from kvlab.trace.document import Trace
from kvlab.trace.narration import load_words


def style() -> str:
    """The pages' style sheets, as an element."""
    sheets = (
        files(package).joinpath(name)
        for package, name in (("kvlab.pages", "page.css"), ("kvlab.draw", "controls.css"))
    )
    return f"<style>{''.join(sheet.read_text(encoding='utf-8') for sheet in sheets)}</style>"


def title(heading: str, lead: str) -> str:
    """A page's name and what it is for."""
    return f'<h1>{escape(heading)}</h1><p class="kp-lead">{termed(lead)}</p>'


# Words that explain themselves: a button that opens a card of the glossary.


@cache
def term_expression() -> tuple[re.Pattern[str], dict[str, str]]:
    """One expression for every form of every term, longer ones first; and the term of a form."""
    keys = {
        form.lower(): key
        for key, entry in load_words("en")["terms"].items()
        for form in entry["words"]
    }
    forms = sorted(keys, key=len, reverse=True)
    return re.compile(rf"\b({'|'.join(map(re.escape, forms))})\b", re.IGNORECASE), keys


def termed(text: str, seen: set[str] | None = None) -> str:
    """Escaped text in which a term is a button where it stands for the first time; `seen` holds those
    that texts before it had."""
    expression, keys = term_expression()
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


def glossary() -> str:
    """The cards that the terms of all pages open, once for the whole document."""
    return "".join(
        f'<div popover id="kp-term-{key}" class="kp-term-card" role="note">'
        f"<b>{escape(entry['name'])}</b><p>{escape(entry['text'])}</p></div>"
        for key, entry in load_words("en")["terms"].items()
    )


# A chapter


def opening(chapter: Chapter) -> str:
    """Title, question and what to look for."""
    seen: set[str] = set()
    asked = termed(chapter.question, seen)
    looks = "".join(f"<li>{termed(what, seen)}</li>" for what in chapter.look_for)
    return (
        f"<h2>Figure {chapter.number} · {escape(chapter.title)}</h2>"
        f'<p class="kp-question">{asked}</p>'
        f'<p class="kp-lead">Watch</p><ul class="kp-look">{looks}</ul>'
    )


def opens(trace: Trace, start: int) -> str:
    """What has happened before the picture opens; nothing where it opens at the beginning."""
    if not start:
        return ""
    step = trace.events[start - 1]["step"]
    state = trace.state_at(start)
    parts = [
        f"{id} has {count(request['kv'], 'position')} of KV in "
        f"{count(len(request['table']), 'block')} and has sent {count(request['delivered'], 'token')}"
        for id, request in state["requests"].items()
    ]
    return (
        f'<p class="kp-note"><b>The picture opens in the middle of the run,</b> after step {step} of '
        f"{len(trace.steps)}: {termed('; '.join(parts))}. {state['free']} of {len(state['blocks'])} "
        "blocks are free. “Whole run” shows how it came to that.</p>"
    )


def question(text: str) -> str:
    return f"<h3>Predict</h3><p>{termed(text)}</p>"


def verdict(chosen: int, right: int, look: str) -> str:
    """What the run says to a prediction."""
    how = "yes" if chosen == right else "no"
    word = "Right" if chosen == right else "The run says otherwise"
    return (
        f'<p class="kp-verdict" data-right="{how}" role="status">'
        f"{word}: {right}. {escape(look)}</p>"
    )


COVERED = (
    '<p class="kp-lead">Charts, numbers and the answer come once you have predicted; until then the '
    "picture’s timeline is covered, too. You can step through the run all the same.</p>"
)


FURTHER = {
    3: ("compare", "Both methods side by side: Compare"),
    4: ("cost", "What both cost on other hardware: Cost"),
    5: ("delay", "More about what users notice: Delay"),
}


def why(chapter: Chapter) -> str:
    """The chapter's sentence, and the page that goes on from there."""
    page, text = FURTHER.get(chapter.number, ("", ""))
    link = f'<p><a href="?page={page}" data-page="{page}">{escape(text)}</a></p>' if page else ""
    return f"<h3>In one sentence</h3><p>{termed(chapter.why)}</p>{link}"


# What is on show


ON_CPU = (
    " Without a GPU both pools are memory of this computer: one plays the GPU's part, the other the "
    "CPU's, and the copies between them are real."
)


def status(trace: Trace, changed: str = "") -> str:
    """What is on show: recorded or just run, device, model; and what was changed."""
    text = made(trace)
    text = text[0].upper() + text[1:]
    where = ON_CPU if trace.document["run"]["device"] == "cpu" else ""
    extra = f" Changed: {escape(changed)}" if changed else ""
    return f'<p class="kp-status" role="status"><b>On show:</b> {escape(text)}.{extra}{where}</p>'


def two_on_show(runs: list[tuple[str, str]]) -> str:
    """What two runs are on show: (way, how it was made) of each."""
    parts = "; ".join(f"{escape(way)}: {escape(how)}" for way, how in runs)
    return f'<p class="kp-status" role="status"><b>On show:</b> {parts}.</p>'


def opened(name: str, trace: Trace) -> str:
    """On show: a trace that the reader has opened."""
    return (
        f'<p class="kp-status" role="status"><b>On show:</b> {escape(name)}, a trace that you opened: '
        f"{escape(made(trace))}.</p>"
    )


def busy(text: str) -> str:
    """What is being done just now."""
    return f'<p class="kp-status" role="status"><b>Running:</b> {escape(text)}</p>'


def progress(now: Progress, run: int, runs: int) -> str:
    """How far a run has got, in a bar and in words."""
    which = f"run {run} of {runs}, " if runs > 1 else ""
    done = (run - 1 + now.finished / max(1, now.requests)) / runs
    return (
        '<p class="kp-status" role="status"><b>Running:</b> '
        f'<progress value="{done:.3f}" aria-label="Requests finished"></progress> '
        f"{escape(which + str(now))}</p>"
    )


def stopped(resting: str) -> str:
    """Said once a run was stopped; what was on show before still is."""
    return (
        '<p class="kp-status" role="status"><b>Stopped.</b> Nothing of that run is kept.</p>'
        + resting
    )


def card(message: str) -> str:
    """One clear card; nothing where there is no message."""
    if not message:
        return ""
    return f'<div class="kp-card" role="alert"><b>That did not work.</b> {escape(message)}</div>'
