"""Open files: as many as the seats need, or a sentence; and what is kept for those who are in.

Whoever connects holds one, a page with its kernel a dozen.
"""

from __future__ import annotations

import errno
import os

from kvlab.errors import BadInput

OF_THE_SERVER = 200
"""Its own, and those of kernels that are just starting."""
OF_A_SEAT = 24
"""A kernel, the sockets between it and its page, and what the browser loads meanwhile."""
OF_A_PAGE = 64
"""Must be free for one more page, kernel and rendering included."""
KEPT = 16
"""Never given to a new connection: for what those who are in have to open."""


def make_room(seats: int) -> None:
    """Raise this process's limit where it is too low for so many seats. Raises BadInput where the
    system does not allow that."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    needed = OF_THE_SERVER + OF_A_SEAT * seats
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    except (ValueError, OSError) as error:
        fit = (hard - OF_THE_SERVER) // OF_A_SEAT
        take = f"take at most {fit} seats, or raise" if fit > 0 else "raise"
        raise BadInput(
            f"{seats} seats need {needed} open files, and this system allows {hard}: {take} the "
            "limit (`ulimit -Hn`)"
        ) from error


def left() -> int:
    """How many more this process may open."""
    try:
        import resource
    except ImportError:
        return OF_A_PAGE
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return OF_A_PAGE
    try:
        return limit - len(os.listdir("/dev/fd"))
    except OSError as error:
        return 0 if error.errno in (errno.EMFILE, errno.ENFILE) else OF_A_PAGE
