"""`kvlab serve`: the dashboard's server, set for a room of people."""

from __future__ import annotations

from pathlib import Path

from kvlab.errors import BadInput
from kvlab.server import address
from kvlab.server.room import MOST_PAGES
from kvlab.server.server import DashboardSettings, serve_dashboard
from kvlab.server.tokens import new_token, plain

ABANDONED_SECONDS = 90
"""A page that lost its connection may come back for this long, a browser that was offline a minute."""
IDLE_SECONDS = 1_800
SWEEP_SECONDS = 10
FEWEST_LETTERS = 6


def serve_class(
    notebook: Path,
    *,
    seats: int,
    ip: str,
    port: int | None,
    token: str | None,
    heated: int | None,
    memory: int,
    frame_ancestors: tuple[str, ...] = (),
    verbose: bool = False,
) -> None:
    """Serve until Ctrl-C. `token`: None makes one where other machines can come, "none" means that
    none is asked for. `heated`: kernels started ahead, None for as many as seats. `memory`: bytes
    of its own that one kernel may take. Raises BadInput."""
    secret = _token(token, ip)
    serve_dashboard(
        DashboardSettings(
            notebook=notebook,
            port=port,
            open_browser=False,
            hint="only this machine can open it; --ip 0.0.0.0 lets a room in",
            verbose=verbose,
            idle_seconds=IDLE_SECONDS,
            cull_every_seconds=SWEEP_SECONDS,
            cull_connected=True,
            abandoned_seconds=ABANDONED_SECONDS,
            ip=ip,
            seats=seats,
            pages=MOST_PAGES,
            heated=seats if heated is None else heated,
            token=secret,
            memory=memory,
            fork=True,
            frame_ancestors=frame_ancestors,
        )
    )


def _token(given: str | None, ip: str) -> str:
    address.check(ip)
    if given is None:
        return "" if address.is_loopback(ip) else new_token()
    if given.lower() == "none":
        return ""
    if len(plain(given)) < FEWEST_LETTERS or not given.isascii() or len(given) > 100:
        raise BadInput(
            f"--token: give {FEWEST_LETTERS} letters and digits or more, or none to ask for none"
        )
    return given
