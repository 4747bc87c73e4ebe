"""`kvlab serve`: what a teacher starts, and what the room sees. One server with two seats."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from apart import run
from waiting import until

from kvlab.bench.visitor import Visitor, player_of
from kvlab.errors import BadInput
from kvlab.server import answers, classroom

if TYPE_CHECKING:
    from playwright.sync_api import Page

TOKEN = "ROOM-7X9K"
linux = pytest.mark.skipif(sys.platform != "linux", reason="kernels fork on Linux alone")


@pytest.fixture(scope="module")
def room(serve: Callable[..., Any]) -> Any:
    return serve("serve", "--class", "2", "--ip", "0.0.0.0", "--token", TOKEN)


def here(room: Any) -> str:
    return f"http://127.0.0.1:{room.port}/?token={TOKEN}"


def kernels(room: Any) -> list[psutil.Process]:
    server = psutil.Process(room.process.pid)
    return [one for one in server.children(recursive=True) if one.ppid() != server.pid]


def test_the_terminal_shows_address_token_and_code(room: Any):
    until(lambda: "Ctrl-C" in room.log.read_text())
    lines = room.log.read_text().splitlines()
    assert f"kvlab: the token is {TOKEN}" in lines
    assert "kvlab: 2 seats" in lines
    assert sum("█" in line for line in lines) >= 15, "a QR code"
    assert any(line.endswith(f"/?token={TOKEN}") and "the lab is at" in line for line in lines)
    assert f"kvlab: also at http://127.0.0.1:{room.port}/?token={TOKEN}" in lines or (
        f"kvlab: the lab is at {here(room)}" in lines
    )


@linux
def test_two_come_a_third_waits_and_a_closed_page_gives_its_seat(room: Any):
    async def lesson() -> None:
        first, second, third = (Visitor(here(room)) for _ in range(3))
        for one in (first, second):
            assert (await one.enter()).code == 200
            await one.connect()
            await one.ask(player_of(await one.widgets()))
        full = await third.enter()
        assert (full.code, full.headers["Retry-After"]) == (503, str(answers.RETRY_SECONDS))
        assert "All 2 seats" in full.body.decode()
        assert "token" not in (await first.fetch(first.first)).headers["Location"]
        before = {one.pid for one in kernels(room)}
        assert await first.leave() == 204
        assert (await third.enter()).code == 200, "the seat is free at once"
        await third.connect()
        await third.ask(player_of(await third.widgets()))
        await asyncio.to_thread(until, lambda: before - {one.pid for one in kernels(room)})
        assert (await third.fetch(f"/api/kernels/{second.kernel}")).code == 404
        for one in (second, third):
            assert await one.leave() == 204

    run(lesson())


@linux
def test_kernels_share_what_they_import_and_have_a_bound(room: Any):
    one = next(iter(kernels(room)))
    limit = Path(f"/proc/{one.pid}/limits").read_text()
    data = next(line for line in limit.splitlines() if line.startswith("Max data size"))
    assert str(1_536 * 1024 * 1024) in data
    memory = one.memory_full_info()
    assert memory.pss < 0.6 * memory.rss


@pytest.mark.browser
def test_a_person_types_the_token_and_sees_the_lab(room: Any, page: Page, trouble: Any):
    page.goto(f"http://127.0.0.1:{room.port}/")
    page.get_by_label("Token").fill("wrong one")
    page.get_by_role("button", name="Enter").click()
    page.get_by_role("alert").get_by_text("not this room's token").wait_for()
    assert [one.split()[0] for one in trouble.failed] == ["401"]
    trouble.failed.clear()
    trouble.console.clear()  # Chromium names the 401 there
    page.get_by_label("Token").fill("room 7x9k")
    page.keyboard.press("Enter")
    page.locator(".kvlab-player").first.wait_for(timeout=60_000)
    assert not trouble, trouble


@pytest.mark.parametrize(
    ("given", "ip", "token"),
    [("none", "0.0.0.0", ""), ("hall 42 b", "127.0.0.1", "hall 42 b"), (None, "127.0.0.1", "")],
)
def test_tokens_are_as_told(given: str | None, ip: str, token: str):
    assert classroom._token(given, ip) == token


def test_off_this_machine_there_is_always_one():
    made = {classroom._token(None, "0.0.0.0") for _ in range(3)}
    assert len(made) == 3
    assert all(made)


@pytest.mark.parametrize(("given", "ip"), [("abc", "127.0.0.1"), ("-----------", "127.0.0.1")])
def test_weak_tokens_are_refused(given: str, ip: str):
    with pytest.raises(BadInput, match="6 letters and digits"):
        classroom._token(given, ip)


@pytest.mark.parametrize("ip", ["203.0.113.7", "lab", "1.2.3", "::1::"])
def test_other_machines_addresses_are_refused(ip: str):
    with pytest.raises(BadInput, match="an IP address of this machine"):
        classroom._token(None, ip)
