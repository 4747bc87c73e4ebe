"""`kvlab export`: a run as a page, a picture, a storyboard, a trace or a scenario file."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvlab.errors import BadInput
from kvlab.files.write import same_file, write_whole

if TYPE_CHECKING:
    from kvlab.trace.document import Trace


def export(
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO-or-FILE",
            help="A shipped one (its recorded run), a scenario file (run now), or a trace file.",
        ),
    ],
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="One page with the player; opens offline."),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="The picture at the cursor.")
    ] = None,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="The same as an image.")
    ] = None,
    storyboard: Annotated[
        Path | None,
        typer.Option("--storyboard", metavar="FILE", help="A figure's panels, .svg or .png."),
    ] = None,
    race: Annotated[
        Path | None,
        typer.Option(
            "--race", metavar="FILE", help="One page: recompute and swap of it, side by side."
        ),
    ] = None,
    animation: Annotated[
        Path | None,
        typer.Option("--animation", metavar="FILE", help="Its moments in a loop, .svg."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="The recorded run, to be replayed elsewhere."),
    ] = None,
    scenario_file: Annotated[
        Path | None,
        typer.Option("--scenario", metavar="FILE", help="What was run, .yaml or .json."),
    ] = None,
    scorm: Annotated[
        Path | None,
        typer.Option("--scorm", metavar="FILE", help="The page as a SCORM 1.2 package, .zip."),
    ] = None,
    embed: Annotated[
        bool,
        typer.Option("--embed", help="Print an iframe for the --html file, for a page or LMS."),
    ] = False,
    cursor: Annotated[
        int | None, typer.Option("--cursor", metavar="N", help="After so many events.")
    ] = None,
    step: Annotated[
        int | None, typer.Option("--step", metavar="N", help="At the end of this step.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Run it now, with this value changed."),
    ] = None,
    language: Annotated[str, typer.Option("--language", help="en or de.")] = "en",
    title: Annotated[str, typer.Option("--title", help="Instead of the scenario's.")] = "",
    dark: Annotated[bool, typer.Option("--dark", help="Pictures on a dark ground.")] = False,
    predict: Annotated[
        bool, typer.Option("--predict", help="The page asks before it shows.")
    ] = False,
    notes: Annotated[bool, typer.Option("--notes", help="The page shows teacher's notes.")] = False,
    whole: Annotated[
        bool, typer.Option("--whole", help="The page opens the whole run, not the lesson's part.")
    ] = False,
) -> None:
    """Take a run along: a page, a picture, a storyboard, the trace, the scenario."""
    wanted = {
        "--html": html,
        "--svg": svg,
        "--png": png,
        "--storyboard": storyboard,
        "--race": race,
        "--animation": animation,
        "--trace": trace,
        "--scenario": scenario_file,
        "--scorm": scorm,
    }
    files = {option: path for option, path in wanted.items() if path is not None}
    if not files and not embed:
        raise BadInput(f"export: say what to make: {', '.join(wanted)} or --embed.")
    check_files(files, scenario)
    if title.encode("utf-8", "replace").decode() != title:
        raise BadInput("--title: holds bytes that are no text; give it as UTF-8.")
    from kvlab.draw.stills.panels import cursor_at
    from kvlab.export import page
    from kvlab.export.source import both_of, trace_of
    from kvlab.trace.narration import load_words

    load_words(language)  # before a run that may take long
    with contextlib.redirect_stdout(sys.stderr):  # stdout belongs to the snippet
        made = trace_of(scenario, settings or ())
        pair = both_of(scenario, settings or ()) if race else None
    at = cursor_at(made, cursor, step)
    opens = at if cursor is not None or step is not None else None
    options = page.PageOptions(language, title, opens, predict, notes, whole)
    makers = makers_of(made, at, options, dark)
    if pair:
        makers["--race"] = lambda path: page.race_page(*pair, options)
    for option, path in files.items():
        write_whole(path, makers[option](path))
        print(f"kvlab: {option[2:]} written to {path}", file=sys.stderr)
    if embed:
        print(page.snippet(made, options, html.name if html else f"{made.name}.html"))


def check_files(files: dict[str, Path], source: str) -> None:
    """Raise BadInput for places that cannot be meant, before anything is run or written."""
    seen: dict[Path, str] = {}
    for option, path in files.items():
        if path.is_dir() or not path.absolute().parent.is_dir():
            raise BadInput(f"{option} {path}: give a file in a folder that exists.")
        if same_file(path, source):
            raise BadInput(f"{option} {path}: that is the input itself; give another file.")
        whole = path.absolute()
        twice = seen.get(whole) or next((o for p, o in seen.items() if same_file(p, whole)), None)
        if twice:
            raise BadInput(f"{option} {path}: {twice} goes there already; give another file.")
        seen[whole] = option
    endings = {
        "--animation": (".svg",),
        "--scorm": (".zip",),
        "--storyboard": (".svg", ".png"),
        "--scenario": (".yaml", ".yml", ".json"),
    }
    for option, known in endings.items():
        if option in files and files[option].suffix.lower() not in known:
            raise BadInput(f"{option} {files[option]}: the name must end in {' or '.join(known)}.")


def makers_of(
    trace: Trace, cursor: int, options: Any, dark: bool
) -> dict[str, Callable[[Path], str | bytes]]:
    """What goes into the file of each option."""
    from kvlab.draw.stills.animation import animation
    from kvlab.draw.stills.picture import picture
    from kvlab.draw.stills.storyboard import storyboard
    from kvlab.draw.stills.svg import DARK, LIGHT
    from kvlab.export import page

    theme = DARK if dark else LIGHT
    words = {"language": options.language, "title": options.title}

    def board(path: Path) -> str | bytes:
        svg = storyboard(trace, theme, **words)
        return png(svg) if path.suffix.lower() == ".png" else svg

    return {
        "--html": lambda path: page.page(trace, options),
        "--svg": lambda path: picture(trace, cursor, theme, **words),
        "--png": lambda path: png(picture(trace, cursor, theme, **words)),
        "--storyboard": board,
        "--scorm": lambda path: scorm_package(trace, options),
        "--animation": lambda path: animation(trace, theme, **words),
        "--trace": lambda path: trace.as_text(),
        "--scenario": lambda path: scenario_text(trace, path),
    }


def scorm_package(trace: Trace, options: Any) -> bytes:
    """The lesson's page, which asks, as a package for an LMS."""
    from dataclasses import replace

    from kvlab.draw.stills.picture import title_of
    from kvlab.export.page import page
    from kvlab.export.scorm import package

    asks = replace(options, predict=True, scorm=True)
    return package(options.title or title_of(trace, options.language), page(trace, asks))


