"""The bar at the top: the five pages as links, and the address that leads back to what is on show.

The browser keeps the address; Python says what stands in it (`query`), the player's cursor is added
on the client. What a person wrote is kept by the browser tab as well (sessionStorage), so that it
outlives the kernel; the bar tells when that is gone. Only the form of what the page sends is checked
here: whoever opens a place looks names up in lists of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import anywidget
import traitlets

from kvlab.draw.player import answer_heartbeat

HERE = Path(__file__).parent
HEARTBEAT = HERE.parent / "draw" / "js" / "src" / "heartbeat.js"
LONGEST_QUERY = 16_000  # characters; servers take 64 kB of headers
MOST_FIELDS = 40
LARGEST_KEPT = 500_000  # characters of JSON

Query = dict[str, str]


class Place(anywidget.AnyWidget):
    """Top bar and address of the dashboard.

    `on_go(query, kept)` is called when the page has loaded and when the reader goes back or forward;
    `on_page(name)` when a link of the bar is pressed.
    """

    # The bar asks like a player whether its kernel is there: one module of two texts.
    _esm = "\n".join(path.read_text("utf-8") for path in (HEARTBEAT, HERE / "place.js"))
    _css = (HERE / "place.css").read_text("utf-8")

    pages: traitlets.List[list[str]] = traitlets.List(help="[name, label] of each page.").tag(
        sync=True
    )
    page = traitlets.Unicode(help="The page on show.").tag(sync=True)
    query = traitlets.Unicode(help="What leads back to it, without the cursor.").tag(sync=True)
    answered = traitlets.Int(0, help="How often Python has gone where it was asked to go.").tag(
        sync=True
    )
    player = traitlets.Unicode(help="Model id of the player whose cursor is in the address.").tag(
        sync=True
    )
    run = traitlets.Unicode(help="Name of that player's run: its answers are kept by it.").tag(
        sync=True
    )
    kept = traitlets.Dict(help="What the browser tab keeps for the reader.").tag(sync=True)

    def __init__(
        self,
        pages: list[tuple[str, str]],
        on_go: Callable[[Query, dict[str, Any]], None],
        on_page: Callable[[str], None],
    ) -> None:
        super().__init__(pages=[list(pair) for pair in pages])
        self._on_go, self._on_page = on_go, on_page
        self.on_msg(self._hear)
        self.on_msg(answer_heartbeat)

    def show(self, page: str, query: Mapping[str, str], player: str = "", run: str = "") -> None:
        """Put a place into the address, in one message."""
        with self.hold_sync():
            self.page = page
            self.player = player
            self.run = run
            self.query = urlencode({"page": page, **query})

    def _hear(self, _: Any, content: Any, buffers: Any) -> None:
        if not isinstance(content, dict):
            return
        if content.get("type") == "page":
            self._on_page(str(content.get("page"))[:40])
        elif content.get("type") == "go":
            self._on_go(read_query(content.get("query")), read_kept(content.get("kept")))
            self.answered += 1


def read_query(text: object) -> Query:
    """The fields of a query string; nothing for what is none, or is too long."""
    if not isinstance(text, str) or len(text) > LONGEST_QUERY:
        return {}
    try:
        return dict(parse_qsl(text.lstrip("?#"), max_num_fields=MOST_FIELDS))
    except ValueError:
        return {}


def read_kept(kept: object) -> dict[str, Any]:
    """What a tab had kept; nothing for what is no mapping, or is too large."""
    if not isinstance(kept, dict):
        return {}
    try:
        return kept if len(json.dumps(kept)) <= LARGEST_KEPT else {}
    except (TypeError, ValueError, RecursionError):
        return {}
