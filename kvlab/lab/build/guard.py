"""A learner's code is called, and whatever it does comes back: as a value, or as one sentence."""

from __future__ import annotations

import linecache
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

MOST_LINES = 50_000
"""Lines that one call may run. The largest case needs some hundreds."""
OURS = str(Path(__file__).parents[2])
NOT_THEIRS = (OURS, *{path for path in sysconfig.get_paths().values() if path})
"""Folders in which no learner's code lies: kvlab's, Python's own, installed packages'."""


class Fault(BaseException):
    """What is wrong, in one sentence. No `except Exception` of a learner's hides it."""


class _Lines:
    """Counts the lines that a learner's code runs, and stops it after MOST_LINES of them. A loop
    inside one call of Python's own, such as list(itertools.count()), has no lines to count."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.left = MOST_LINES

    def called(self, frame: FrameType, event: str, argument: object) -> Any:
        return None if frame.f_code.co_filename.startswith(NOT_THEIRS) else self.line

    def line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            self.left -= 1
            if self.left < 0:
                raise Fault(
                    f"`{self.name}` does not end: it was stopped after {MOST_LINES:,} lines, in line "
                    f"{frame.f_lineno}: {_source(frame.f_code.co_filename, frame.f_lineno)}"
                )
        return self.line


_now: _Lines | None = None


@contextmanager
def _counted(name: str) -> Iterator[None]:
    """Count lines until the outermost call of a learner's ends; then trace as before."""
    global _now
    if _now is not None:
        outer, _now.name = _now.name, name
        yield
        _now.name = outer  # not where it raised: the innermost name is told
        return
    before, _now = sys.gettrace(), _Lines(name)
    sys.settrace(_now.called)
    try:
        yield
    finally:
        sys.settrace(before)
        _now = None


def call(name: str, function: Callable[..., Any], *given: Any) -> Any:
    """Call a learner's function. Raises Fault where it raises, with its own line, or does not end."""
    try:
        with _counted(name):
            return function(*given)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not frame.filename.startswith(NOT_THEIRS)]
        what = f"`{name}` raised {type(error).__name__}: {error}"
        if not own:
            raise Fault(what) from error
        line = own[-1].lineno or 0
        raise Fault(f"{what}, in line {line}: {_source(own[-1].filename, line)}") from error


def _source(file: str, line: int) -> str:
    return linecache.getline(file, line).strip() or "(its text is not known)"
