"""Pages come and go in every way, and the server holds what it held before. No browser."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from apart import run
from tornado.simple_httpclient import HTTPStreamClosedError

from kvlab.bench.visitor import Visitor
from kvlab.server import open_files
from tests.conftest import ROOT, allow

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts what /proc tells")

SERVER = """
import sys
from pathlib import Path
from kvlab.server import server
from kvlab.server.server import DashboardSettings, serve_dashboard
server.HEAD_SECONDS = 600  # who says nothing may stay
serve_dashboard(DashboardSettings(
    Path(sys.argv[3]), port=int(sys.argv[2]), open_browser=False, seats=int(sys.argv[4]), pages=3,
    heated=1, fork=True, abandoned_seconds=5, cull_every_seconds=1, cull_connected=True,
))
"""
PAGE = 'import ipywidgets; ipywidgets.Label(value="here")'
SETTLED_WITHIN = 60
"""Seconds at most, on a machine that does other things as well."""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("leaks") / "page.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(PAGE)]), path)
    return str(path)


async def closed(url: str) -> None:
    one = Visitor(url)
    await one.enter()
    await one.connect()
    await one.widgets()
    await one.leave()


async def closed_before_it_was_connected(url: str) -> None:
    one = Visitor(url)
    await one.enter()
    await one.leave()


async def crashed(url: str) -> None:
    one = Visitor(url)
    await one.enter()
    socket = await one.connect()
    transport = socket.protocol.stream  # type: ignore[union-attr]
    transport.close()  # type: ignore[union-attr]  # without a farewell


async def reloaded_before_it_was_connected(url: str) -> None:
    one = Visitor(url)
    for _ in range(2):
        await one.enter()


async def cut_while_it_was_sent(url: str) -> None:
    host = url.split("/")[2]
    reader, writer = await asyncio.open_connection(*host.split(":"))
    writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    await reader.read(1000)
    writer.transport.abort()


WAYS: list[Callable[[str], Awaitable[None]]] = [
    closed,
    closed_before_it_was_connected,
    crashed,
    reloaded_before_it_was_connected,
    cut_while_it_was_sent,
]


def held(process: psutil.Process) -> tuple[int, int, int]:
    """Open files, threads and kernels."""
    kernels = [one for one in process.children(recursive=True) if one.ppid() != process.pid]
    return process.num_fds(), process.num_threads(), len(kernels)


def settled(process: psutil.Process, at_most: tuple[int, int, int]) -> tuple[int, int, int]:
    """What is held as soon as it is no more than that; at last what is held all the same."""
    end = time.monotonic() + SETTLED_WITHIN
    while time.monotonic() < end:
        if all(now <= most for now, most in zip(held(process), at_most, strict=True)):
            break
        time.sleep(0.2)
    return held(process)


@pytest.mark.parametrize(
    "times", [pytest.param(1, marks=pytest.mark.long), pytest.param(50, marks=pytest.mark.full)]
)
def test_pages_leave_nothing_behind(serve: Callable[..., Any], notebook: str, times: int):
    served = serve(SERVER, notebook, "24")
    process = psutil.Process(served.process.pid)

    async def come_and_go(times: int) -> None:
        for _ in range(times):
            await asyncio.gather(*(way(served.url) for way in WAYS))

    run(come_and_go(1), 120)  # what is made once
    before = settled(process, (70, 12, 1))
    memory = []
    for _ in range(1 if times == 1 else 2):
        run(come_and_go(times), 600)
        assert settled(process, before) <= before, "open files, threads, kernels"
        memory.append(process.memory_info().rss)
    assert memory[-1] < 1.1 * memory[0]
    said = [one for one in served.log.read_text().splitlines() if not one.startswith("kvlab: ")]
    assert said == []


@pytest.mark.long
def test_when_files_run_out_those_who_are_in_stay_and_the_next_is_told(
    serve: Callable[..., Any], notebook: str
):
    limit = open_files.OF_THE_SERVER + 8 * open_files.OF_A_SEAT
    served = serve(SERVER, notebook, "3", open_files=limit)
    process = psutil.Process(served.process.pid)
    host, port = served.url.split("/")[2].split(":")

    async def until(enough: Callable[[int], bool]) -> None:
        end = time.monotonic() + SETTLED_WITHIN
        while not enough(process.num_fds()):
            assert time.monotonic() < end
            await asyncio.sleep(0.05)

    async def crowd() -> None:
        inside, late = Visitor(served.url), Visitor(served.url)
        assert (await inside.enter()).code == 200
        await inside.connect()
        await inside.widgets()
        idle = [(await asyncio.open_connection(host, int(port)))[1] for _ in range(limit)]
        await until(lambda held: held >= limit - open_files.KEPT - 2)
        with pytest.raises(
            (OSError, HTTPStreamClosedError)
        ):  # without a word: there is no other way
            await late.enter()
        assert await inside.widgets()
        leave, some = limit - open_files.OF_A_PAGE + 2, limit - open_files.OF_A_PAGE // 2
        while process.num_fds() > some:
            idle.pop(0).close()
            await asyncio.sleep(0.02)
        assert process.num_fds() >= leave
        full = await late.enter()
        assert (full.code, "The room is full" in full.body.decode()) == (503, True)
        assert await inside.widgets()
        for writer in idle:
            writer.close()
        await until(lambda held: held < limit - 2 * open_files.OF_A_PAGE)
        assert (await late.enter()).code == 200
        for one in (inside, late):
            assert await one.leave() == 204

    run(crowd(), 180)
    said = [one for one in served.log.read_text().splitlines() if not one.startswith("kvlab: ")]
    assert said == []


def test_more_seats_than_a_system_has_files_for_are_refused(
    notebook: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    """On stderr alone, and nothing is served."""
    done = subprocess.run(
        [sys.executable, "-m", "kvlab", "serve", "--class", "30", "--notebook", notebook],
        env={**os.environ, "PYTHONPATH": str(ROOT), "KVLAB_AS_IT_IS": "1"},
        preexec_fn=lambda: allow(512),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "kvlab: 32 seats need 968 open files, and this system allows 512: take at most 13 seats, or "
        "raise the limit (`ulimit -Hn`)\n"
    )


def test_a_limit_that_may_be_raised_is_raised():
    code = (
        "import resource as r; from kvlab.server.open_files import make_room, left;"
        "r.setrlimit(r.RLIMIT_NOFILE, (256, r.getrlimit(r.RLIMIT_NOFILE)[1]));"
        "make_room(30); print(r.getrlimit(r.RLIMIT_NOFILE)[0], left() > 900)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "920 True\n"
