"""What one more person costs: the memory of a kernel, and of a server of one's own under a Hub.

Memory is the proportional set size of Linux: pages that several processes share are counted in
equal parts, so that the numbers of all processes add up to what is taken.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Any

from kvlab.bench.classroom import pss
from kvlab.errors import BadInput

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "notebooks" / "dashboard.ipynb"
LIVE_RUN = "from kvlab.runs.run import run_lesson; run_lesson('figure-5'); None"
PATIENCE = 180
"""Seconds for one stage."""

Say = Callable[[str], None]


def bench_kernel(count: int, say: Say) -> None:
    """Measure `count` kernels that live at the same time, and one server. Raises BadInput where
    there is no Linux to ask."""
    if not Path("/proc/self/smaps_rollup").is_file():
        raise BadInput("bench kernel: it reads /proc/<pid>/smaps_rollup, which only Linux has")
    stages = {"started": "None", "the page is on show": page_source(), "one live run": LIVE_RUN}
    say(f"{'':<36}{'MiB each':>10}{'seconds':>10}")
    first = 0.0
    with kernels(count) as running:
        for stage, code in stages.items():
            took = [run(client, code) for _, client in running]
            memory = mean(pss(pid) for pid, _ in running)
            first = first or memory
            row = f"kernel: {stage}"
            say(f"{row:<36}{memory / 2**20:>10.0f}{mean(took):>10.1f}   {memory / first:.1f} x")
    memory, seconds = server()
    row = "server of one person, no kernel yet"
    say(f"{row:<36}{memory / 2**20:>10.0f}{seconds:>10.1f}   {memory / first:.1f} x")


def page_source() -> str:
    """The code of the dashboard's notebook."""
    cells = json.loads(PAGE.read_text("utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


@contextmanager
def kernels(count: int) -> Iterator[list[tuple[int, Any]]]:
    """Process ids and clients of kernels; all end with the block."""
    from jupyter_client.manager import start_new_kernel

    started: list[tuple[Any, Any]] = []
    try:
        for _ in range(count):
            silent = subprocess.DEVNULL
            started.append(start_new_kernel(cwd=str(PAGE.parent), env=environment(), stderr=silent))
        yield [(manager.provisioner.pid, client) for manager, client in started]
    finally:
        for manager, client in started:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


def run(client: Any, code: str) -> float:
    """Seconds that the code takes. Raises RuntimeError where it fails."""
    began = time.monotonic()
    answer = client.execute_interactive(code, timeout=PATIENCE, output_hook=lambda _: None)
    if answer["content"]["status"] != "ok":
        raise RuntimeError(f"the kernel says: {answer['content'].get('evalue')}")
    return time.monotonic() - began


def server() -> tuple[float, float]:
    """Bytes of the server that each person gets under a Hub, and seconds until it answers."""
    from kvlab.server import address

    sockets = address.listen(0, 0)
    port = address.number(sockets)
    for one in sockets:
        one.close()
    token = secrets.token_urlsafe(16)
    config = ROOT / "assets" / "jupyterhub" / "jupyter_server_config.py"
    command = [
        *(sys.executable, "-m", "jupyter_server", f"--config={config}", "--allow-root"),
        *(f"--port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}"),
    ]
    began = time.monotonic()
    silent = subprocess.DEVNULL
    process = subprocess.Popen(
        command, env=environment(), stdin=silent, stdout=silent, stderr=silent
    )
    try:
        while not answers(f"http://{address.HOST}:{port}/login"):
            if process.poll() is not None or time.monotonic() > began + PATIENCE:
                raise RuntimeError("the server did not start")
            time.sleep(0.1)
        return pss(process.pid), time.monotonic() - began
    finally:
        process.terminate()
        process.wait()


def answers(url: str) -> bool:
    """Whether a server speaks there, whatever it says."""
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def environment() -> dict[str, str]:
    """Kernel and server find `kvlab` and the page's template."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "JUPYTER_PATH": str(ROOT / "assets")}
