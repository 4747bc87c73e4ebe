"""What a notebook keeps when it is saved or converted: the still, never a reference to a model."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_notebook

from kvlab.course.record import recorded
from kvlab.draw.notebook_still import NAME, REPLACERS, VIEW
from kvlab.draw.player import Player

ROOT = Path(__file__).resolve().parents[2]
CELLS = (
    "from kvlab.lab.notebook import memory, player, predict\n"
    "from kvlab.course.record import recorded\n"
    "story = recorded('figure-3')\n"
    "player(story)",
    "guess = predict('figure-3')\nguess",
    "guess.compare(story)",
    "memory(story)",
)


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> nbformat.NotebookNode:
    """A notebook after its cells have run, with the widgets' state as nbclient keeps it."""
    notebook = new_notebook(cells=[new_code_cell(source) for source in CELLS])
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", str(ROOT))
    patch.delenv("VSCODE_PID", raising=False)
    place = {"metadata": {"path": tmp_path_factory.mktemp("notebook")}}
    NotebookClient(notebook, kernel_name="python3", timeout=120, resources=place).execute()
    patch.undo()
    return notebook


def test_no_output_refers_to_a_model(executed: nbformat.NotebookNode) -> None:
    for cell in executed.cells:
        (output,) = cell.outputs
        assert set(output.data) == {"text/html", "text/plain"}
        assert NAME in output.data["text/html"]


def test_a_converted_notebook_shows_the_storyboard(executed: nbformat.NotebookNode) -> None:
    """As it was executed, with the state of its widgets, and as JupyterLab saves it, without."""
    stateless = nbformat.from_dict(executed)
    assert stateless.metadata.pop("widgets")
    for notebook in (executed, stateless):
        body, _ = HTMLExporter().from_notebook_node(notebook)
        pictures = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', body)
        assert len(pictures) == 2  # the storyboard, and the chart's still
        root = ElementTree.fromstring(base64.b64decode(pictures[0]))
        said = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
        assert [text for text in said if text and "blocks free" in text] == [
            "0 of 4 blocks free",
            "2 of 4 blocks free",
            "1 of 4 blocks free",
        ]
        for words in ("How many of its tokens go through the model", "Choose an option above"):
            assert words in body


def test_a_run_too_large_to_draw_keeps_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvlab.draw.player.LARGEST_STILL", 10)
    data, _ = Player(trace=recorded("figure-5"))._repr_mimebundle_()
    assert "<img" not in data["text/html"]
    assert "4 of 4 blocks free" in data["text/html"]


def test_one_seat_for_a_widget_however_often_it_is_displayed() -> None:
    player = Player(trace=recorded("figure-1"))
    first, second = player._repr_mimebundle_()[0], player._repr_mimebundle_()[0]
    assert first == second
    assert REPLACERS[player].widget == player.model_id
    assert f"{NAME}-{player.model_id}" in first["text/html"]


def test_editors_that_need_the_widgets_own_type_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSCODE_PID", "1")
    player = Player(trace=recorded("figure-1"))
    data, _ = player._repr_mimebundle_()
    assert data[VIEW]["model_id"] == player.model_id
    assert NAME not in data["text/html"]
