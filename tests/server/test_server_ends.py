"""Kernels that do not come, and servers that end: no half page is kept, no traceback is printed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from multiprocessing.connection import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from apart import run

from kvlab.server import forkserver, server
from kvlab.server.forked import Child, Forks
from kvlab.server.pool import MOST_FAILURES, Pool
from kvlab.server.scratch import PREFIX, scratch_folder

linux = pytest.mark.skipif(sys.platform != "linux", reason="kernels fork on Linux alone")


class Rendered:
    """A rendering whose kernel came, or died at its start."""

    def __init__(self, fails: bool) -> None:
        self.fails, self.failed, self.done, self.stopped = fails, False, False, False
        self.work: Any = None

    async def start(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

        async def render() -> None:
            self.failed, self.done = self.fails, True

        self.work = asyncio.ensure_future(render())

    async def stop(self) -> None:
        self.stopped = True

    async def alive(self) -> bool:
        return not self.stopped


def heated(fates: list[bool], asked: int = 1) -> tuple[Pool, list[Rendered]]:
    made: list[Rendered] = []

    def make() -> Any:
        made.append(Rendered(fates[len(made)] if len(made) < len(fates) else fates[-1]))
        return made[-1]

    async def fill() -> Pool:
        pool = Pool(make, lambda: 2)
        for _ in range(asked):
            pool.fill()
            await asyncio.sleep(0)
        while pool.tasks:
            await asyncio.gather(*pool.tasks)
        return pool

    return run(fill()), made


def test_a_kernel_that_died_at_its_start_leaves_the_pool_and_another_takes_its_place():
    pool, made = heated([True, False])
    assert [one.failed for one in made] == [True, False, False]
    assert made[0].stopped
    assert sorted(map(id, pool.heated)) == sorted(map(id, made[1:]))


def test_where_none_comes_it_is_not_tried_for_ever():
    pool, made = heated([True])
    assert not pool.heated
    assert MOST_FAILURES <= len(made) <= MOST_FAILURES + 1  # two at a time
    assert all(one.stopped for one in made)


def test_one_that_is_just_starting_is_counted():
    """However often it is asked meanwhile, there are no more than were wanted."""
    pool, made = heated([False], asked=5)
    assert len(made) == len(pool.heated) == 2


@linux
def test_a_system_without_room_for_a_process_costs_one_kernel_not_all(
    monkeypatch: pytest.MonkeyPatch,
):
    def full(*_: object) -> int:
        raise OSError(11, "Resource temporarily unavailable")

    ours, theirs = Pipe()
    forks = Forks.__new__(Forks)
    forks.line, forks.memory, forks.broken, forks.turn = ours, 0, False, threading.Lock()
    monkeypatch.setattr(forkserver, "fork", full)
    server = threading.Thread(target=forkserver.serve, args=(theirs,))
    server.start()
    with pytest.raises(RuntimeError, match="could not be forked: Resource temporarily"):
        forks.ask(["ipykernel_launcher"], {}, "/")
    monkeypatch.setattr(forkserver, "fork", lambda *_: os.getpid())
    child = forks.ask(["ipykernel_launcher"], {}, "/")
    assert child is not None
    assert (child.pid, child.poll()) == (os.getpid(), None)
    ours.close()
    server.join(10)
    assert not server.is_alive()


@linux
def test_a_child_that_has_ended_is_known_and_cannot_be_hit():
    process = subprocess.Popen(["sleep", "60"])
    child = Child(process.pid)
    assert child.poll() is None
    child.kill()
    assert process.wait(10) == -signal.SIGKILL
    assert child.poll() is not None
    child.kill()  # whoever has its number now is not meant
    assert Child(process.pid).poll() is not None, "ended before it could be held"


@pytest.mark.parametrize(
    ("platform", "folder", "expected"),
    [
        ("linux", "/tmp", "ipc"),
        ("linux", "/" + "a" * 60, "tcp"),  # a socket's path has 107 bytes at most
        ("darwin", "/tmp", "tcp"),
        ("win32", "/tmp", "tcp"),
    ],
)
def test_kernels_are_spoken_to_by_files_where_their_paths_fit(
    monkeypatch: pytest.MonkeyPatch, platform: str, folder: str, expected: str
):
    monkeypatch.setattr(tempfile, "tempdir", folder)
    monkeypatch.setattr(server, "sys", SimpleNamespace(platform=platform))
    assert server.transport() == expected


@pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them")
def test_a_server_that_is_ended_while_a_page_is_rendered_says_nothing(serve: Callable[..., Any]):
    served = serve("app")

    def visit() -> None:
        with contextlib.suppress(OSError, HTTPException):  # cut off, as it should be
            urllib.request.urlopen(served.url, timeout=30).read()

    visitor = threading.Thread(target=visit)
    visitor.start()
    visitor.join(1)
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(20) == 0
    visitor.join(10)
    lines = served.log.read_text().splitlines()
    assert [line for line in lines if not line.startswith("kvlab: ")] == []


@pytest.mark.long
@linux
def test_a_killed_server_takes_its_kernels_along_and_the_next_one_cleans_up(
    serve: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Nothing runs on after a SIGKILL of the server or of its fork server; what lay on the disk is
    taken away by the next start, or at once by an end that is heard of."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    options = ("serve", "--class", "1", "--heated", "1", "--token", "none")
    served = serve(*options)
    with urllib.request.urlopen(served.url, timeout=60) as page:
        assert page.status == 200
    process = psutil.Process(served.process.pid)
    family = process.children(recursive=True)
    assert len(family) >= 2
    process.kill()
    served.process.wait(10)
    assert psutil.wait_procs(family, timeout=20)[1] == []
    (left,) = tmp_path.glob(f"{PREFIX}*")

    served = serve(*options)
    assert left.exists(), "it is not old enough to be nobody's"
    process = psutil.Process(served.process.pid)
    (forkserver,) = process.children()
    forkserver.kill()
    with urllib.request.urlopen(served.url, timeout=60) as page:
        assert page.status == 200, "a kernel is started as elsewhere"
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(20) == 0
    assert [*tmp_path.glob(f"{PREFIX}*")] == [left]

    os.utime(left, (0, 0))
    with scratch_folder() as own:
        assert not left.exists()
        os.utime(own, (0, 0))
        with scratch_folder() as another:
            assert Path(own).exists(), "its server lives"
            assert another != own
    assert [*tmp_path.glob(f"{PREFIX}*")] == []


@pytest.mark.long
def test_a_request_whose_head_never_ends_is_closed(serve: Callable[..., Any]):
    served = serve("serve", "--class", "1", "--heated", "0", "--token", "none")
    with socket.create_connection(("127.0.0.1", served.port)) as slow:
        slow.settimeout(server.HEAD_SECONDS + 15)
        slow.sendall(b"GET / HTTP/1.1\r\nX")
        assert slow.recv(100) == b""
