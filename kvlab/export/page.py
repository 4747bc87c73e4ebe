"""A run as one HTML file: the same player, its words, its style and the trace, all inside.

It opens from a disk, with no kernel and no network: the page's policy allows the two scripts and the
style that stand in it, by their hashes, and no request at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import kvlab
from kvlab.draw.packed import packed
from kvlab.draw.race import names_of, race_of, still, words_of
from kvlab.draw.stills.picture import title_of
from kvlab.draw.stills.storyboard import storyboard
from kvlab.draw.stills.svg import LIGHT
from kvlab.errors import BadInput
from kvlab.trace.document import Trace
from kvlab.trace.narration import load_words
from kvlab.trace.ranges import lesson_range
from kvlab.trace.speech import Speech, in_language

HERE = Path(__file__).parent
BUNDLE = HERE.parent / "draw" / "js" / "dist"
EXPORTS = re.compile(r"export\s*\{([^{}]*)\};?\s*$")
LARGEST = 20_000_000  # bytes of a trace; a larger one is no page that a browser opens gladly
EMBEDDED_HEIGHT = 720  # pixels: enough for all of a lesson's player at a width from 860 on


@dataclass(frozen=True, slots=True)
class PageOptions:
    """What a page opens with. `cursor` None: the beginning of the lesson's part."""

    language: str = "en"
    title: str = ""
    cursor: int | None = None
    predict: bool = False
    presenter: bool = False
    whole: bool = False
    """The whole run instead of the lesson's part."""
    scorm: bool = False
    """It tells an LMS its score (kvlab/export/scorm.py)."""


def page(trace: Trace, options: PageOptions) -> str:
    """The file. Raises BadInput for a language without words or a trace too large for a page."""
    words = load_words(options.language)
    start, stop = (0, len(trace.events)) if options.whole else lesson_range(trace)
    title = options.title or title_of(trace, options.language)
    run = {
        "picture": packed(in_language(trace.document, Speech(options.language))),
        "file": base64.b64encode(
            zlib.compress(trace.as_text().encode("utf-8", "replace"))
        ).decode(),
        "words": words,
        "title": options.title,
        "start": start,
        "stop": stop,
        "cursor": start if options.cursor is None else options.cursor,
        "predict": options.predict,
        "presenter": options.presenter,
        "elsewhere": words["player"]["elsewhere"],
    }
    still = storyboard(trace, LIGHT, language=options.language, title=options.title)
    board = base64.b64encode(still.encode()).decode()
    without = f"<p>{escape(words['player']['without_script'])}</p>"
    picture = f'<img alt="{escape(title)}" src="data:image/svg+xml;base64,{board}">'
    style = text(BUNDLE / "player.css") + text(HERE / "page.css")
    lms = text(HERE / "scorm.js") if options.scorm else ""
    script = as_script(text(BUNDLE / "player.js")) + lms + text(HERE / "page.js")
    return file(title, options.language, run, style, script, without + picture)


def race_page(one: Trace, other: Trace, options: PageOptions) -> str:
    """Two runs of one scenario as a race, in one file. Raises BadInput as `page` does."""
    speech = Speech(options.language)
    names = names_of((one, other), speech)
    race = race_of((one, other), names, speech)
    title = options.title or str(race["title"])
    style = "".join(text(path) for path in (BUNDLE / "player.css", BUNDLE / "race.css"))
    script = as_script(text(BUNDLE / "race.js")) + text(HERE / "race.js")
    without = "".join(f"<p>{escape(line)}</p>" for line in still((one, other), names, speech))
    data = {"race": race, "words": words_of(speech)}
    style += text(HERE / "page.css")
    return file(title, options.language, data, style, script, without)


def file(
    title: str, language: str, run: dict[str, Any], style: str, script: str, without: str
) -> str:
    """The file around what it shows: `run` for its script, `without` for a browser without scripts.
    Raises BadInput where that is too large for a page."""
    data = as_data(run)
    if len(data) > LARGEST:
        raise BadInput(
            f"--html: the run's trace has {len(data):,} bytes; a page may have {LARGEST:,}. "
            "Use --trace and open it in a notebook."
        )
    return f"""<!doctype html>
<html lang="{escape(language)}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy(script, style)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="kvlab {escape(kvlab.__version__)}">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<main><h1>{escape(title)}</h1></main>
<noscript>{without}</noscript>
<script type="application/json" id="kvlab-run">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def text(path: Path) -> str:
    """A file with line ends as a browser counts them in a hash."""
    return path.read_text("utf-8").replace("\r\n", "\n")


def as_script(module: str) -> str:
    """The player's module as the first part of a script: what it exports becomes `kvlab`."""
    found = EXPORTS.search(module)
    if found is None:
        raise RuntimeError("the player's bundle does not end with its exports")
    names = (name.split(" as ") for name in found[1].split(","))
    members = ",".join(f"{name[-1].strip()}:{name[0].strip()}" for name in names)
    whole = f"{module[: found.start()]}const kvlab={{{members}}};\n"
    if "</script" in whole.lower() or "<!--" in whole:
        raise RuntimeError("the player's bundle cannot stand in a page")
    return whole


def as_data(value: Any) -> str:
    """JSON that cannot end the element that it stands in."""
    packed = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return packed.replace("<", "\\u003c").encode("utf-8", "replace").decode()


def policy(script: str, style: str) -> str:
    """Nothing from anywhere; of what stands in the page, the one script and the one style."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {digest(script)}",
            f"style-src {digest(style)}",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def snippet(trace: Trace, options: PageOptions, file: str) -> str:
    """HTML that shows an exported page inside another; the place is in its address."""
    scenario = trace.document["scenario"]
    where = f"scenario={scenario['name']}&method={scenario['engine']['method']}"
    if options.cursor is not None:
        where += f"&cursor={options.cursor}"
    return (
        f'<iframe src="{quote(file)}#{escape(where)}" '
        f'title="{escape(options.title or title_of(trace, options.language))}" width="100%" '
        f'height="{EMBEDDED_HEIGHT}" loading="lazy" sandbox="allow-scripts allow-downloads" '
        'style="border: 0"></iframe>'
    )
