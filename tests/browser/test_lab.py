"""Notebook 02 in JupyterLab: run all cells, click through the figure, light and dark."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

NOTEBOOK = "02-skip-or-release.ipynb"
TRIES = 4


@pytest.fixture(scope="module")
def lab(serve: Callable[..., Any]) -> tuple[str, str]:
    """Address and token of a JupyterLab on the notebooks."""
    url = str(serve("lab").url)
    base, _, token = url.partition("/lab?token=")
    return base, token


def run_all(page: Page) -> None:
    """Run every cell. Straight after opening the menu's entry may do nothing: wait, try again."""
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=60_000)
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(timeout=90_000)
    prompts = page.locator(".jp-CodeCell .jp-InputPrompt")
    for _ in range(TRIES):
        page.wait_for_timeout(2_000)
        page.locator(".jp-Notebook").first.click(position={"x": 5, "y": 5})
        page.locator(".lm-MenuBar-item", has_text="Run").first.click()
        page.locator('.lm-Menu-item[data-command="runmenu:run-all"]').click()
        page.wait_for_timeout(3_000)
        if re.search(r"\[(\d+|\*)\]", "".join(prompts.all_inner_texts())):
            break
    else:
        raise AssertionError("JupyterLab did not run the notebook")
    # It shows the last cell then, and takes those above out of the page.
    page.locator(".jp-WindowedPanel-outer").evaluate("panel => { panel.scrollTop = 0; }")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_notebook_02_runs_and_can_be_stepped_through(new_page, lab, trouble, scheme):
    base, token = lab
    page = new_page(color_scheme=scheme, viewport={"width": 1280, "height": 1000})
    page.goto(f"{base}/lab/workspaces/{scheme}/tree/{NOTEBOOK}?token={token}&reset")
    run_all(page)
    player = page.locator(".kvlab-player").first
    player.wait_for(state="attached", timeout=120_000)
    player.scroll_into_view_if_needed()
    button = player.locator("[data-act=forward]")
    button.wait_for(timeout=20_000)
    free = player.locator("[data-free]")
    counts: list[int] = []
    while True:
        count = int(free.get_attribute("data-free") or -1)
        if not counts or counts[-1] != count:
            counts.append(count)
        if button.get_attribute("aria-disabled") == "true":
            break
        button.click()
    assert counts == [0, 2, 1]
    table = player.locator('[data-table="A"] [data-entry]')
    assert table.evaluate_all("all => all.map(one => 'P' + one.dataset.entry)") == [
        "P0",
        "P1",
        "P2",
    ]
    assert player.get_attribute("data-theme") == scheme
    assert "run just now on" in player.locator(".k-facts").inner_text()
    assert page.locator(".jp-RenderedText[data-mime-type$=stderr], .jp-mod-error").count() == 0
    assert not trouble
