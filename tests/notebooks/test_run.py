"""Every notebook runs top to bottom on a fresh kernel, and its questions know their answers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from committed import COURSE, FIGURES, FOLDER, read
from nbclient import NotebookClient

from kvlab.errors import BadInput
from kvlab.lessons.chapters import CHAPTERS
from kvlab.lessons.checks import CHECKS, check, question_of
from kvlab.lessons.record import recorded

PLAYER = "application/vnd.jupyter.widget-view+json"
every = pytest.mark.parametrize(
    "path", [*COURSE, FOLDER / "dashboard.ipynb"], ids=lambda path: path.stem
)


@every
def test_runs_on_a_fresh_kernel(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))
    notebook = read(path)
    client = NotebookClient(
        notebook, kernel_name="python3", timeout=120, resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert not [out for out in outputs if out.output_type in ("error", "stream")]
    shown = [out.data for out in outputs if "data" in out]
    assert any(PLAYER in data for data in shown)
    # Without a widget manager there is still something to read.
    assert all("text/plain" in data for data in shown)


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_questions_are_answered_by_the_run(path: Path):
    one = CHAPTERS[FIGURES.index(path)]
    trace = recorded(one.scenario)
    source = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "code")
    names = re.findall(r'check\(story, "([^"]+)", None\)', source)
    assert len(names) == 2
    for name in names:
        right = question_of(name).answer(trace)
        assert check(trace, name, right).right is True
        assert check(trace, name, right + 1).right is False
        assert check(trace, name, None).right is None


def test_every_question_is_asked():
    asked = "\n".join(path.read_text("utf-8") for path in FIGURES)
    assert all(question.name in asked for question in CHECKS)


@pytest.mark.parametrize("answer", ["2", 2.0, True, [2]])
def test_an_answer_is_a_whole_number(answer):
    with pytest.raises(BadInput, match="whole number"):
        check(recorded("figure-2"), "free after the release", answer)


def test_an_unknown_question_is_refused():
    with pytest.raises(BadInput, match="no question 'what'"):
        check(recorded("figure-2"), "what", 1)
