"""nbgrader's own validate and autograde on notebook 09, in an environment made for it."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import nbformat
import pytest
from solved import TEXT
from test_build_notebooks import PATHS, solved

pytestmark = pytest.mark.full


def test_validates_and_autogrades(tmp_path: Path) -> None:
    """Ana has both right, Ben a pool that takes nothing back, Mia wrote nothing."""
    venv.create(tmp_path / "env", with_pip=True)
    programs = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    subprocess.run([programs / "python", "-m", "pip", "-q", "install", "nbgrader"], check=True)
    kernel = tmp_path / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    about = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Python 3",
        "language": "python",
        "env": {"PYTHONPATH": str(PATHS[0].parents[1])},
    }
    (kernel / "kernel.json").write_text(json.dumps(about))
    course, name = tmp_path / "course", PATHS[0].name
    wrong = TEXT.replace("self.blocks = self.blocks + list(blocks)", "pass")
    handed_in = {
        "source": nbformat.read(PATHS[0], as_version=4),
        "submitted/ana": solved(PATHS[0]),
        "submitted/ben": solved(PATHS[0], wrong),
        "submitted/mia": nbformat.read(PATHS[0], as_version=4),
    }
    for folder, notebook in handed_in.items():
        (course / folder / "build").mkdir(parents=True)
        nbformat.write(notebook, course / folder / "build" / name)

    def nbgrader(*words: str) -> str:
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        own = {"JUPYTER_PATH": str(tmp_path / "jupyter"), "PATH": path}
        done = subprocess.run(
            [programs / "nbgrader", *words],
            cwd=course,
            env=os.environ | own,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr

    said = nbgrader("validate", f"submitted/ana/build/{name}")
    assert "Success! Your notebook passes all the tests." in said, said
    nbgrader("generate_assignment", "build", "--create")
    said = nbgrader("autograde", "build", "--create")
    nbgrader("export", "--to", "grades.csv")
    rows = csv.DictReader((course / "grades.csv").read_text().splitlines())
    scores = {row["student_id"]: (row["score"], row["max_score"]) for row in rows}
    assert scores == {"ana": ("20.0", "20.0"), "ben": ("10.0", "20.0"), "mia": ("0.0", "20.0")}, (
        said
    )
