"""Files that a person names: written whole or not at all, and told apart."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from kvlab.errors import BadInput

LONGEST_NAME = 200
"""Letters of a path that a message shows."""


def refuse_unwritable(path: str | Path) -> None:
    """Raise BadInput where `write_whole` could not put a file, found by trying with an empty one
    beside it: to be asked before work whose result is to be kept."""
    path = Path(path)
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # /dev/stdout, say
            return
        if not path.absolute().parent.is_dir():
            raise BadInput(
                f"{shortened(path)} cannot be written: give a file in a folder that exists."
            )
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        trial = temporary_beside(path.resolve())
        trial.touch()
        trial.unlink()
    except BadInput:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"{shortened(path)} cannot be written ({reason}).") from None


def temporary_beside(path: Path) -> Path:
    """Where a file is made before it takes its place."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def shortened(path: Path) -> str:
    """A path as a sentence can hold it."""
    text = str(path)
    return text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]} …"


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Put `content` (text as UTF-8) into a file, whole or not at all.

    What was there before stays until the new file is complete. Raises BadInput when it cannot be
    written: no such folder, no permission, a full disk.
    """
    path, temporary = Path(path), None
    try:
        data = content.encode("utf-8") if isinstance(content, str) else content
        if path.is_symlink():  # the file that it leads to is replaced, whole or not at all
            path = path.resolve()
        if path.is_symlink() or (path.exists() and not path.is_file()):  # /dev/stdout, say
            path.write_bytes(data)
            return
        temporary = temporary_beside(path)
        temporary.write_bytes(data)
        temporary.replace(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"{shortened(path)} cannot be written ({reason}).") from None
    finally:
        if temporary is not None:
            with suppress(OSError, ValueError):
                temporary.unlink(missing_ok=True)


def same_file(one: Path, other: str | Path) -> bool:
    """Both are there and are one file; a name that no disk can hold is none."""
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return False
