"""Two notebooks in JupyterLab: run all cells, use the player, scroll it out of sight and back."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

sync_api = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
WINDOWING = "lab/user-settings/@jupyterlab/notebook-extension/tracker.jupyterlab-settings"
KEYS = [
    "ArrowRight",
    "ArrowLeft",
    "PageDown",
    "PageUp",
    "End",
    "Home",
    "n",
    "p",
    "e",
    "0",
    "t",
    "t",
]
KEYS += ["1", "9", "ArrowDown", "ArrowUp", "Shift+ArrowRight", "Space", "Space", "?", "?", ".", "."]
KEYS += ["Escape", "a", "b", "m", "x", "Home"]
"""The player's, and some that would add, change or cut a cell."""


@dataclass(frozen=True)
class Lab:
    """A JupyterLab on the notebooks, and the folder of its settings."""

    base: str
    token: str
    config: Path

    def open(self, page: Page, notebook: str, mode: str) -> None:
        """The notebook in a workspace of its own; `mode` says which cells are kept in the page."""
        settings = self.config / WINDOWING
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(json.dumps({"windowingMode": mode}))
        page.goto(f"{self.base}/lab/workspaces/{mode}/tree/{notebook}?token={self.token}&reset")


@pytest.fixture(scope="module")
def lab(serve: Callable[..., Any]) -> Lab:
    served = serve("lab")
    base, token = str(served.url).partition("/lab")[0], str(served.url).rpartition("token=")[2]
    return Lab(base, token, served.log.parent)


def run_all(page: Page) -> None:
    """Run every cell. Straight after opening the menu's entry may do nothing: try again."""
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=60_000)
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(timeout=90_000)
    running = page.locator(".jp-CodeCell .jp-InputPrompt", has_text=re.compile(r"\[(\d+|\*)\]"))

    def asked() -> bool:
        page.locator(".jp-Notebook").first.click(position={"x": 5, "y": 5})
        page.locator(".lm-MenuBar-item", has_text="Run").first.click()
        page.locator('.lm-Menu-item[data-command="runmenu:run-all"]').click()
        with contextlib.suppress(sync_api.TimeoutError):
            running.first.wait_for(timeout=3_000)
        return running.count() > 0

    until(asked, page)
    # It shows the last cell then, and may take those above out of the page.
    scroll_to(page, 0)


def scroll_to(page: Page, top: int) -> None:
    page.locator(".jp-WindowedPanel-outer").evaluate("(panel, top) => panel.scrollTo(0, top)", top)


def find_player(page: Page) -> Locator:
    """The first player, scrolled to: a windowed notebook has it in the page only when it is near."""
    player = page.locator(".kvlab-player").first
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(timeout=120_000)
    tops = cycle(range(0, 12_000, 500))

    def near() -> bool:
        """Seen, and scrolled to: while the notebook measures its cells it may be taken out again."""
        if not player.count() or not player.is_visible():
            scroll_to(page, next(tops))
            return False
        with contextlib.suppress(sync_api.TimeoutError):
            player.scroll_into_view_if_needed(timeout=5_000)
            return True
        return False

    until(near, page)
    player.locator("[data-control=forward]").wait_for(timeout=20_000)
    return player


def picture(player: Locator) -> Any:
    """What is drawn: each element, its place within the player, its colours."""
    return player.evaluate(
        """player => {
            const at = player.getBoundingClientRect();
            return [player.innerText, ...[...player.querySelectorAll("*")].map((one) => {
                const box = one.getBoundingClientRect();
                const look = getComputedStyle(one);
                const place = [box.x - at.x, box.y - at.y, box.width, box.height].map(Math.round);
                return [one.tagName, ...place, look.color, look.backgroundColor, look.fill].join();
            })];
        }"""
    )


def stays_as_it_is(page: Page, player: Locator, mode: str, cells: int) -> None:
    """Scroll a moved player far away and back: the same step, the same text, the same picture."""
    player.focus()
    player.press("PageDown")
    page.mouse.move(2, 2)
    page.evaluate("document.activeElement.blur()")  # a ring around the focus would go with it
    seen: list[Any] = [None]

    def at_rest() -> bool:
        seen.append(picture(player))
        return bool(seen[-1] == seen[-2])

    until(at_rest, page)
    panel = page.locator(".jp-WindowedPanel-outer")
    top = int(panel.evaluate("panel => panel.scrollTop"))

    def far() -> bool:
        scroll_to(page, int(panel.evaluate("panel => panel.scrollHeight")))
        box = player.bounding_box() if player.count() else None
        return box is None or box["y"] < 0

    until(far, page)
    if mode == "full":  # taken out of the page, or the mode is not on
        until(lambda: page.locator(".jp-Notebook .jp-Cell").count() < cells, page)

    def back() -> bool:
        scroll_to(page, top)
        return bool(player.count() and picture(player) == seen[-1])

    until(back, page)


