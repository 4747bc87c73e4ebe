"""Where a server of the lab listens: 127.0.0.1 unless told otherwise, on a port that is free."""

from __future__ import annotations

import contextlib
import errno
import io
import ipaddress
import os
import socket
import sys
import threading
import webbrowser

from kvlab.errors import BadInput

HOST = "127.0.0.1"
TRIES = 100


def listen(port: int | None, first: int, ip: str = HOST) -> list[socket.socket]:
    """A listening socket: on `port`, or where that is None on the first free one from `first`
    on. Browsers that come before the server is ready wait in its queue. Raises BadInput."""
    check(ip)
    if port is not None:
        if not 0 <= port <= 65535:
            raise BadInput(f"--port {port}: a port is a number from 1 to 65535")
        try:
            return _bind(port, ip)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM) and port < 1024:
                why = f"ports below 1024 are the system's: take a higher one, such as {first}"
            else:
                why = "another program has it: leave --port out to get the next free one"
            raise BadInput(f"port {port} on {ip} cannot be taken: {why}") from error
    for candidate in range(first, first + TRIES):
        try:
            return _bind(candidate, ip)
        except OSError:
            continue
    raise BadInput(
        f"no port from {first} to {first + TRIES - 1} is free on {ip}: give one with --port"
    )


def _bind(port: int, ip: str) -> list[socket.socket]:
    from tornado.netutil import bind_sockets

    return bind_sockets(port, ip)


def check(ip: str) -> None:
    """Raises BadInput for what is no address of this machine's."""
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(ip).version == 6 else socket.AF_INET
        with socket.socket(family) as probe:
            probe.bind((ip, 0))
    except (ValueError, OSError) as error:
        raise BadInput(
            f"--ip {ip}: give an IP address of this machine; 0.0.0.0 means all of them"
        ) from error


def is_loopback(ip: str) -> bool:
    return ipaddress.ip_address(ip).is_loopback


def names(ip: str) -> list[str]:
    """How browsers may call a server that listens on `ip`; the likeliest first."""
    found = ipaddress.ip_address(ip)
    if not found.is_unspecified:
        return [f"[{ip}]" if found.version == 6 else ip]
    return [*_own_addresses(), HOST]


def _own_addresses() -> list[str]:
    """This machine's IPv4 addresses towards other networks. Nothing is sent: connecting a datagram
    socket only looks up which address would be used."""
    found = []
    for there in ("192.0.2.1", "192.168.255.254", "10.255.255.254", "172.31.255.254"):
        with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as probe:
            probe.connect((there, 9))
            found.append(probe.getsockname()[0])
    return [one for one in dict.fromkeys(found) if not is_loopback(one)]


def show_code(url: str) -> None:
    """The address as a QR code, on terminals that have its characters and room for it."""
    import segno

    text = io.StringIO()
    segno.make(url, error="m", micro=False).terminal(text, border=2, compact=True)
    with contextlib.suppress(UnicodeEncodeError, LookupError):
        text.getvalue().encode(sys.stdout.encoding or "ascii")
        # White on black, whatever the terminal's own colours are.
        colours = ("\x1b[97;40m", "\x1b[0m") if sys.stdout.isatty() else ("", "")
        for line in text.getvalue().splitlines():
            print(line.join(colours))


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
