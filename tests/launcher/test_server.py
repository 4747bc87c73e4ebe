"""The servers, with a notebook that stands in for the dashboard."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from waiting import until

from kvlab.server.server import DashboardSettings, _config

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[2]

STAND_IN = """
import anywidget, ipywidgets, traitlets
import kvlab  # must be found from any folder

count = ipywidgets.Label(value="0")
button = ipywidgets.Button(description="press")
button.on_click(lambda _: setattr(count, "value", str(int(count.value) + 1)))

class Mine(anywidget.AnyWidget):
    _esm = '''export default { render({ model, el }) {
        const node = document.createElement("output");
        node.className = "mine";
        node.textContent = "n is " + model.get("n");
        el.append(node);
    } };'''
    n = traitlets.Int(3).tag(sync=True)

ipywidgets.VBox([button, count, Mine()])
"""


def notebook(folder: Path, source: str) -> Path:
    cell: dict[str, Any] = {
        "cell_type": "code",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
    }
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    document = {
        "cells": [{**cell, "id": "only", "source": source}],
        "metadata": {"kernelspec": spec, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path = folder / "stand-in.ipynb"
    path.write_text(json.dumps(document))
    (folder / "secret.png").write_bytes(b"not for visitors")
    return path


@pytest.fixture(scope="module")
def served(serve: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("stand-in")
    return serve("app", "--notebook", str(notebook(folder, STAND_IN)), cwd=folder)


def get(served: Any, path: str, **headers: str) -> tuple[int, str, str]:
    """Status, body and content policy of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode("utf-8", "replace")
    policy = answer.getheader("Content-Security-Policy", "")
    connection.close()
    return answer.status, body, policy


def kernels(served: Any) -> list[psutil.Process]:
    found = []
    for child in psutil.Process(served.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # one that is ending just now
            if "ipykernel_launcher" in " ".join(child.cmdline()):
                found.append(child)
    return found


@pytest.mark.browser
def test_widgets_work_and_nothing_is_asked_of_other_machines(served: Any, page: Page, trouble: Any):
    page.goto(served.url)
    page.get_by_role("button", name="press").click()
    page.get_by_text("1", exact=True).wait_for()
    assert page.locator(".mine").inner_text() == "n is 3"
    assert page.title() == "kvlab"
    assert "setattr" not in page.content(), "the page shows its source"
    assert not trouble, trouble


@pytest.mark.browser
@pytest.mark.parametrize(("scheme", "light"), [("light", "true"), ("dark", "false")])
def test_light_and_dark_follow_the_visitor(
    served: Any, new_page: Callable[..., Page], scheme: str, light: str
):
    page = new_page(color_scheme=scheme)
    page.goto(served.url)
    page.locator(".mine").wait_for()

    def look() -> tuple[str, bool]:
        shade = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
        return page.evaluate("document.body.dataset.jpThemeLight"), int(shade) > 127

    assert look() == (light, scheme == "light")
    page.emulate_media(color_scheme="dark" if scheme == "light" else "light")
    until(lambda: look() == ("false" if light == "true" else "true", scheme == "dark"), page)


@pytest.mark.browser
def test_a_closed_page_leaves_no_kernel_behind(served: Any, page: Page):
    earlier = kernels(served)
    page.goto(served.url)
    page.locator(".mine").wait_for()
    (kernel,) = (one for one in kernels(served) if one not in earlier)
    page.close(run_before_unload=True)
    until(lambda: kernel not in kernels(served))


@pytest.mark.parametrize(
    "path",
    [
        "/voila/files/stand-in.ipynb",
        "/voila/files/secret.png",
        "/voila/api/contents",
        "/api/contents",
        "/voila/tree",
        "/api/kernels",
    ],
)
def test_only_the_page_is_served(served: Any, path: str):
    status, body, _ = get(served, path)
    assert status in (302, 403, 404)
    assert "secret" not in body
    assert "setattr" not in body


def test_a_name_that_is_made_to_point_here_is_refused(served: Any):
    status, body, policy = get(served, "/", Host="evil.example")
    assert status == 403
    assert "https://" not in body
    assert "default-src 'self'" in policy, "the browser is told to ask nobody else"
    assert "evil" not in served.log.read_text()


def test_the_terminal_shows_two_lines(served: Any):
    lines = served.log.read_text().splitlines()
    assert lines[0] == f"kvlab: the lab is at http://127.0.0.1:{served.port}/"
    assert lines[1:] == ["kvlab: Ctrl-C ends it"]


def test_a_cell_that_fails_shows_no_traceback_to_the_visitor(
    serve: Callable[..., Any], tmp_path: Path
):
    broken = serve("app", "--notebook", str(notebook(tmp_path, "1 / (1 - 1)  # mine")))
    status, body, _ = get(broken, "/")
    assert status == 200
    assert "ZeroDivisionError" not in body
    assert "The terminal that the lab was started in says why." in body
    assert "ZeroDivisionError" in broken.log.read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_the_end_takes_every_kernel_along(serve: Callable[..., Any], tmp_path: Path, name: str):
    served = serve("app", "--notebook", str(notebook(tmp_path, "1 + 1")))
    assert get(served, "/")[0] == 200
    (kernel,) = kernels(served)
    os.kill(served.process.pid, getattr(signal, name))
    assert served.process.wait(timeout=20) == 0
    assert not kernel.is_running() or kernel.status() == psutil.STATUS_ZOMBIE
    assert "Traceback" not in served.log.read_text()


def test_idle_kernels_end_and_visitors_choose_nothing(tmp_path: Path):
    settings = DashboardSettings(tmp_path / "x.ipynb", idle_seconds=77, cull_every_seconds=7)
    config = _config(settings, settings.notebook, 1234)
    assert config.MappingKernelManager == {
        "cull_idle_timeout": 77,
        "cull_interval": 7,
        "cull_connected": False,
    }
    page = config.VoilaConfiguration
    assert (page.allow_template_override, page.allow_theme_override) == ("NO", "NO")
    assert (page.strip_sources, page.show_tracebacks, page.file_allowlist) == (True, False, [])


@pytest.mark.browser
def test_jupyterlab_opens_on_the_notebooks_without_asking_other_machines(
    serve: Callable[..., Any], page: Page, trouble: Any
):
    served = serve("lab")
    first = min(path.name for path in (ROOT / "notebooks").glob("0*.ipynb"))
    assert f"/lab/tree/{first}?token=" in served.url
    assert get(served, "/api/contents")[0] == 403, "it wants its token"
    page.goto(served.url)
    page.locator(".jp-Notebook .jp-MarkdownCell").first.wait_for(timeout=60_000)
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(timeout=60_000)
    assert page.get_by_text("notified about official").count() == 0
    assert not trouble.outside, trouble
    assert not trouble.console, trouble
