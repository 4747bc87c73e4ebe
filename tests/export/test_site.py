"""The lessons as a folder: complete, small, and the same from a disk and from under a sub path."""

from __future__ import annotations

import functools
import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kvlab.cli import main
from kvlab.runs.scenario import scenario_names

if TYPE_CHECKING:
    from playwright.sync_api import Page

MOST_BYTES = 1_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site") / "course" / "kv cache"
    assert main(["site", "--no-lab", str(place)]) == 0
    return place


@pytest.fixture(scope="module")
def over_http(folder: Path) -> Iterator[str]:
    """The folder on a plain web server, two levels down."""

    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    handler = functools.partial(Silent, directory=str(folder.parents[1]))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/course/kv%20cache/"
        server.shutdown()


def test_every_lesson_is_there_small_and_linked(folder: Path):
    pages = {path.name: path.read_text("utf-8") for path in folder.iterdir()}
    lessons = {f"{name}.html" for name in scenario_names()}
    assert set(pages) == {"index.html", *lessons}
    for name, text in pages.items():
        assert len(text.encode()) < MOST_BYTES, name
        links = set(re.findall(r'<a [^>]*?href="([^"]*)"', text))
        assert links <= set(pages), f"{name} leads to {links - set(pages)}"
        if name == "index.html":
            assert links == lessons
        else:
            assert "index.html" in links


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "file").write_text("")
    assert main(["site", str(tmp_path / "file")]) == 2
    assert "cannot be made" in capsys.readouterr().err
    assert main(["site", str(tmp_path / "new"), "--language", "xx"]) == 2


@pytest.mark.browser
@pytest.mark.parametrize("way", ["disk", "http"])
def test_a_reader_goes_from_lesson_to_lesson(
    folder: Path, page: Page, trouble: Any, way: str, request: pytest.FixtureRequest
):
    start = folder.as_uri() + "/" if way == "disk" else request.getfixturevalue("over_http")
    page.goto(start + "index.html")
    page.get_by_role("link", name="Figure 1").click()
    said = page.locator(".k-guide")
    before = said.inner_text()
    page.locator("[data-control=forward]").click()
    page.wait_for_function(
        "before => document.querySelector('.k-guide').innerText !== before", arg=before
    )
    page.get_by_role("link", name="Figure 2").click()
    page.locator("h1", has_text="Skipping is not releasing").wait_for()
    assert page.url.startswith(start + "figure-2.html")
    page.get_by_role("link", name="All lessons").click()
    page.get_by_role("heading", name="Beyond the figures").wait_for()
    assert not trouble, trouble
