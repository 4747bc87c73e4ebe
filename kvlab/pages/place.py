"""The top line: the five pages, the chapters, and the address that leads back to what is on show.

The browser keeps the address; Python says what stands in it (`query`), the player's cursor is added
on the client. What a person wrote is kept by the browser tab as well (sessionStorage), so that it
outlives the kernel; the line tells when that is gone. Only the form of what the page sends is checked
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
MOST_LANGUAGES = 10

Query = dict[str, str]


class Place(anywidget.AnyWidget):
    """Top line and address of the dashboard.

    `on_go(query, kept, languages)` is called when the page has loaded, when the reader goes back or
    forward or asks for another language; `on_page(name)` and `on_chapter(number)` when a link of the
    line is pressed.
    """

    # The line asks like a player whether its kernel is there: one module of two texts.
    _esm = "\n".join(path.read_text("utf-8") for path in (HEARTBEAT, HERE / "place.js"))
    _css = (HERE / "place.css").read_text("utf-8")

    words = traitlets.Dict(help="Texts of the line: the catalogue's group `top`.").tag(sync=True)
    language = traitlets.Unicode(help="The language that is spoken.").tag(sync=True)
    pages: traitlets.List[list[str]] = traitlets.List(help="[name, label] of each page.").tag(
        sync=True
    )
    chapters: traitlets.List[list[str]] = traitlets.List(
        help="[number, label] of each chapter; shown on the Story page."
    ).tag(sync=True)
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
        on_go: Callable[[Query, dict[str, Any], list[str]], None],
        on_page: Callable[[str], None],
        on_chapter: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._on_go, self._on_page, self._on_chapter = on_go, on_page, on_chapter
        self.on_msg(self._hear)
        self.on_msg(answer_heartbeat)

    def show(self, page: str, query: Mapping[str, str], player: str = "", run: str = "") -> None:
        """Put a place into the address, in one message."""
        with self.hold_sync():
            self.page = page
            self.player = player
            self.run = run
            self.query = urlencode(query)

    def to_top(self) -> None:
        """What has just been made is seen: the page is scrolled up to the picture."""
        self.send({"type": "top"})

    def _hear(self, _: Any, content: Any, buffers: Any) -> None:
        if not isinstance(content, dict):
            return
        if content.get("type") == "page":
            self._on_page(str(content.get("page"))[:40])
        elif content.get("type") == "chapter":
            self._on_chapter(str(content.get("chapter"))[:40])
        elif content.get("type") == "go":
            query, kept = read_query(content.get("query")), read_kept(content.get("kept"))
            self._on_go(query, kept, read_languages(content.get("languages")))
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


def read_languages(found: object) -> list[str]:
    """The browser's languages, first the one that its reader likes best: `de` for `de-CH`."""
    if not isinstance(found, list):
        return []
    return [str(one)[:2].lower() for one in found[:MOST_LANGUAGES]]