def cells_of(notebook: str) -> int:
    return len(json.loads((NOTEBOOKS / notebook).read_text("utf-8"))["cells"])


def notebook_state(page: Page) -> Any:
    """What a stray key would change: cells and their kinds, the one that is active, the mode."""
    return page.evaluate("""() => ({
      cells: [...document.querySelectorAll(".jp-Notebook .jp-Cell")].map((cell) => cell.className),
      mode: document.querySelector(".jp-Notebook").className,
      dialogs: document.querySelectorAll(".jp-Dialog").length,
    })""")


def keeps_its_keys(page: Page, player: Locator) -> None:
    """No key that is pressed in the player reaches the notebook; outside of it they do."""
    player.focus()
    panel = page.locator(".jp-WindowedPanel-outer")
    top = int(panel.evaluate("panel => panel.scrollTop"))
    before = notebook_state(page)
    for key in KEYS:
        player.press(key)

    def as_before() -> bool:
        scroll_to(page, top)  # which cells are in the page depends on that
        return bool(notebook_state(page) == before)

    until(as_before, page)
    page.locator(".jp-InputPrompt:visible").first.click()
    before = notebook_state(page)
    page.keyboard.press("ArrowDown")
    until(lambda: notebook_state(page) != before, page)


@pytest.mark.parametrize(
    "mode",
    [
        "full",
        pytest.param("defer", marks=pytest.mark.long),
        pytest.param("contentVisibility", marks=pytest.mark.long),
    ],
)
def test_notebook_02_runs_and_can_be_stepped_through(new_page, lab, trouble, mode):
    page = new_page(color_scheme="light", viewport={"width": 1280, "height": 1000})
    lab.open(page, "02-skip-or-release.ipynb", mode)
    run_all(page)
    player = find_player(page)
    button = player.locator("[data-control=event]")
    free = player.locator("[data-free]")
    counts: list[int] = []
    while True:
        page.wait_for_selector("[data-moving]", state="detached")
        count = int(free.get_attribute("data-free") or -1)
        if not counts or counts[-1] != count:
            counts.append(count)
        if button.is_disabled():
            break
        button.click()
    assert counts == [0, 2, 1]
    table = player.locator('[data-table="A"] [data-entry]')
    assert table.evaluate_all("all => all.map(one => 'P' + one.dataset.entry)") == [
        "P0",
        "P1",
        "P2",
    ]
    assert player.get_attribute("data-theme") == "light"
    assert re.search(r"run \d{4}-\d\d-\d\d \d\d:\d\d on", player.locator(".k-facts").inner_text())
    player.press("Home")
    stays_as_it_is(page, player, mode, cells_of("02-skip-or-release.ipynb"))
    keeps_its_keys(page, player)
    assert page.locator(".jp-RenderedText[data-mime-type$=stderr], .jp-mod-error").count() == 0
    assert not trouble


@pytest.mark.long
def test_notebook_00_says_that_all_is_well(new_page, lab, trouble):
    page = new_page(color_scheme="dark", viewport={"width": 1280, "height": 1000})
    lab.open(page, "00-start-here.ipynb", "none")
    run_all(page)
    page.get_by_text("All is well: you can begin.").wait_for(timeout=120_000)
    player = find_player(page)
    assert player.get_attribute("data-theme") == "dark"
    assert "Figure 1" in player.inner_text()
    stays_as_it_is(page, player, "none", cells_of("00-start-here.ipynb"))
    keeps_its_keys(page, player)
    solution = page.locator(".jp-RenderedMarkdown li", has_text="and read the line at the top")
    assert not solution.is_visible()
    page.locator("summary", has_text="Show the solutions").click()
    solution.wait_for(timeout=5_000)
    assert page.locator(".jp-RenderedText[data-mime-type$=stderr], .jp-mod-error").count() == 0
    assert not trouble
