"""What can go wrong under an open page: it says so, replay goes on, and nothing written is lost."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import psutil
import pytest
from waiting import until
from wire import Wire

import kvlab.pages

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

resource = pytest.importorskip("resource", reason="limits of a process as POSIX has them")
ROOT = Path(kvlab.pages.__file__).resolve().parents[2]
MEMORY = 448
"""MiB that a kernel of this server may take: enough for a run, not for the largest."""
TOKEN = "ROOM-7X9K"
HASTE = 5
"""Hearts beat so much faster here: a page tells in two seconds that its engine is gone, not in ten."""
EXPECTED = re.compile(
    r"/voila/api/shutdown/|api/kernels/|Failed to load resource|WebSocket connection to|"
    r"ERR_(CONNECTION|EMPTY|SOCKET|ABORTED)|Could not send widget sync message"
)
"""What a browser itself says of a connection that is lost, and of a page that is left."""

NOTEBOOK = """
import os, pathlib, time
from IPython.display import HTML, display

import kvlab.engine.engine as engine
from kvlab.pages.dashboard import dashboard

told = pathlib.Path({folder!r})
(told / "pid").write_text(str(os.getpid()))
while (told / "wait").exists():
    time.sleep(0.05)
step = engine.Engine.step

def broken(self, **rest):
    if any(id.startswith("BREAK") for id in self.requests):
        raise RuntimeError("a secret of the engine")
    return step(self, **rest)

engine.Engine.step = broken
display(HTML(f'<i id="kernel" hidden>{{os.getpid()}}</i>'))
dashboard()
"""


@dataclass
class Room:
    """A served lab whose notebook can be made to wait, behind a wire."""

    serve: Callable[..., Any]
    folder: Path

    def __post_init__(self) -> None:
        self.served = self.start()
        self.wire = Wire(self.served.port)

    def start(self) -> Any:
        options = ("--class", "9", "--heated", "0", "--memory", str(MEMORY), "--token", TOKEN)
        return self.serve("serve", *options, "--notebook", str(self.folder / "faults.ipynb"))

    def stop(self) -> None:
        self.served.process.terminate()
        self.served.process.wait(timeout=20)

    def url(self, query: str) -> str:
        return f"http://127.0.0.1:{self.wire.port}/?token={TOKEN}&{query}"

    def hold(self, yes: bool) -> None:
        """Let pages wait in the middle of being rendered, or go on."""
        flag = self.folder / "wait"
        flag.touch() if yes else flag.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def room(serve: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    folder = tmp_path_factory.mktemp("faults")
    cell = nbformat.v4.new_code_cell(NOTEBOOK.format(folder=str(folder)))
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), folder / "faults.ipynb")
    room = Room(serve, folder)
    yield room
    room.wire.close()
    room.stop()


@pytest.fixture
def page(new_page: Callable[..., Page]) -> Page:
    return new_page(haste=HASTE)


def opened(page: Page, room: Room, query: str) -> None:
    page.goto(room.url(query))
    ready(page)


def ready(page: Page) -> None:
    """The page has gone where its address says."""
    page.locator(".kp-bar[aria-busy=false]").wait_for()


def kernel_of(page: Page) -> int:
    return int(page.locator("#kernel").text_content() or 0)


def settings(page: Page) -> Locator:
    """The Lab's form, with its settings open."""
    form = page.locator(".kp-form")
    toggle = form.locator(".kp-toggle")
    toggle.wait_for()
    if toggle.get_attribute("aria-expanded") == "false":
        toggle.click()
    return form


def prompt_of(page: Page) -> Locator:
    return settings(page).get_by_label("prompt", exact=True).first


def gone(page: Page) -> Locator:
    return page.locator(".kp-gone:visible")


def replay_goes_on(page: Page) -> None:
    open_settings = page.locator(".kp-toggle[aria-expanded=true]")
    if open_settings.count():  # they lie over the player
        open_settings.click()
    player = page.locator(".kvlab-player:visible").first
    where = player.locator(".k-where")
    before = int(where.get_attribute("data-event") or 0)
    player.locator("[data-control=forward]").click()
    assert int(where.get_attribute("data-event") or 0) > before


def only_expected(trouble: Any) -> list[str]:
    """What the browser complained of beyond the lost connection."""
    return [
        what
        for what in (*trouble.outside, *trouble.failed, *trouble.console)
        if not EXPECTED.search(what)
    ]