def quiz(
    form: Annotated[str, typer.Option("--form", help="A or B: the same with other numbers.")] = "A",
    seed: Annotated[int, typer.Option("--seed", help="Another seed, other numbers.")] = 1,
    language: Annotated[str, typer.Option("--lang", "--language", help="en or de.")] = "en",
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="One page; opens offline.")
    ] = None,
    scorm: Annotated[
        Path | None,
        typer.Option("--scorm", metavar="FILE", help="The page as a SCORM 1.2 package, .zip."),
    ] = None,
    results: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            "--results", metavar="BEFORE AFTER", help="Two files of answers: what was learned."
        ),
    ] = None,
) -> None:
    """Twelve questions on what the lab teaches, for before and after; what a class learned."""
    files = {name: path for name, path in (("--html", html), ("--scorm", scorm)) if path}
    if not files and results is None:
        raise BadInput("quiz: say what to make: --html, --scorm or --results.")
    check_files(files, "")
    if results is not None:
        from kvlab.course.quiz.results import compared

        for table in compared(*results):
            print(f"{table.caption}\n\n{table.as_markdown()}\n")
    if files:
        from kvlab.export.quiz import quiz_page, title_of_form
        from kvlab.export.scorm import package

        made = quiz_page(form, seed, language)
        for option, path in files.items():
            title = title_of_form(form, language)
            write_whole(path, made if option == "--html" else package(title, made))
            print(f"kvlab: {option[2:]} written to {path}", file=sys.stderr)


def png(svg: str) -> bytes:
    from kvlab.export.png import as_png

    return as_png(svg)


def scenario_text(trace: Trace, path: Path) -> str:
    """The scenario that was run, every default written out: `kvlab run` takes it."""
    import yaml

    document = trace.document["scenario"]
    if path.suffix.lower() == ".json":
        return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100))
