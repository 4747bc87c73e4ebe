"""Ports, and whether a browser can be opened."""

from __future__ import annotations

import socket
import sys

import pytest

from kvlab.errors import BadInput
from kvlab.server import address


def test_a_port_that_is_taken_is_refused_when_it_was_asked_for():
    taken = address.listen(0, 0)
    port = address.number(taken)
    try:
        with pytest.raises(BadInput, match=f"port {port} on 127.0.0.1 cannot be taken"):
            address.listen(port, 0)
    finally:
        for one in taken:
            one.close()


def test_else_the_next_free_one_is_taken_and_only_on_this_machine():
    taken = address.listen(0, 0)
    port = address.number(taken)
    other = address.listen(None, port)
    try:
        assert port < address.number(other) < port + address.TRIES
        assert {one.getsockname()[0] for one in other} == {"127.0.0.1"}
        with socket.create_connection(("127.0.0.1", address.number(other)), timeout=5):
            pass  # it waits in the queue until the server is there
    finally:
        for one in (*taken, *other):
            one.close()


@pytest.mark.parametrize("port", [-1, 65536, 10**9])
def test_a_number_that_is_no_port_is_refused(port: int):
    with pytest.raises(BadInput, match="a port is a number from 1 to 65535"):
        address.listen(port, 0)


@pytest.mark.parametrize(
    ("platform", "environment", "screen"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("linux", {"BROWSER": "firefox"}, True),
        ("darwin", {}, True),
        ("win32", {}, True),
    ],
)
def test_no_text_browser_is_opened_in_the_terminal(
    platform: str, environment: dict[str, str], screen: bool, monkeypatch: pytest.MonkeyPatch
):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert address.has_screen() is screen
