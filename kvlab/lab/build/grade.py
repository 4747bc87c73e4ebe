"""Grading a folder of notebooks: the solution cells of each run in a process of their own.

Run as a module it grades one notebook: `python -m kvlab.lab.build.grade NOTEBOOK SEED` prints a line
of JSON for each exercise.
"""

from __future__ import annotations

import csv
import io
import json
import linecache
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvlab.errors import BadInput

PIECES = ("Tables", "Pool", "Batching", "Preempting", "Swapping", "Sharing", "victim", "Admitting")
"""What the exercises' notebooks call what is written."""
LONGEST = 180  # seconds for a notebook


@dataclass(frozen=True, slots=True)
class Grade:
    """One exercise of one notebook. `right` is None where nothing was written."""

    notebook: str
    exercise: int
    right: bool | None
    said: str


def solution_cells(path: Path) -> list[tuple[int, str]]:
    """(exercise, text) of a notebook's solution cells. Raises BadInput for what is no notebook."""
    try:
        cells = json.loads(path.read_text("utf-8"))["cells"]
        found = []
        for cell in cells:
            about = cell.get("metadata", {}).get("nbgrader", {})
            name = about.get("grade_id", "")
            if about.get("solution") and name.startswith("exercise-"):
                found.append((int(name.removeprefix("exercise-")), "".join(cell["source"])))
        return [one for one in found if 1 <= one[0] <= len(PIECES)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(f"{path}: not a notebook that can be read.") from None


def grades_of(path: Path, seed: int | None) -> list[Grade]:
    """Check the exercises of one notebook, here: their code runs in this process."""
    from kvlab.lab.build.check import check

    made: dict[str, Any] = {}
    found = []
    for number, text in solution_cells(path):
        file = f"exercise-{number}"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        try:
            exec(compile(text, file, "exec"), made)
        except Exception as error:
            said = f"The cell raised {type(error).__name__}: {error}."
            found.append(Grade(path.name, number, False, said))
            continue
        outcome = check(number, made.get(PIECES[number - 1]), seed)
        found.append(Grade(path.name, number, outcome.right, outcome.text))
    return found


def grade(folder: Path, seed: int | None = None) -> list[Grade]:
    """The exercises of every notebook in a folder and those below it, each notebook in a process of
    its own that is stopped after LONGEST seconds.

    Raises BadInput where there are none.
    """
    if not folder.is_dir():
        raise BadInput(f"{folder}: there is no such folder.")
    found: list[Grade] = []
    for path in sorted(folder.rglob("*.ipynb")):
        if ".ipynb_checkpoints" in path.parts:
            continue
        name = str(path.relative_to(folder))
        try:
            numbers = [number for number, _ in solution_cells(path)]
        except BadInput as error:
            found.append(Grade(name, 0, False, str(error)))
            continue
        if not numbers:
            continue
        command = [sys.executable, "-m", "kvlab.lab.build.grade", str(path), json.dumps(seed)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=LONGEST, check=False
            )
            rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
            why = "Its code ended the process."
        except subprocess.TimeoutExpired:
            rows, why = [], f"It had not ended after {LONGEST} seconds."
        found += [Grade(name, *row) for row in rows]
        told = {row[0] for row in rows}
        found += [Grade(name, number, False, why) for number in numbers if number not in told]
    if not found:
        raise BadInput(f"{folder}: there is no notebook with exercises in it.")
    return found


def as_csv(grades: list[Grade]) -> str:
    """A line an exercise: notebook, exercise, points (1, 0, or empty where nothing was written)."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["notebook", "exercise", "points", "said"])
    for one in grades:
        points = "" if one.right is None else int(one.right)
        # A spreadsheet would take these for a formula.
        name = f"'{one.notebook}" if one.notebook[:1] in "=+-@" else one.notebook
        table.writerow([name, one.exercise or "", points, one.said])
    return text.getvalue()


if __name__ == "__main__":
    for each in grades_of(Path(sys.argv[1]), json.loads(sys.argv[2])):
        print("\n" + json.dumps([each.exercise, each.right, each.said]), flush=True)
