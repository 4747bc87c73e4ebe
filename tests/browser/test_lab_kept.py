"""What JupyterLab keeps of the widgets: the page's language, what was answered, the theme, no change
of a notebook that was only opened."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from test_lab import Lab, run_all
from waiting import until

from kvlab.trace.narration import load_words
from kvlab.trace.speech import Speech

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser

SERVE = """
import sys
from pathlib import Path
from kvlab.server.lab_server import LabSettings, serve_lab
port, folder = int(sys.argv[2]), Path(sys.argv[3])
serve_lab(LabSettings(folder=folder, port=port, open_browser=False, verbose=False))
"""
CELLS = (
    "from kvlab.lab.notebook import *\n"
    "from kvlab.course.record import recorded\n"
    "story = recorded('figure-5')\n"
    "guess = predict('figure-5')\n"
    "guess",
    "guess.compare(story)",
    "player(story)",
    "delays(story)",
    "what_if(story)",
)
GERMAN = Speech("de")


@pytest.fixture(scope="module")
def kept(serve: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Path]:
    """A JupyterLab on a folder with one small notebook, and the notebook's file."""
    file = tmp_path_factory.mktemp("kept") / "kept.ipynb"
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    cells = [new_code_cell(source) for source in CELLS]
    nbformat.write(new_notebook(cells=cells, metadata=kernel), file)
    served = serve(SERVE, str(file.parent))
    base, token = str(served.url).partition("/lab")[0], str(served.url).rpartition("token=")[2]
    return Lab(base, token, served.log.parent), file


def is_unsaved(page: Page) -> bool:
    return page.locator(".lm-TabBar-tab.jp-mod-dirty").count() > 0


def saved(file: Path) -> str:
    """The HTML of all outputs in the notebook's file."""
    cells = json.loads(file.read_text("utf-8"))["cells"]
    data = [output.get("data", {}) for cell in cells for output in cell["outputs"]]
    return "\n".join("".join(one.get("text/html", "")) for one in data)


def test_language_answers_theme_and_no_change_by_opening(new_page, kept, trouble):
    lab, file = kept
    page = new_page(locale="de-DE", color_scheme="light", viewport={"width": 1280, "height": 1000})
    lab.open(page, file.name, "none")
    run_all(page)

    # German, as the browser asks: the question, the player, the chart, what-if.
    page.get_by_text(GERMAN("guess.choose")).wait_for(timeout=60_000)
    player = page.locator(".kvlab-player").first
    forward = player.locator("[data-control=forward]")
    until(lambda: forward.get_attribute("title") == load_words("de")["player"]["act_forward"], page)
    heading = page.locator(".kvlab-chart h3")
    until(lambda: heading.inner_text() == GERMAN("chart.gaps"), page)
    page.get_by_role("heading", name=GERMAN.words["what_if"]["title"]).wait_for(timeout=10_000)

    # An answer is in the notebook that is saved, and nothing of the page is lost by that.
    page.get_by_role("radio", name="4", exact=True).first.check()
    page.get_by_text(GERMAN("guess.said", given=4, right=5, look="")[:20]).wait_for(timeout=10_000)
    assert page.get_by_role("radio", name="4", exact=True).first.is_checked()
    page.keyboard.press("Control+s")
    until(lambda: not is_unsaved(page), page)
    assert "[4]" in saved(file)
    assert GERMAN("guess.said", given=4, right=5, look="")[:20] in saved(file)
    assert "widget-view" not in file.read_text("utf-8")

    # The chart follows the theme.
    text = page.locator(".kvlab-chart .xtick text").first
    light = text.evaluate("one => getComputedStyle(one).fill")
    page.emulate_media(color_scheme="dark")  # JupyterLab's own theme goes with it here
    page.locator("body[data-jp-theme-light=false]").wait_for(state="attached")
    until(lambda: text.evaluate("one => getComputedStyle(one).fill") != light, page)
    until(lambda: player.get_attribute("data-theme") == "dark", page)
    assert not trouble


def test_a_notebook_that_is_only_opened_is_not_changed(new_page, kept, trouble):
    """Saved by the test before, with stills; opened beside its kernel and by a new page."""
    lab, file = kept
    before = file.read_bytes()
    page = new_page(locale="de-DE", viewport={"width": 1280, "height": 1000})
    lab.open(page, file.name, "none")
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(timeout=90_000)
    page.locator(".kvlab-still").first.wait_for(timeout=20_000)
    page.get_by_role("radio", name="4", exact=True).first.wait_for(timeout=20_000)
    assert not is_unsaved(page)
    assert file.read_bytes() == before
    assert not trouble
