"""All lessons as a folder of files for any web server.

A page a lesson, each as `kvlab export NAME --html` makes it, with links to its neighbours, and an
index: these open from a disk, too. With Pyodide's files also the lab, which runs what it shows in the
visitor's browser. The links are relative, so the folder may lie anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from kvlab.course.chapters import CHAPTERS
from kvlab.course.record import recorded
from kvlab.draw.stills.picture import title_of
from kvlab.errors import BadInput
from kvlab.export.page import PageOptions, digest, page
from kvlab.export.tab.build import PAGE as LAB
from kvlab.export.tab.build import write_lab
from kvlab.files.write import write_whole
from kvlab.runs.scenario import scenario_names
from kvlab.trace.document import Trace
from kvlab.trace.speech import Speech

INDEX = "index.html"
PLACE = "<main>"
"""Where a page's player begins; the links stand before it."""

STYLE = """
:root { color-scheme: light dark; }
body { font: 17px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 46rem; padding: 24px 16px; }
h1 { font-size: 1.7rem; line-height: 1.2; }
h2 { font-size: 1.1rem; margin: 32px 0 8px; }
ul { list-style: none; margin: 0; padding: 0; }
li { border-top: 1px solid GrayText; padding: 10px 0; }
li p { margin: 2px 0 0; }
a { font-weight: 600; }
"""


@dataclass(frozen=True)
class Lesson:
    """One page of the site."""

    name: str
    title: str
    about: str
    trace: Trace

    @property
    def file(self) -> str:
        return f"{self.name}.html"


def write_site(
    folder: Path, options: PageOptions, python: dict[str, bytes] | None = None
) -> Iterator[Path]:
    """Write the site and yield each file when it is there; the index comes last. With `python`, the
    files of Pyodide, the lab is in it.

    `folder` is made where it is missing; other files in it stay. Raises BadInput for a folder that
    cannot be made, a file that cannot be written, a missing recorded run or an unknown language.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"{folder} cannot be made ({error.strerror}): name another folder."
        ) from error
    speech = Speech(options.language)
    figures, others = lessons(speech)
    every = [*figures, *others]
    for at, lesson in enumerate(every):
        earlier = every[at - 1] if at else None
        later = every[at + 1] if at + 1 < len(every) else None
        path = folder / lesson.file
        write_whole(path, linked(page(lesson.trace, options), earlier, later, speech))
        yield path
    if python is not None:
        yield from write_lab(folder, python)
    path = folder / INDEX
    write_whole(path, index(figures, others, speech, with_lab=python is not None))
    yield path


def lessons(speech: Speech) -> tuple[list[Lesson], list[Lesson]]:
    """The figures, in the story's order, and the shipped scenarios beyond them."""
    figures = [
        Lesson(one.scenario, one.heading(speech), one.text("question", speech), trace)
        for one in CHAPTERS
        for trace in [recorded(one.scenario)]
    ]
    told = {one.name for one in figures}
    others = [
        Lesson(name, title_of(trace, speech.language), size_of(trace, speech), trace)
        for name in scenario_names()
        if name not in told
        for trace in [recorded(name)]
    ]
    return figures, others


def size_of(trace: Trace, speech: Speech) -> str:
    pool = trace.document["pool"]
    return speech(
        "site.size",
        requests=len(trace.document["requests"]),
        blocks=pool["num_blocks"],
        tokens=pool["block_size"],
        steps=len(trace.steps),
    )


def linked(whole: str, earlier: Lesson | None, later: Lesson | None, speech: Speech) -> str:
    """A lesson's page with the links to its neighbours above the player."""
    links = [f'<a href="{INDEX}">{escape(speech("site.all"))}</a>']
    if earlier:
        links.append(f'<a rel="prev" href="{earlier.file}">← {escape(earlier.title)}</a>')
    if later:
        links.append(f'<a rel="next" href="{later.file}">{escape(later.title)} →</a>')
    if PLACE not in whole:
        raise RuntimeError("the page has no place for links")
    return whole.replace(PLACE, f"<nav><p>{' | '.join(links)}</p></nav>\n{PLACE}", 1)


def index(
    figures: list[Lesson], others: list[Lesson], speech: Speech, *, with_lab: bool = False
) -> str:
    """The first page: every lesson with what it asks."""
    rules = f"default-src 'none'; style-src {digest(STYLE)}; base-uri 'none'; form-action 'none'"
    title, lead, story, beyond = (
        escape(speech(f"site.{key}")) for key in ("title", "lead", "figures", "beyond")
    )
    lab = f'<p><a href="{LAB}">{escape(speech("site.lab"))}</a></p>' if with_lab else ""
    return f"""<!doctype html>
<html lang="{speech.language}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{rules}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>{title}</h1>
<p>{lead}</p>
{lab}
<h2>{story}</h2>
<ul>
{entries(figures)}
</ul>
<h2>{beyond}</h2>
<ul>
{entries(others)}
</ul>
</main>
</body>
</html>
"""


def entries(some: list[Lesson]) -> str:
    return "\n".join(
        f'<li><a href="{one.file}">{escape(one.title)}</a><p>{escape(one.about)}</p></li>'
        for one in some
    )