@pytest.mark.browser
def test_a_killed_kernel_is_told_and_what_was_written_comes_back(page, room, trouble):
    opened(page, room, "chapter=5")
    page.locator(".kvlab-player").focus()
    page.wait_for_function("new URLSearchParams(location.search).has('chapter')")
    page.evaluate("sessionStorage.setItem('kvlab', JSON.stringify({reached: ['figure-5']}))")
    page.reload()
    ready(page)
    page.locator(".kvlab-chart").first.wait_for()
    page.locator(".kp-bar [data-page=lab]").click()
    prompt_of(page).fill("Told to the kernel")
    page.wait_for_function("new URLSearchParams(location.search).has('s')")
    os.kill(kernel_of(page), signal.SIGKILL)
    gone(page).wait_for()
    gone(page).get_by_text("The engine of this page has ended").wait_for()
    page.locator(".kvlab-player:visible .k-banner").first.wait_for()
    prompt_of(page).fill("Typed after its end")
    page.get_by_role("button", name="Run", exact=True).click()
    replay_goes_on(page)
    page.get_by_role("button", name="Settings").click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save the scenario").click()
    requests = json.loads(Path(saved.value.path()).read_text("utf-8"))["requests"]
    assert requests[0]["prompt"] == "Typed after its end"
    gone(page).get_by_role("button", name="Load the page again").click()
    page.wait_for_function("performance.getEntriesByType('navigation')[0].type === 'reload'")
    ready(page)
    assert prompt_of(page).input_value() == "Typed after its end"
    assert gone(page).count() == 0
    page.locator(".kp-bar [data-page=story]").click()
    page.locator(".kp-bar [data-chapter='5']").click()
    page.locator(".kvlab-chart").first.wait_for()
    assert only_expected(trouble) == [], trouble


@pytest.mark.browser
def test_a_kernel_that_is_killed_while_it_renders(page, room, trouble):
    (room.folder / "pid").unlink(missing_ok=True)
    room.hold(True)
    try:
        page.goto(room.url("page=lab&scenario=storm"), wait_until="commit")
        page.locator("#loading").wait_for(state="attached")
        until((room.folder / "pid").exists, page)
        os.kill(int((room.folder / "pid").read_text()), signal.SIGKILL)
        alert = page.get_by_role("alert").filter(has_text="before this page was ready")
        alert.wait_for()
        assert page.locator("#loading").count() == 0
    finally:
        room.hold(False)
    page.get_by_role("button", name="Load the page again").click()
    ready(page)
    assert page.locator(".kp-form").get_by_label("Start from").input_value() == "storm"
    assert only_expected(trouble) == [], trouble


@pytest.mark.browser
def test_an_engine_that_raises_and_one_that_runs_out_of_memory(page, room, trouble):
    opened(page, room, "page=lab&scenario=victims")
    form, run = settings(page), page.get_by_role("button", name="Run", exact=True)
    card = page.locator(".kp-card:visible")
    name = form.get_by_label("name", exact=True).first
    prompt_of(page).fill("Mia keeps two boxes")
    name.fill("BREAK")
    run.click()
    card.filter(has_text="our fault (RuntimeError)").wait_for()
    assert "secret" not in page.locator("body").inner_text()
    replay_goes_on(page)
    settings(page)
    name.fill("A")

    sizes = {"positions in a block": 16, "blocks in the GPU pool": 4096}
    for label, number in {**sizes, "blocks in the CPU pool": 4096}.items():
        form.get_by_label(label).fill(str(number))
    run.click()
    card.filter(has_text="could not be had").filter(has_text="give fewer").wait_for()
    replay_goes_on(page)
    assert prompt_of(page).input_value() == "Mia keeps two boxes"
    for label in ("blocks in the GPU pool", "blocks in the CPU pool"):
        form.get_by_label(label).fill("8")
    run.click()
    page.locator(".kp-status", has_text="Run of 2").wait_for()
    assert card.count() == 0
    assert not trouble, trouble


