"""One install at a time: the second start waits, and says so."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvlab.errors import Console, duration

WAIT = 0.3


@contextmanager
def only_one(path: Path, console: Console) -> Iterator[int]:
    """Hold the lock in this file; yields its descriptor. The system takes the lock back when the
    process ends, however it ends, so that no lock is ever left behind. Raises OSError where the
    file cannot be opened for writing."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        began = time.monotonic()
        waiting = False
        while not _take(descriptor):
            if not waiting:
                console.say("another start is installing just now: waiting until it is done")
                waiting = True
            console.status(f"waiting [{duration(time.monotonic() - began)}]")
            time.sleep(WAIT)
        console.done()
        yield descriptor
    finally:
        os.close(descriptor)


def _take(descriptor: int) -> bool:
    try:
        if os.name == "nt":
            import msvcrt

            os.lseek(descriptor, 0, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except PermissionError:  # Windows: held by another process
        return False
    except OSError:
        # A file system without locks: better unguarded than unusable.
        return True
    return True
