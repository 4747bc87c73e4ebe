"""The lab's folder, written once, on a plain web server: `python3 -m http.server`, under a sub-path."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvlab.export.page import PageOptions
from kvlab.export.site import write_site
from kvlab.export.tab.pyodide import PACKAGE, VERSION, pyodide_from
from kvlab.models.cache import cache_folder
from tests.tab.tabs import Tab, card_tab, node_tab

if TYPE_CHECKING:
    from playwright.sync_api import Browser

KEPT = cache_folder() / "pyodide" / PACKAGE
"""Looked for before a session's tests get a cache of their own."""


@pytest.fixture(scope="module", params=["plain", pytest.param("card", marks=pytest.mark.browser)])
def tab(request: pytest.FixtureRequest) -> Iterator[Tab]:
    """What computes in a tab: plain JavaScript, and a graphics card."""
    if request.param == "plain":
        yield from node_tab()
    else:
        browser: Browser = request.getfixturevalue("browser")
        yield from card_tab(browser, request.getfixturevalue("chromium_path"))


@pytest.fixture(scope="session")
def python() -> dict[str, bytes]:
    """Pyodide's files: from KVLAB_PYODIDE, a folder or npm's package, or from the user's cache."""
    named = os.environ.get("KVLAB_PYODIDE")
    place = Path(named) if named else KEPT
    if not place.exists():
        pytest.skip(f"no Pyodide here (npm pack pyodide@{VERSION}, then KVLAB_PYODIDE=its .tgz)")
    return pyodide_from(place)


@pytest.fixture(scope="session")
def site(python: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `kvlab site` writes, two folders down."""
    folder = tmp_path_factory.mktemp("tab") / "course" / "kv cache"
    for _ in write_site(folder, PageOptions(), python):
        pass
    return folder


@dataclass
class Server:
    """A web server that knows nothing of the lab."""

    process: subprocess.Popen[str]
    url: str

    @classmethod
    def of(cls, site: Path) -> Server:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"],
            cwd=site.parents[1],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        match = re.search(r"port (\d+)", process.stdout.readline())
        assert match
        return cls(process, f"http://127.0.0.1:{match[1]}/course/kv%20cache/lab.html")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="session")
def lab(site: Path) -> Iterator[str]:
    """The address of the page that runs."""
    server = Server.of(site)
    yield server.url
    server.stop()


@pytest.fixture
def own_server(site: Path) -> Iterator[Callable[[], Server]]:
    """Servers that a test may stop."""
    started: list[Server] = []

    def start() -> Server:
        started.append(Server.of(site))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.stop()
