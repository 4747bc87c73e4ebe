"""What every test may ask for: a browser whose network ends at this machine, and the markers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ports import free_port
from waiting import PATIENCE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parents[1]

CHROMIUM_FLAGS = [
    "--headless",
    "--no-sandbox",  # root, as in a container, has no other way
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]

LOCAL = re.compile(r"^((https?|wss?)://(127\.0\.0\.1|localhost)(:\d+)?/|blob:|data:|file:|about:)")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run the tests marked long")
    parser.addoption("--full", action="store_true", help="all of them: also those marked full")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = {"full": config.getoption("--full")}
    chosen["long"] = chosen["full"] or config.getoption("--long")
    out = [name for name, wanted in chosen.items() if not wanted]
    left_out = [item for item in items if any(map(item.get_closest_marker, out))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    if any(item.get_closest_marker("cuda") for item in items) and not _cuda():
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(pytest.mark.skip(reason="no CUDA device here"))


def _cuda() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Calibrations and fetched models of a test run stay out of the user's cache."""
    before = os.environ.get("KVLAB_CACHE")
    os.environ["KVLAB_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["KVLAB_CACHE"]
    else:
        os.environ["KVLAB_CACHE"] = before


@pytest.fixture(scope="session")
def chromium_path() -> Path:
    """The browser of this machine; the test is skipped where there is none."""
    from kvlab.launcher.suite import find_chromium

    found = find_chromium()
    if found is None:
        pytest.skip("no Chromium on this machine (python -m playwright install chromium)")
    return found


@pytest.fixture(scope="session")
def browser(chromium_path: Path) -> Iterator[Browser]:
    """One browser process for the whole session."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(chromium_path), args=CHROMIUM_FLAGS
        )
        yield browser
        browser.close()


@dataclass
class Trouble:
    """What went wrong on a page while a test was looking at it."""

    outside: list[str] = field(default_factory=list)
    """Requests to other machines; for this browser there is none (CHROMIUM_FLAGS)."""
    failed: list[str] = field(default_factory=list)
    """Requests to this machine that failed or were answered with 400 or more."""
    console: list[str] = field(default_factory=list)
    """Errors on the console, and exceptions that nobody caught."""

    def __bool__(self) -> bool:
        return bool(self.outside or self.failed or self.console)

    def watch(self, page: Page) -> None:
        """Collect from this page from now on."""
        page.on("requestfailed", lambda request: self._note_failure(request.url, request.failure))
        page.on(
            "response",
            lambda answer: (
                self.failed.append(f"{answer.status} {answer.url}")
                if answer.status >= 400
                else None
            ),
        )
        page.on("pageerror", lambda error: self.console.append(str(error)))
        page.on(
            "console",
            lambda message: self.console.append(message.text) if message.type == "error" else None,
        )

    def look(self, url: str) -> None:
        if not LOCAL.match(url):
            self.outside.append(url)

    def _note_failure(self, url: str, why: str | None) -> None:
        if LOCAL.match(url):
            self.failed.append(f"{why} {url}")


@pytest.fixture
def trouble() -> Trouble:
    """Compare with `not trouble` at a test's end; its fields say what there was."""
    return Trouble()


@pytest.fixture
def new_page(browser: Browser, trouble: Trouble) -> Iterator[Callable[..., Page]]:
    """Pages with options of their own: `new_page(color_scheme="dark", viewport={…})`. `haste` is how
    many times as fast their hearts beat."""
    contexts = []

    def make(haste: float = 1, **options: Any) -> Page:
        context = browser.new_context(**options)
        context.set_default_timeout(1000 * PATIENCE)
        contexts.append(context)
        context.on("request", lambda request: trouble.look(request.url))
        if haste != 1:
            context.add_init_script(f"globalThis.kvlabHaste = {haste}")
        page = context.new_page()
        trouble.watch(page)
        return page

    yield make
    for context in contexts:
        context.close()


@pytest.fixture
def page(new_page: Callable[..., Page]) -> Page:
    """A page whose network ends at this machine; `trouble` says what went wrong on it."""
    return new_page()


@dataclass(frozen=True)
class Served:
    """A server of the lab that a test has started."""

    url: str
    process: subprocess.Popen[str]
    log: Path

    @property
    def port(self) -> int:
        match = re.search(r":(\d+)/", self.url)
        assert match
        return int(match[1])


COMMANDS = ("app", "serve", "lab")


def allow(open_files: int) -> None:
    """In a child that is just starting: so many open files at most."""
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Served]]:
    """Start `kvlab app`, `serve` or `lab` on a free port and wait until it answers:
    `serve("app", "--notebook", path)`, or `serve(SCRIPT, path)` for a server with settings of the
    test's own. All end with the session."""
    started: list[Served] = []

    def start(
        command: str, *options: str, cwd: Path = ROOT, open_files: int | None = None
    ) -> Served:
        log = tmp_path_factory.mktemp("serve") / "output.txt"
        # Nothing of what a person has set up for Jupyter, and nothing left there.
        own = {f"JUPYTER_{name}_DIR": str(log.parent) for name in ("CONFIG", "DATA", "RUNTIME")}
        own["JUPYTERLAB_WORKSPACES_DIR"] = str(log.parent / "workspaces")
        quiet = ["--no-browser"] if command in ("app", "lab") else []
        program = ["-m", "kvlab", command] if command in COMMANDS else ["-c", command]
        arguments = [*program, *quiet, "--port", str(free_port()), *options]
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=cwd,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                preexec_fn=None if open_files is None else lambda: allow(open_files),
                env={**os.environ, **own, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            )
        end = time.monotonic() + 90
        while not (match := re.search(r"http://\S+", log.read_text())):
            assert process.poll() is None, f"ended with {process.returncode}: {log.read_text()}"
            assert time.monotonic() < end, f"no address after 90 s: {log.read_text()}"
            time.sleep(0.1)
        served = Served(match[0], process, log)
        started.append(served)
        return served

    yield start
    for served in started:
        if served.process.poll() is None:
            served.process.terminate()
    for served in started:
        try:
            served.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            served.process.kill()
