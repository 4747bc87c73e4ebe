"""Every notebook runs top to bottom on a fresh kernel, and its questions know their answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from committed import COURSE, FIGURES, FOLDER, read
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from nbclient import NotebookClient

from kvlab.course.chapters import CHAPTERS
from kvlab.course.checks import CHECKS, check, facts_of
from kvlab.course.record import recorded
from kvlab.draw.notebook_still import NAME
from kvlab.errors import BadInput
from kvlab.lab.notebook import crossovers
from kvlab.server import forked

ALONE = (FOLDER / "dashboard.ipynb", COURSE[0])
"""Run as a learner's kernels start, with nothing imported; before there are quick ones."""
WIDGET = "application/vnd.jupyter.widget-view+json"
every = pytest.mark.parametrize("path", [*ALONE, *COURSE[1:]], ids=lambda path: path.stem)


def code_of(path: Path) -> str:
    return "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "code")


@pytest.fixture(scope="module")
def quick_kernels() -> Iterator[None]:
    """Fresh kernels that are forks of one process, where that is possible: torch is imported once."""
    if not forked.can_fork():
        yield
        return
    factory = KernelProvisionerFactory.instance()
    usual = factory.default_provisioner_name
    forks = forked.Forks(0, FOLDER.parent)
    forked.use(forks)
    yield
    factory.default_provisioner_name = usual
    forks.close()


@every
def test_runs_on_a_fresh_kernel(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
):
    if path not in ALONE:
        request.getfixturevalue("quick_kernels")
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))
    notebook = read(path)
    client = NotebookClient(
        notebook, kernel_name="python3", timeout=120, resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert not [out for out in outputs if out.output_type in ("error", "stream")]
    shown = [out.data for out in outputs if "data" in out]
    assert any(WIDGET in data or NAME in data.get("text/html", "") for data in shown)
    # Without a widget manager there is still something to read.
    assert all("text/plain" in data for data in shown)


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_questions_are_answered_by_the_run(path: Path):
    one = CHAPTERS[FIGURES.index(path)]
    trace = recorded(one.scenario)
    names = re.findall(r'^check\(story, "([^"]+)", None\)', code_of(path), re.MULTILINE)
    assert len(names) == 2
    for name in names:
        _, right, _ = facts_of(trace, name)
        assert check(trace, name, right).right is True
        assert check(trace, name, right + 1).right is False
        assert check(trace, name, None).right is None


def test_every_question_is_asked():
    asked = "\n".join(code_of(path) for path in COURSE)
    assert all(f'"{name}", None)' in asked for name in CHECKS)


def test_questions_about_costs_know_their_answers():
    """32 blocks of 64 tokens, 32 layers, 2 ways. The other is read off the formulas: at 24 tokens
    6 blocks, so 384 copies of 10 µs, and 0.125 ms for the bytes are less than the 4.17 ms of reading
    the weights; at 28 tokens 448 copies are more."""
    table = crossovers("H100, PCIe 5")
    assert check(table, "copies with blocks of 64", 32 * 32 * 2).right is True
    assert check(table, "recompute begins to pay", 28).right is True
    assert check(table, "recompute begins to pay", 24).right is False
    with pytest.raises(BadInput, match="about a table of crossovers"):
        check(recorded("figure-2"), "recompute begins to pay", 24)
    with pytest.raises(BadInput, match="about a run"):
        check(table, "slots filled", 16)


@pytest.mark.parametrize("answer", ["2", 2.0, True, [2]])
def test_an_answer_is_a_whole_number(answer):
    with pytest.raises(BadInput, match="whole number"):
        check(recorded("figure-2"), "free after the release", answer)


def test_an_unknown_question_is_refused():
    with pytest.raises(BadInput, match="no question 'what'"):
        check(recorded("figure-2"), "what", 1)
