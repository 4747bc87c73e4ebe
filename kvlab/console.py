"""What the launcher says, on stderr alone: stdout belongs to the command that is started."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

from kvlab.errors import BadInput


class CannotStart(BadInput):
    """The lab cannot start on this machine as it is: what, where, and what to do."""


def size(count: int) -> str:
    """A number of bytes as a person reads it: `192 MB`, `2.7 GB`."""
    if count >= 10**9:
        return f"{count / 10**9:.1f} GB"
    if count >= 10**6:
        return f"{count / 10**6:.0f} MB"
    return f"{max(1, count // 1000)} kB"


def duration(seconds: float) -> str:
    """`7 s`, `2 min 05 s`."""
    whole = int(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


class Console:
    """Lines that stay, and one status line that is overwritten (a terminal) or repeated now and
    then (a log)."""

    QUIET = 15.0
    """Seconds between two status lines in a log."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream if stream is not None else sys.stderr
        self.terminal = self.stream.isatty()
        self._status = ""
        self._said_at = time.monotonic()

    def say(self, line: str) -> None:
        self._wipe()
        self._write(f"kvlab: {line}\n")
        self._said_at = time.monotonic()

    def status(self, line: str) -> None:
        """What is being done just now; call it as often as you like."""
        if self.terminal:
            width = shutil.get_terminal_size().columns - 1
            self._wipe()
            self._status = f"  {line}"[:width]
            self._write(self._status)
        elif time.monotonic() - self._said_at >= self.QUIET:
            self.say(line)

    def done(self) -> None:
        """The status line has served."""
        self._wipe()

    def _wipe(self) -> None:
        if self._status:
            self._write("\r" + " " * len(self._status) + "\r")
            self._status = ""

    def _write(self, text: str) -> None:
        encoding = self.stream.encoding or "ascii"
        self.stream.write(text.encode(encoding, "replace").decode(encoding))
        self.stream.flush()
