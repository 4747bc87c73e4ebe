"""In JupyterLab a learner solves exercise 2 wrongly, reads at which step, and then rightly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser

WRONG = """class Pool:
    def __init__(self, num_blocks, last_first=False):
        self.blocks = list(range(num_blocks))
        self.last_first = last_first

    def free(self):
        return len(self.blocks)

    def allocate(self, count):
        return [self.blocks.pop(0) for _ in range(count)]

    def release(self, blocks):
        self.blocks += reversed(blocks)
"""
RIGHT = WRONG.replace(
    "        self.blocks += reversed(blocks)\n",
    "        if self.last_first:\n"
    "            self.blocks = [*reversed(blocks), *self.blocks]\n"
    "        else:\n"
    "            self.blocks += blocks\n",
)


def run(page: Page, cell: Any) -> Any:
    """Run a cell and wait until the kernel is idle again."""
    cell.locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(timeout=90_000)
    return cell


@pytest.mark.long
def test_wrongly_then_rightly(serve: Callable[..., Any], page: Page, tmp_path: Path) -> None:
    served = serve("lab", "--student", cwd=tmp_path)
    base, token = str(served.url).partition("/lab")[0], str(served.url).rpartition("token=")[2]
    assert not list(tmp_path.rglob("solutions"))
    page.goto(f"{base}/lab/tree/09-build-blocks.ipynb?token={token}&reset")
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=60_000)
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(timeout=90_000)
    cells = page.locator(".jp-CodeCell")

    def cell(text: str) -> Any:
        found = cells.filter(has_text=text).first
        found.scroll_into_view_if_needed()
        return found

    def write(text: str) -> None:
        solution = cell("class Pool")
        solution.locator(".cm-content").click()
        page.keyboard.press("Control+a")
        page.keyboard.insert_text(text)
        run(page, solution)

    run(page, cell("from kvlab import build"))
    for text, said in ((WRONG, "Step 3: the table of A is P0 P1 P3"), (RIGHT, "Right, ")):
        write(text)
        verdict = run(page, cell("verdict2 = build.check"))
        verdict.locator(".jp-OutputArea-output", has_text=said).first.wait_for(timeout=60_000)
        if text == WRONG:
            shown = run(page, cell("verdict2.player()"))
            shown.locator(".jp-OutputArea-output", has_text="What should be").first.wait_for(
                timeout=60_000
            )
