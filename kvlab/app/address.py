"""Where a server of the lab listens: 127.0.0.1 alone, on a port that is really free."""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
import webbrowser

from kvlab.errors import BadInput

HOST = "127.0.0.1"
TRIES = 100


def listen(port: int | None, first: int) -> list[socket.socket]:
    """A listening socket: on `port`, or where that is None on the first free one from `first`
    on. Browsers that come before the server is ready wait in its queue. Raises BadInput."""
    if port is not None:
        if not 0 <= port <= 65535:
            raise BadInput(f"--port {port}: a port is a number from 1 to 65535")
        try:
            return _bind(port)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM) and port < 1024:
                why = f"ports below 1024 are the system's: take a higher one, such as {first}"
            else:
                why = "another program has it: leave --port out to get the next free one"
            raise BadInput(f"port {port} on {HOST} cannot be taken: {why}") from error
    for candidate in range(first, first + TRIES):
        try:
            return _bind(candidate)
        except OSError:
            continue
    raise BadInput(
        f"no port from {first} to {first + TRIES - 1} is free on {HOST}: give one with --port"
    )


def _bind(port: int) -> list[socket.socket]:
    from tornado.netutil import bind_sockets

    return bind_sockets(port, HOST)


def number(sockets: list[socket.socket]) -> int:
    return int(sockets[0].getsockname()[1])


def announce(what: str, url: str, open_browser: bool) -> None:
    """The two lines that a start prints, and the browser, if one can be shown."""
    print(f"kvlab: {what} at {url}")
    print("kvlab: Ctrl-C ends it", flush=True)
    if open_browser and has_screen():
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def has_screen() -> bool:
    """Whether a graphical browser can open. Without a screen the standard library would start
    one inside the terminal, over what we print there."""
    if sys.platform in ("win32", "darwin") or os.environ.get("BROWSER"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def make_importable(root: str) -> None:
    """Kernels that a server starts find `kvlab`, whatever folder they run in."""
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
