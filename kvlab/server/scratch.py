"""What lies on the disk while a server runs: the files by which it speaks to its kernels."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PREFIX = "kvlab-"
LOCKED_WITHIN = 60
"""Seconds after which a folder without a lock is nobody's: it is made before it is locked."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """A folder that is there as long as its server. One that was killed leaves its own behind: the
    next server takes that away, as nobody holds its lock."""
    _take_away_what_is_left()
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as folder:
        held = _lock(Path(folder))
        try:
            yield folder
        finally:
            if held is not None:
                os.close(held)


def _take_away_what_is_left() -> None:
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}????????"):
        with contextlib.suppress(OSError):
            about = left.lstat()
            if about.st_uid != os.getuid() or about.st_mtime > time.time() - LOCKED_WITHIN:
                continue
            if (held := _lock(left)) is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(held)


def _lock(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock until it is closed or its process ends. None where
    another process has it, or where folders have none (Windows)."""
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock

        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (ImportError, OSError):
        return None
    try:
        flock(held, LOCK_EX | LOCK_NB)
    except OSError:
        os.close(held)
        return None
    return held