@pytest.mark.long
@pytest.mark.browser
@pytest.mark.parametrize(
    "seconds", [0, pytest.param(60, marks=pytest.mark.full)], ids=["short", "a minute"]
)
def test_a_browser_that_is_offline_for_a_while(new_page, room, trouble, seconds):
    # A browser holds sockets back that failed very often: over a minute, hearts beat as they do.
    page = new_page(haste=1 if seconds else HASTE)
    opened(page, room, "page=lab&scenario=victims")
    kernel = kernel_of(page)
    room.wire.cut()
    try:
        gone(page).get_by_text("No connection to the lab").wait_for()
        prompt_of(page).fill("Typed without a network")
        replay_goes_on(page)
        event = page.locator(".kvlab-player:visible .k-where").first.get_attribute("data-event")
        page.wait_for_timeout(1000 * seconds)
    finally:
        room.wire.mend()
    gone(page).wait_for(state="detached")
    assert kernel_of(page) == kernel
    assert prompt_of(page).input_value() == "Typed without a network"
    where = page.locator(".kvlab-player:visible .k-where").first
    assert where.get_attribute("data-event") == event
    page.wait_for_function("new URLSearchParams(location.search).has('s')")
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator(".kp-status", has_text="Run of 2").wait_for()
    assert only_expected(trouble) == [], trouble


@pytest.mark.long
@pytest.mark.browser
def test_two_tabs_of_one_link_are_two_visits(page, room, trouble):
    opened(page, room, "page=lab&scenario=victims")
    prompt_of(page).fill("Only in the first tab")
    page.wait_for_function("new URLSearchParams(location.search).has('s')")
    link = page.url.partition("?")[2]
    other = page.context.new_page()
    trouble.watch(other)
    opened(other, room, link)
    assert kernel_of(other) != kernel_of(page)
    assert prompt_of(other).input_value() == "Only in the first tab"
    prompt_of(other).fill("Only in the second tab")
    other.wait_for_function(f"!location.search.endsWith({json.dumps(link[-40:])})")
    assert prompt_of(page).input_value() == "Only in the first tab"
    assert page.url.endswith(link)
    kernel = kernel_of(other)
    other.close(run_before_unload=True)
    until(lambda: not psutil.pid_exists(kernel), page)
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator(".kp-status", has_text="Run of 2").wait_for()
    assert only_expected(trouble) == [], trouble


@pytest.mark.long
@pytest.mark.browser
def test_a_server_that_is_stopped_and_started(page, room, trouble):
    """The new one knows nobody: it asks for the token again."""
    opened(page, room, "page=lab&scenario=victims")
    prompt_of(page).fill("Told to the kernel")
    page.wait_for_function("new URLSearchParams(location.search).has('s')")
    room.stop()
    gone(page).get_by_text("No connection to the lab").wait_for()
    prompt_of(page).fill("Typed after the server's end")
    replay_goes_on(page)
    room.served = room.start()
    room.wire.to = room.served.port
    gone(page).get_by_text("The engine of this page has ended").wait_for()
    gone(page).get_by_role("button", name="Load the page again").click()
    page.get_by_label("Token").fill("room 7x9k")
    page.keyboard.press("Enter")
    ready(page)
    assert prompt_of(page).input_value() == "Typed after the server's end"
    assert only_expected(trouble) == [], trouble


def test_a_full_disk_during_export(tmp_path: Path):
    """Files may have 20 kB here, as where a disk is full: a page has more."""
    page = tmp_path / "a.html"
    page.write_text("mine")

    def kvlab_with_little_room(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kvlab", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
        )

    done = kvlab_with_little_room("export", "figure-5", "--html", "a.html")
    assert done.returncode == 2
    assert done.stderr == "kvlab: a.html cannot be written (File too large).\n"
    assert page.read_text() == "mine"
    assert [one.name for one in tmp_path.iterdir()] == ["a.html"]
    if Path("/dev/full").exists():
        done = kvlab_with_little_room("export", "figure-5", "--trace", "/dev/full")
        assert done.returncode == 2
        assert done.stderr == "kvlab: /dev/full cannot be written (No space left on device).\n"


def test_every_callback_of_a_page_is_guarded():
    """What a widget calls never raises into the void: each method is behind `guarded`."""
    bare = []
    for path in sorted((ROOT / "kvlab" / "pages").glob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        guarded = {
            node.name
            for node in nodes
            if isinstance(node, ast.FunctionDef)
            and "guarded" in [ast.unparse(one) for one in node.decorator_list]
        }
        calls = [one for one in nodes if isinstance(one, ast.Call) and one.args]
        bare += [
            f"{path.name}: {ast.unparse(one)}"
            for one in calls
            if ast.unparse(one.func).endswith((".on_click", ".observe"))
            and isinstance(one.args[0], ast.Attribute)
            and one.args[0].attr not in guarded
        ]
    assert bare == []
