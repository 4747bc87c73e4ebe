"""The dashboard's texts as HTML. Everything that is not a constant of ours is escaped."""

from __future__ import annotations

from html import escape

from kvlab.lessons.chapters import Chapter
from kvlab.lessons.compare import made
from kvlab.trace.document import Trace

TITLE = """<h1>When the KV cache runs out</h1>
<p class="kp-lead">A small server with a real language model has two requests and too few blocks.
Step through what it does, in five chapters: press the black button, or click into the picture and
use the arrow keys.</p>"""


def opening(chapter: Chapter) -> str:
    """Title, question and what to look for."""
    looks = "".join(f"<li>{escape(what)}</li>" for what in chapter.look_for)
    return (
        f"<h2>Figure {chapter.number} · {escape(chapter.title)}</h2>"
        f"<p>{escape(chapter.question)}</p>"
        f'<p class="kp-lead">Watch</p><ul class="kp-look">{looks}</ul>'
    )


def question(text: str) -> str:
    return f"<p><b>Predict.</b> {escape(text)}</p>"


def verdict(chosen: int, right: int, look: str) -> str:
    """What the run says to a prediction."""
    how = "yes" if chosen == right else "no"
    word = "Right" if chosen == right else "The run says otherwise"
    return (
        f'<p class="kp-verdict" data-right="{how}" role="status">'
        f"{word}: {right}. {escape(look)}</p>"
    )


def why(chapter: Chapter) -> str:
    return f"<p><b>In one sentence.</b> {escape(chapter.why)}</p>"


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


def busy(text: str) -> str:
    """What is being done just now."""
    return f'<p class="kp-status" role="status"><b>Running:</b> {escape(text)}</p>'


def card(message: str) -> str:
    """One clear card; nothing where there is no message."""
    if not message:
        return ""
    return f'<div class="kp-card" role="alert"><b>That did not work.</b> {escape(message)}</div>'
