"""A closed Jupyter server answers with the page's addresses alone, whoever asks."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from traitlets.config import Config
from waiting import until

from kvlab.server.extension import configure

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "the-right-token"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Of a server with the committed configuration and, instead of a Hub's login, a token."""
    from ports import free_port

    port, folder = free_port(), tmp_path_factory.mktemp("closed")
    log = folder / "log"
    own = {f"JUPYTER_{name}_DIR": str(folder) for name in ("CONFIG", "DATA", "RUNTIME")}
    paths = {"PYTHONPATH": str(ROOT), "JUPYTER_PATH": str(ROOT / "assets")}
    config = ROOT / "assets" / "jupyterhub" / "jupyter_server_config.py"
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "jupyter_server", f"--config={config}", "--allow-root"),
                *(f"--port={port}", f"--IdentityProvider.token={TOKEN}", "--no-browser"),
            ],
            cwd=folder,
            env={**os.environ, **own, **paths},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        until(lambda: process.poll() is not None or "is running at" in log.read_text())
        assert process.poll() is None, log.read_text()
        # Not always the port that was free a moment ago: it then takes the next one.
        taken = until(lambda: re.search(r"http://[^\s/]+:(\d+)/", log.read_text()))
        yield int(taken[1])
    finally:
        process.kill()
        process.wait()


def ask(port: int, method: str, path: str, token: str = TOKEN) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, headers={"Authorization": f"token {token}"})
    answer = connection.getresponse()
    body = answer.read().decode("utf-8", "replace")
    connection.close()
    return answer.status, body


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/lab"),
        ("GET", "/tree"),
        ("GET", "/api/contents"),
        ("GET", "/api/contents/dashboard.ipynb"),
        ("GET", "/%61pi/contents"),
        ("GET", "//api/contents"),
        ("GET", "/files/dashboard.ipynb"),
        ("GET", "/nbconvert/html/dashboard.ipynb"),
        ("GET", "/api/kernels"),
        ("POST", "/api/kernels"),
        ("POST", "/api/sessions"),
        ("POST", "/api/terminals"),
        ("GET", "/api/status"),
        ("GET", "/voila/render/01-running-out.ipynb"),
        ("GET", "/voila/tree"),
        ("GET", "/voila/files/dashboard.ipynb"),
        ("GET", "/voila/static/../../../../../../etc/hostname"),
        # Somebody else's kernel and one that is not there look alike.
        ("GET", "/api/kernels/00000000-0000-4000-8000-000000000000"),
        ("POST", "/voila/api/shutdown/00000000-0000-4000-8000-000000000000"),
    ],
)
def test_nothing_but_the_page(port: int, method: str, path: str):
    status, body = ask(port, method, path)
    assert status in (403, 404), body
    assert "nbformat" not in body
    assert str(ROOT) not in body


def test_the_page_itself_asks_who_is_there_and_its_code_is_served(port: int):
    status, _ = ask(port, "GET", "/", token="wrong")
    assert status == 302, "without the login it leads there, and no kernel starts"
    assert ask(port, "GET", "/voila/static/voila.js")[0] == 200


def test_no_message_of_a_page_is_code():
    closed, opened = Config(), Config()
    configure(closed)
    configure(opened, notebooks=True)
    allowed = closed.MappingKernelManager.allowed_message_types
    assert "comm_msg" in allowed
    assert not {"execute_request", "complete_request", "inspect_request"} & set(allowed)
    assert "allowed_message_types" not in opened.MappingKernelManager
    for one in (closed, opened):
        assert one.VoilaConfiguration.template == "kvlab"
        assert one.VoilaConfiguration.show_tracebacks is False
