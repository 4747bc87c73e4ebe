"""What every notebook keeps to: short cells, more prose than code, nothing saved that was run."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import nbformat
import pytest
from committed import BUILD, COURSE, FIGURES, FOLDER, read

from kvlab.course.chapters import CHAPTERS

EVERY = [*COURSE, *BUILD, FOLDER / "dashboard.ipynb"]
every = pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
lessons = pytest.mark.parametrize("path", [*COURSE, *BUILD], ids=lambda path: path.stem)
figures = pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)


TOP = re.compile(
    r"\*\*(?P<minutes>\d+) minutes · (?P<figure>[^*]+)\.\*\* After this notebook you can"
)


def code_lengths(path: Path) -> list[int]:
    return [len(c.source.splitlines()) for c in read(path).cells if c.cell_type == "code"]


def test_there_is_one_notebook_a_figure():
    assert len(FIGURES) == len(CHAPTERS) == 5


@every
def test_is_valid_and_clean(path: Path):
    notebook = read(path)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.metadata.kernelspec.name == "python3"
    assert set(notebook.metadata) == {"kernelspec", "language_info"}  # no widget state
    for cell in notebook.cells:
        assert set(cell.metadata) <= ({"nbgrader"} if path in BUILD else set())
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@every
def test_ids_are_fixed_and_text_is_stable(path: Path):
    ids = [cell.id for cell in read(path).cells]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z0-9]{2}-\d\d", id) for id in ids)
    text = path.read_text("utf-8")
    again = json.dumps(json.loads(text), indent=1, ensure_ascii=False, sort_keys=True)
    assert text == again + "\n"


@lessons
def test_cells_are_short(path: Path):
    lengths = code_lengths(path)
    assert statistics.median(lengths) <= 5
    assert max(lengths) <= 25


@lessons
def test_more_prose_than_code(path: Path):
    words = {"code": 0, "markdown": 0}
    for cell in read(path).cells:
        words[cell.cell_type] += len(cell.source.split())
    assert words["markdown"] > 3 * words["code"]


@lessons
def test_opens_with_minutes_figure_and_goals(path: Path):
    opening = read(path).cells[0].source
    number = int(path.stem[:2])
    assert opening.startswith(f"# {number} · ")
    match = TOP.search(opening)
    assert match
    if path in FIGURES:
        assert match["figure"] == f"Figure {number} of the article"
    assert opening.count("\n- ") >= 3


def test_the_map_of_the_course_is_right():
    """The rows in notebook 00 name every other notebook with its minutes and its figure."""
    opening = {path.name: TOP.search(read(path).cells[0].source) for path in [*COURSE[1:], *BUILD]}
    course = next(c.source for c in read(COURSE[0]).cells if c.source.startswith("## The course"))
    rows = re.findall(r"^\| \[.*\]\((.*)\) \| .* \| (\d+) \| (.*) \|$", course, re.MULTILINE)
    assert [name for name, _, _ in rows] == list(opening)
    for name, minutes, figure in rows:
        match = opening[name]
        assert match
        assert minutes == match["minutes"]
        assert match["figure"].startswith("no figure" if figure == "–" else figure)


@lessons
def test_solutions_stand_apart(path: Path):
    """Folded away, behind the questions."""
    cells = [cell.source for cell in read(path).cells]
    asks = max(at for at, text in enumerate(cells) if "## Check yourself" in text)
    (told,) = (at for at, text in enumerate(cells) if text.startswith("## Solutions"))
    assert asks < told >= len(cells) - 2
    assert cells[told].count("<details>") == cells[told].count("</details>") == 1
    questions = sum(text.startswith("check(") for text in cells)
    assert cells[told].count("\n- ") >= questions


@pytest.mark.parametrize("path", [COURSE[0], *COURSE[7:]], ids=lambda path: path.stem)
def test_goes_from_question_to_check(path: Path):
    prose = "\n".join(c.source for c in read(path).cells if c.cell_type == "markdown")
    beats = ["## The question", "## Predict", "## Change one thing", "## Check yourself"]
    places = [prose.index(beat) for beat in beats]
    assert places == sorted(places)
    for beat in ("## Run", "## What you saw", "**In one sentence.**"):
        assert beat in prose
    assert "!" not in prose


@figures
def test_keeps_the_rhythm(path: Path):
    notebook = read(path)
    prose = "\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    beats = ["minutes", "## The question", "## Predict", "## Run", "## Look", "## What you saw"]
    beats += ["**In one sentence.**", "## Change one thing", "## Check yourself"]
    places = [prose.index(beat) for beat in beats]
    assert places == sorted(places)
    assert "!" not in prose
    assert CHAPTERS[FIGURES.index(path)].text("why") in prose


@lessons
def test_links_lead_to_notebooks(path: Path):
    for cell in read(path).cells:
        for target in re.findall(r"\]\(([^)]+)\)", cell.source):
            assert (FOLDER / target).is_file()
