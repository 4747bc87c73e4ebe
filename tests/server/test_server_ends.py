"""Kernels that do not come, and servers that end: no half page is kept, no traceback is printed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from types import SimpleNamespace
from typing import Any

import pytest
from apart import run

from kvlab.server import server
from kvlab.server.forked import Child, Forks
from kvlab.server.forkserver import ForkServer
from kvlab.server.pool import MOST_FAILURES, Pool

linux = pytest.mark.skipif(sys.platform != "linux", reason="kernels fork on Linux alone")


class Rendered:
    """A rendering whose kernel came, or died at its start."""

    def __init__(self, fails: bool) -> None:
        self.fails, self.failed, self.done, self.stopped = fails, False, False, False
        self.work: Any = None

    async def start(self) -> None:
        async def render() -> None:
            self.failed, self.done = self.fails, True

        self.work = asyncio.ensure_future(render())

    async def stop(self) -> None:
        self.stopped = True

    async def alive(self) -> bool:
        return not self.stopped


def heated(fates: list[bool]) -> tuple[Pool, list[Rendered]]:
    made: list[Rendered] = []

    def make() -> Any:
        made.append(Rendered(fates[len(made)] if len(made) < len(fates) else fates[-1]))
        return made[-1]

    async def fill() -> Pool:
        pool = Pool(make, lambda: 2)
        pool.fill()
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


def test_a_system_without_room_for_a_process_costs_one_kernel_not_all(
    monkeypatch: pytest.MonkeyPatch,
):
    def full() -> int:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("kvlab.server.forkserver.os.fork", full, raising=False)
    ours, theirs = socket.socketpair()
    forks = ForkServer.__new__(ForkServer)  # without the signals of a process of its own
    forks.line, forks.left, forks.children = theirs, b"", set()
    ours.sendall(b'{"id": 7}\n')
    assert forks.listen(None)  # type: ignore[arg-type]
    said = ours.recv(1000)
    assert json.loads(said) == {"id": 7, "failed": "Resource temporarily unavailable"}

    async def told() -> None:
        client = Forks.__new__(Forks)
        asked: asyncio.Future[Child] = asyncio.get_running_loop().create_future()
        client.waiting, client.children, client.ready = {7: asked}, {}, asyncio.Event()
        reader = asyncio.StreamReader()
        reader.feed_data(said)
        listener = asyncio.create_task(client.listen(reader))
        with pytest.raises(RuntimeError, match="could not be forked: Resource temporarily"):
            await asked
        assert not listener.done()  # the line is as it was
        listener.cancel()

    run(told())
    ours.close()
    theirs.close()


@linux
def test_a_child_that_has_just_ended_can_still_be_ended(monkeypatch: pytest.MonkeyPatch):
    def gone(*_: object) -> None:
        raise ProcessLookupError

    monkeypatch.setattr("kvlab.server.forked.os.kill", gone)
    Child(4).kill()


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


@pytest.mark.full
def test_a_request_whose_head_never_ends_is_closed(serve: Callable[..., Any]):
    served = serve("serve", "--class", "1", "--heated", "0", "--token", "none")
    with socket.create_connection(("127.0.0.1", served.port)) as slow:
        slow.settimeout(server.HEAD_SECONDS + 15)
        slow.sendall(b"GET / HTTP/1.1\r\nX")
        assert slow.recv(100) == b""
