"""A network that can be cut: what lies between a browser and a server of the lab."""

from __future__ import annotations

import contextlib
import socket
import threading


class Wire:
    """Passes bytes on from `port` to the port `to` of this machine, both ways, until it is cut.

    One address for the browser, whatever server is behind it just now.
    """

    def __init__(self, to: int) -> None:
        self.to = to
        self.whole = True
        self.open: set[socket.socket] = set()
        self.door = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.door.getsockname()[1])
        threading.Thread(target=self._answer, daemon=True).start()

    def cut(self) -> None:
        """Whatever is connected is broken off, and whoever comes is turned away."""
        self.whole = False
        for one in tuple(self.open):
            self._end(one)

    def mend(self) -> None:
        self.whole = True

    def close(self) -> None:
        self.cut()
        self._end(self.door)

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.door.accept()
                far = None
                if self.whole:
                    with contextlib.suppress(OSError):
                        far = socket.create_connection(("127.0.0.1", self.to))
                if far is None:
                    near.close()
                    continue
                self.open |= {near, far}
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while got := source.recv(65_536):
                target.sendall(got)
        for one in (source, target):
            self._end(one)

    def _end(self, one: socket.socket) -> None:
        self.open.discard(one)
        with contextlib.suppress(OSError):  # wakes whoever waits for it in another thread
            one.shutdown(socket.SHUT_RDWR)
        one.close()
