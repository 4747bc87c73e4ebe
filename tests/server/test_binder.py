"""What Binder builds and starts, without Docker: the same files, through the same commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[2]
BINDER = ROOT / ".binder"
TOKEN = "binder-token"


def test_the_build_takes_the_torch_of_the_lab_without_cuda():
    ours = re.search(r"^torch==(\S+)", (ROOT / "requirements.txt").read_text(), re.M)
    assert ours
    theirs = (BINDER / "requirements.txt").read_text()
    assert f"torch=={ours[1]}+cpu\n" in theirs
    assert "-r ../requirements.txt" in theirs


@pytest.mark.skipif(sys.platform == "win32", reason="Binder's scripts are for Linux")
def test_its_scripts_may_run_and_hand_over():
    for name in ("postBuild", "start"):
        assert os.access(BINDER / name, os.X_OK), f"{name} is not executable"
    shown = subprocess.run(
        [
            BINDER / "start",
            sys.executable,
            "-c",
            "import os, kvlab; print(os.environ['JUPYTER_PATH'])",
        ],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.startswith(str(ROOT / "assets"))


@pytest.fixture
def session(tmp_path: Path) -> Iterator[str]:
    """The server of one visitor, started as the image's entry point does; its address."""
    from ports import free_port

    port = free_port()
    log = tmp_path / "log"
    command = [
        *(str(BINDER / "start"), sys.executable, "-m", "jupyterlab", "--no-browser"),
        *("--allow-root", f"--port={port}", "--ServerApp.port_retries=0"),
        f"--IdentityProvider.token={TOKEN}",
    ]
    own = {f"JUPYTER_{name}_DIR": str(tmp_path) for name in ("CONFIG", "DATA", "RUNTIME")}
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,  # a Binder's home is the repository
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **own},
        )
    try:
        until(lambda: process.poll() is not None or "is running at" in log.read_text())
        assert process.poll() is None, log.read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


@pytest.mark.long
@pytest.mark.browser
def test_a_visitor_gets_the_page_and_the_notebooks(
    session: str, new_page: Callable[..., Page], trouble: Any
):
    page = new_page(viewport={"width": 1280, "height": 1000})
    page.goto(f"{session}/voila/render/notebooks/dashboard.ipynb?token={TOKEN}")
    page.locator(".kvlab-player [data-free]").wait_for(timeout=120_000)
    assert page.title().endswith("kvlab")
    before = page.locator(".kvlab-player .k-guide").inner_text()
    page.locator(".kvlab-player [data-control=forward]").click()
    page.wait_for_function(
        "before => document.querySelector('.kvlab-player .k-guide').innerText !== before",
        arg=before,
    )
    page.goto(f"{session}/lab/tree/notebooks/01-running-out.ipynb")
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=60_000)
    assert not trouble.outside, trouble
