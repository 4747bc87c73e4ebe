"""What a page of the dashboard is, and the part that most of them have: a run in a player."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import ipywidgets

from kvlab.draw.player import Player
from kvlab.pages import views
from kvlab.pages.place import Query
from kvlab.pages.visit import Visit
from kvlab.trace.document import Trace
from kvlab.trace.ranges import lesson_range
from kvlab.trace.speech import Speech


class Page(ABC):
    """One page. It is built when it is first opened.

    `widget` is what is shown; `query` leads back to what is on show, and `open` goes there. `moved`
    is called when `query` has changed, with `new=True` when a run has just been made. Callbacks are
    guarded: what goes wrong becomes a card.
    """

    name: ClassVar[str]
    widget: ipywidgets.Widget

    def __init__(self, visit: Visit, moved: Callable[..., None]) -> None:
        self.visit, self.moved = visit, moved
        self.speech: Speech = visit.speech
        self.card = ipywidgets.HTML().add_class("kp-card-place")
        self.wrong: list[str] = []

    @property
    @abstractmethod
    def query(self) -> Query:
        """What leads back to what is on show, without the cursor."""

    @abstractmethod
    def open(self, query: Query) -> None:
        """Show what a query says; what it does not say is as on a first visit, what it says wrongly
        too, and a sentence says so."""

    def fail(self, message: str) -> None:
        """Show a card; take it away with an empty message."""
        self.card.value = views.card(message, self.speech)

    def named(self, query: Query, field: str, names: Sequence[str], key: str, default: str) -> str:
        """The name that an address has in a field, or the default; `tell_wrong` says of one that is
        none of ours (`key` is the sentence's)."""
        name = query.get(field, default)
        if name in names:
            return name
        self.wrong.append(self.speech(key, name=name[:60], names=list(names), shown=default))
        return default

    def tell_wrong(self) -> None:
        """Say what `named` had not found."""
        if self.wrong:
            self.fail(" ".join(self.wrong))
        self.wrong = []

    @property
    def on_show(self) -> tuple[str, str]:
        """(model id of the player whose cursor belongs into the address, name of its run)."""
        return "", ""

    def remember(self, kept: dict[str, Any]) -> None:
        """Take back what the browser tab had kept of this page; most have nothing to take."""
        return

    def came(self) -> None:
        """The page is turned to: what another page has made meanwhile can be taken."""
        return

    def leave(self) -> None:
        """The page is closed for good: nothing of it runs on."""
        panel = getattr(self, "panel", None)
        if panel is not None:
            panel.stop()


def play(player: Player, trace: Trace, title: str = "", whole: bool = False) -> None:
    """Put a run into a player, opened on its lesson's part, or on the whole of it."""
    start, stop = (0, len(trace.events)) if whole else lesson_range(trace)
    with player.hold_sync():
        player.show(trace)
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
