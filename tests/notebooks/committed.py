"""The notebooks as they are committed."""

from __future__ import annotations

from pathlib import Path

import nbformat

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
FIGURES = sorted(FOLDER.glob("0[1-5]-*.ipynb"))
COURSE = sorted(FOLDER.glob("0[0-8]-*.ipynb"))
"""The figures' notebooks and those that go beyond them."""
BUILD = sorted([*FOLDER.glob("09-*.ipynb"), *FOLDER.glob("1[0-9]-*.ipynb")])
"""Those in which learners write an engine; tests/build runs them."""


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)
