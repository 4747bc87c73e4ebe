"""What a person is told outside of the pages: that something does not fit, and how far a long task is.

The standard library alone: the launcher says these things before anything is installed.
"""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO


def printable(text: str) -> str:
    """The text with all that a reader cannot see written out as in Python: line breaks, control
    characters, characters that turn the direction of writing or have no form."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text
    )


def memory_ran_out(error: BaseException) -> bool:
    """Whether an error says that there was no memory left: Python's own, or torch's on any device."""
    told = ("can't allocate memory", "out of memory", "can't start new thread")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in told)
    )


def reason_of(error: BaseException) -> str:
    """What a library's error says, in a few words: torch names lines of its sources."""
    return "out of memory" if memory_ran_out(error) else (str(error).splitlines() or [""])[0]


class BadInput(ValueError):
    """What is wrong, where, and what to do, in one sentence. The command line exits with status 2.

    What people gave us may stand in it: it is made `printable` here, once for all messages.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(printable(sentence))

    def _render_traceback_(self) -> list[str]:
        """What IPython shows for it in a notebook: the sentence, without the way through our code."""
        return [f"{type(self).__name__}: {self}"]


class NotSupportedYet(BadInput):
    """A scenario asks for a feature of the contract that this release does not have."""


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
