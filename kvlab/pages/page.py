"""What a page of the dashboard is, and the part that most of them have: a run in a player."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import ipywidgets

from kvlab.draw.player import Player
from kvlab.pages import views
from kvlab.pages.place import Query
from kvlab.pages.visit import Visit
from kvlab.trace.document import Trace
from kvlab.trace.ranges import lesson_range


class Page(ABC):
    """One page. It is built when it is first opened.

    `widget` is what is shown; `query` leads back to what is on show, and `open` goes there. `moved`
    is called when `query` has changed. Callbacks are guarded: what goes wrong becomes a card.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    widget: ipywidgets.Widget

    def __init__(self, visit: Visit, moved: Callable[[], None]) -> None:
        self.visit, self.moved = visit, moved
        self.card = ipywidgets.HTML()

    @property
    @abstractmethod
    def query(self) -> Query:
        """What leads back to what is on show, without the cursor and the page's name."""

    @abstractmethod
    def open(self, query: Query) -> None:
        """Show what a query says; what it does not say, or says wrongly, is as on a first visit."""

    def fail(self, message: str) -> None:
        """Show a card; take it away with an empty message."""
        self.card.value = views.card(message)

    @property
    def on_show(self) -> tuple[str, str]:
        """(model id of the player whose cursor belongs into the address, name of its run)."""
        return "", ""

    def remember(self, kept: dict[str, Any]) -> None:
        """Take back what the browser tab had kept of this page; most have nothing to take."""
        return


def play(player: Player, trace: Trace, title: str = "", whole: bool = False) -> None:
    """Put a run into a player, opened on its lesson's part, or on the whole of it."""
    start, stop = (0, len(trace.events)) if whole else lesson_range(trace)
    with player.hold_sync():
        player.trace = trace.document
        player.stop = None
        player.start = start
        player.stop = stop
        player.cursor = start
        player.title = title


def cursor_in(query: Query, player: Player) -> None:
    """Move a player to the cursor that a query names, where the run has it."""
    text = query.get("cursor", "")
    if text.isascii() and text.isdigit() and len(text) < 10:
        player.cursor = min(int(text), len(player.trace["events"]))
