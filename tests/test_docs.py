"""The documents say what is there: links, commands, names, settings, questions, buttons."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from kvlab.cli import app
from kvlab.course.chapters import CHAPTERS
from kvlab.course.question import in_words
from kvlab.course.questions import OF_A_LESSON
from kvlab.course.record import recorded
from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import scenario_from
from kvlab.trace.narration import load_words
from kvlab.trace.ranges import lesson_notes, lesson_range

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
GUIDE = ROOT / "assets" / "docs" / "teaching.md"
DOCUMENTS = (
    README,
    *sorted((ROOT / "assets" / "docs").glob("*.md")),
    ROOT / "assets" / "jupyterhub" / "README.md",
)

TOUR = ROOT / "assets" / "docs" / "engine-tour.md"
LINK = re.compile(r"!?\[([^\]]*)\]\(([^)\s]+)\)")
FILE = re.compile(r"`((?:kvlab|tests|assets|notebooks|\.ci|\.binder)/[^`\s]*)`")
COMMAND = re.compile(r"(?:python3(?:\.\d+)?|py) -m kvlab (.+)")
VARIABLE = re.compile(r"KVLAB_[A-Z_]+")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def rows(text: str, first_column: str) -> list[list[str]]:
    """The rows of the table whose header begins so."""
    _, _, rest = text.partition(f"| {first_column} |")
    lines = rest.splitlines()[2:]
    assert rest, f"no table begins with {first_column}"
    table = []
    for line in lines:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    return table


@pytest.fixture(params=DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def document(request: Any) -> Path:
    return request.param


def test_there_are_documents() -> None:
    assert {path.name for path in DOCUMENTS} >= {"teaching.md", "engine-tour.md", "contributing.md"}


# Links, files and names


def test_every_link_and_file_is_there(document: Path) -> None:
    text = text_of(document)
    linked = [target for _, target in LINK.findall(text) if not target.startswith("http")]
    places = {target: document.parent / target.partition("#")[0] for target in linked}
    gone = [target for target, place in places.items() if not place.exists()]
    gone += [name for name in FILE.findall(text) if not (ROOT / name).exists()]
    assert not gone


@cache
def defined_in(path: Path) -> set[str]:
    """Classes, functions, methods and assigned names of a module, dotted."""
    names: set[str] = set()

    def look(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                names.add(prefix + node.name)
                look(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                names.add(prefix + node.name)
            elif isinstance(node, ast.AnnAssign | ast.Assign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names.update(prefix + one.id for one in targets if isinstance(one, ast.Name))

    look(ast.parse(text_of(path)).body, "")
    return names


def test_every_name_is_defined_in_the_file_that_it_links_to() -> None:
    named = [
        (text.strip("`"), (TOUR.parent / target.partition("#")[0]).resolve())
        for text, target in LINK.findall(text_of(TOUR))
        if text.startswith("`") and ".py" in target and not target.startswith("http")
    ]
    assert len(named) > 50
    for name, path in named:
        assert name in defined_in(path), f"{name} in {path.name}"


def lines_of(path: Path) -> dict[str, int]:
    """The line of each class, function and method of a module, dotted."""
    found: dict[str, int] = {}

    def look(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found[prefix + node.name] = node.lineno
                look(node.body if isinstance(node, ast.ClassDef) else [], f"{prefix}{node.name}.")

    look(ast.parse(text_of(path)).body, "")
    return found


def numbered(document: Path) -> str:
    """The document with the lines that its links to names really have."""

    def right(match: re.Match[str]) -> str:
        name, target = match[1], match[2]
        return f"[`{name}`]({target}#L{lines_of((document.parent / target).resolve())[name]})"

    return re.sub(r"\[`([\w.]+)`\]\(([^)#\s]+\.py)#L\d+\)", right, text_of(document))


def test_every_line_that_the_tour_names_is_where_it_says() -> None:
    """`python tests/test_docs.py` writes the right ones."""
    assert TOUR.read_text("utf-8").count("#L") > 30
    assert numbered(TOUR) == TOUR.read_text("utf-8")


def test_the_reading_is_as_long_as_it_says() -> None:
    """The step, the scheduler, the block tables, the safe swap: lines with text, imports aside."""
    names = ("engine", "scheduler", "kv_cache_manager", "swap")
    read = 0
    for name in names:
        text = text_of(ROOT / "kvlab" / "engine" / f"{name}.py")
        text = re.sub(r"^(from .+ import \([^)]*\)|(from|import) .+)\n", "", text, flags=re.M)
        read += sum(bool(line.strip()) for line in text.splitlines())
    (said,) = re.findall(r"about (\d+) lines to read", text_of(TOUR))
    assert 0.95 < read / int(said) < 1.05
    assert read <= 700


# Commands


def commands(text: str) -> Iterator[str]:
    """What follows `kvlab` in code, in blocks and in a line."""
    for language, block in FENCE.findall(text):
        if not language:
            yield from (found[1] for line in block.splitlines() if (found := COMMAND.search(line)))
    for code in INLINE.findall(FENCE.sub("", text)):
        if found := COMMAND.fullmatch(code) or re.fullmatch(r"kvlab (.+)", code):
            yield found[1]


def parse(command: Any, name: str, words: list[str], parent: Any = None) -> None:
    """Raise a usage error for a command or an option that there is none of; run nothing."""
    if not hasattr(command, "resolve_command"):
        command.make_context(name, words, parent=parent)
        return
    if not words:
        return  # the group itself is meant
    context = command.make_context(name, words, parent=parent)
    of = [*getattr(context, "_protected_args", ()), *context.args]
    found, inner, rest = command.resolve_command(context, of)
    parse(inner, found, rest, context)


def trouble_with(line: str) -> str:
    """Why a command line would be refused; empty: it is understood. Runs nothing."""
    words = ["2" if word == "N" else word for word in shlex.split(line, comments=True)]
    try:
        parse(typer.main.get_command(app), "kvlab", [word for word in words if word != "--help"])
    except typer.TyperException as error:
        # `kvlab run` in a sentence names the command and leaves its argument out.
        mention = type(error).__name__ == "MissingParameter"
        return "" if mention else f"kvlab {line}: {error.format_message()}"
    return ""


def test_every_command_line_is_understood(document: Path) -> None:
    shown = list(commands(text_of(document)))
    assert shown
    assert not [trouble for line in shown if (trouble := trouble_with(line))]


@pytest.mark.parametrize("line", ["serv", "serve --klass 2", "bench speed", "serve --class x"])
def test_a_wrong_command_line_is_found(line: str) -> None:
    assert trouble_with(line)


# Settings and sentences


def sources() -> Iterator[str]:
    """All code and words that can reach a person."""
    for folder, pattern in (
        ("kvlab", "**/*.py"),
        ("kvlab/trace/words", "**/en.json"),
        ("kvlab/pages", "*.js"),
        ("assets/jupyterhub", "*.py"),
    ):
        for path in (ROOT / folder).glob(pattern):
            yield text_of(path)


def test_the_readme_has_every_environment_variable_and_no_other() -> None:
    table = {VARIABLE.search(row[0])[0] for row in rows(text_of(README), "environment variable")}  # type: ignore[index]
    used = {name for text in sources() for name in VARIABLE.findall(text)}
    assert table == used
    mentioned = {name for path in DOCUMENTS for name in VARIABLE.findall(text_of(path))}
    assert mentioned <= used


def test_symptoms_are_the_programs_own_words() -> None:
    first = [row[0] for row in rows(text_of(README), "symptom")]
    first += [row[0] for row in rows(text_of(GUIDE), "what they see")]
    quoted = [words for cell in first for words in re.findall(r"[\"“]([^\"”]+)[\"”]", cell)]
    assert len(quoted) > 14
    everything = "\n".join(sources())
    for words in quoted:
        assert words.replace("3.11", "%d.%d") in everything, words


# The teacher's guide


def test_the_guides_questions_are_the_chapters() -> None:
    table = rows(text_of(GUIDE), "chapter")
    assert len(table) == len(CHAPTERS)
    for one, (number, asks, choices, says) in zip(CHAPTERS, table, strict=True):
        trace = recorded(one.scenario)
        assert int(number) == one.number
        question = one.to_predict(trace)
        assert in_words(question.text, trace, load_words("en")).endswith(asks)
        assert tuple(choices.split(", ")) == question.options
        assert says == question.answer


def test_the_guides_changes_are_the_chapters() -> None:
    named = re.findall(r"\*(Try: [^*]+)\*", text_of(GUIDE))
    assert named == [f"Try: {one.text('change')}" for one in CHAPTERS]


BUTTONS = (
    "Run it now",
    "Start from",
    "Open a file",
    "What if?",
    "Projector",
    "Teacher's notes",
    "Picture as tables",
    "Results",
    "Save as CSV",
    "whole run",
)


@pytest.mark.parametrize("button", BUTTONS)
def test_the_guides_buttons_are_on_the_pages(button: str) -> None:
    assert f"*{button}*" in text_of(GUIDE)
    assert any(f'"{button}"' in source for source in sources())


def test_the_guide_names_every_way_to_ask() -> None:
    (line,) = [line for line in text_of(GUIDE).splitlines() if line.startswith("- `ask`")]
    assert set(OF_A_LESSON) == set(re.findall(r"`([a-z]+_[a-z_]+)`", line))


def scenario_in(path: Path) -> Any:
    (block,) = [block for language, block in FENCE.findall(text_of(path)) if language == "yaml"]
    return scenario_from(yaml.safe_load(block), ROOT, path.name)


def test_the_readmes_scenario_is_one() -> None:
    assert [one["id"] for one in scenario_in(README).document["requests"]] == ["A", "B"]


def test_the_guides_lesson_fits_its_run() -> None:
    trace = run_scenario(scenario_in(GUIDE)).trace
    lesson = trace.document["scenario"]["lesson"]

    def events(entry: dict[str, Any]) -> list[dict[str, Any]]:
        return [event for event in trace.events if entry["at"].items() <= event.items()]

    for question in lesson["questions"]:
        assert events(question), question
        if "options" in question:
            said = events(question)[0][question["answer"]["field"]]
            assert said == 2
            assert said in question["options"]
    assert len(lesson_notes(trace)) == len(lesson["narration"])
    steps = {step["step"] for step in trace.steps}
    assert {note["at"]["step"] for note in lesson["notes"]} <= steps
    opens, stops = lesson_range(trace)
    assert opens == 0
    assert (trace.events[stops - 1]["step"], trace.events[stops - 1]["kind"]) == (
        7,
        "token_delivered",
    )


if __name__ == "__main__":
    TOUR.write_text(numbered(TOUR), encoding="utf-8")
