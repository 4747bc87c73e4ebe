"""Notebooks 09 to 12 run top to bottom, unsolved and solved; they can be handed out and graded."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from solved import NAMES, TEXT
from typer.testing import CliRunner

from kvlab.cli import app
from kvlab.errors import BadInput
from kvlab.lab.build import grade as grading
from kvlab.server.lab_server import hand_out

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
PATHS = sorted([*FOLDER.glob("09-*.ipynb"), *FOLDER.glob("1[0-2]-*.ipynb")])


def solved(path: Path, text: str = TEXT) -> nbformat.NotebookNode:
    """The notebook with the reference solution in its solution cells."""
    pieces = {
        name: part
        for part in re.split(r"\n\n\n", text)
        for name in NAMES
        if re.match(rf"(class|def) {name}\b", part)
    }
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            number = int(cell.metadata.nbgrader.grade_id.removeprefix("exercise-"))
            cell.source = pieces[NAMES[number - 1]]
    return notebook


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
@pytest.mark.parametrize("how", [pytest.param("unsolved", marks=pytest.mark.long), "solved"])
def test_runs_top_to_bottom(
    path: Path, how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))
    notebook = solved(path) if how == "solved" else nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, kernel_name="python3", timeout=120, resources={"metadata": {"path": tmp_path}}
    ).execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert not [out for out in outputs if out.output_type in ("error", "stream")]
    said = [out.data.get("text/plain", "") for out in outputs if "data" in out]
    right = sum(text.startswith("Right") for text in said)
    todo = sum(text.endswith("still to do.") for text in said)
    points = [text for text in said if text in ("0", "10")]
    # An unsolved check is told by its verdict, and again in place of the picture.
    assert (right, todo, points) == (
        (2, 0, ["10", "10"]) if how == "solved" else (0, 4, ["0", "0"])
    )


def test_cells_for_nbgrader_fit_its_schema() -> None:
    """Version 3: what its validator asks of every marked cell."""
    ids = []
    for path in PATHS:
        for cell in nbformat.read(path, as_version=4).cells:
            if about := cell.metadata.get("nbgrader"):
                assert cell.cell_type == "code"
                assert about["schema_version"] == 3
                assert {"grade", "grade_id", "locked", "solution", "task"} <= set(about)
                assert about["grade"] is not about["solution"]
                assert about["grade"] == ("points" in about) == about["locked"]
                assert re.fullmatch(r"[a-z]+-\d", about["grade_id"])
                ids.append(about["grade_id"])
    assert sorted(ids) == sorted(
        f"{name}-{n}" for n in range(1, 9) for name in ("check", "exercise")
    )


def test_a_folder_is_graded(tmp_path: Path) -> None:
    wrong = TEXT.replace("self.blocks = self.blocks + list(blocks)", "pass")
    for name, notebook in (
        ("ana", solved(PATHS[0])),
        ("ben", solved(PATHS[0], wrong)),
        ("mia", nbformat.read(PATHS[0], as_version=4)),
    ):
        (tmp_path / name).mkdir()
        nbformat.write(notebook, tmp_path / name / PATHS[0].name)
    (tmp_path / "tom.ipynb").write_text("no notebook")
    done = CliRunner().invoke(app, ["grade", str(tmp_path), "--csv", "--seed", "7"])
    rows = list(csv.DictReader(done.stdout.splitlines()))
    found = {(row["notebook"].split("/")[0], row["exercise"]): row["points"] for row in rows}
    assert found == {
        ("ana", "1"): "1",
        ("ana", "2"): "1",
        ("ben", "1"): "1",
        ("ben", "2"): "0",
        ("mia", "1"): "",
        ("mia", "2"): "",
        ("tom.ipynb", ""): "0",
    }
    assert "your pool has" in next(
        row["said"] for row in rows if row["notebook"].startswith("ben/") and row["exercise"] == "2"
    )


def test_what_cannot_be_graded_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no notebook with exercises"):
        grading.grade(tmp_path)
    with pytest.raises(BadInput, match="there is no such folder"):
        grading.grade(tmp_path / "none")
    bad = tmp_path / "exit.ipynb"
    notebook = nbformat.read(PATHS[0], as_version=4)
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = "raise SystemExit"
    nbformat.write(notebook, bad)
    assert [one.said for one in grading.grade(tmp_path)] == ["Its code ended the process."] * 2


def test_solutions_are_not_handed_out(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    hand_out(folder)
    assert {path.name for path in PATHS} < {path.name for path in folder.iterdir()}
    text = "".join(path.read_text("utf-8") for path in folder.rglob("*") if path.is_file())
    assert "self.blocks[:count]" not in text
    assert not list(folder.rglob("*.py"))
    kept = folder / PATHS[0].name
    kept.write_text(json.dumps({"mine": 1}))
    hand_out(folder)
    assert json.loads(kept.read_text()) == {"mine": 1}
    with pytest.raises(BadInput, match="cannot be written"):
        hand_out(kept / "below")


def test_kvlab_reads_no_solution() -> None:
    for path in (FOLDER.parent / "kvlab").rglob("*.py"):
        assert not re.search(r"solutions[/\"']|import solutions", path.read_text("utf-8")), path
