"""The dashboard: a bar with five pages, and the one that is open.

A page is built when it is first opened. Every state has an address: the bar shows it, and goes where
an address says.
"""

from __future__ import annotations

from typing import Any

import ipywidgets

from kvlab.draw.controls import show_if, stack
from kvlab.draw.guard import guarded
from kvlab.errors import BadInput
from kvlab.pages import views
from kvlab.pages.compare import Compare
from kvlab.pages.cost import Cost
from kvlab.pages.delay import Delay
from kvlab.pages.lab import Lab
from kvlab.pages.page import Page
from kvlab.pages.place import Place, Query
from kvlab.pages.story import Story
from kvlab.pages.visit import Visit

PAGES: tuple[type[Page], ...] = (Story, Lab, Compare, Cost, Delay)


def dashboard() -> ipywidgets.Widget:
    """The page as a widget. It never raises: what cannot be shown becomes a card."""
    try:
        return Dashboard().widget
    except BadInput as error:
        return ipywidgets.HTML(f"{views.style()}{views.card(str(error))}")


class Dashboard:
    """The pages by name, as far as they have been opened, and the one on show."""

    def __init__(self) -> None:
        self.visit = Visit()
        self.pages: dict[str, Page] = {}
        self.kept: dict[str, Any] = {}
        self.moving = False
        self.card = ipywidgets.HTML()
        self.place = Place([(one.name, one.label) for one in PAGES], self.go, self.page_chosen)
        self.room = stack().add_class("kp-room")
        self.widget = stack(
            ipywidgets.HTML(views.style()).add_class("kp-hidden"),
            self.place,
            self.card,
            self.room,
            ipywidgets.HTML(views.glossary()).add_class("kp-terms"),
        ).add_class("kvlab-page")
        self.page = self.page_named(Story.name)
        self.turn_to(self.page)

    def page_named(self, name: str) -> Page:
        """The page of this name, built now when it is opened for the first time. Raises BadInput."""
        if name not in self.pages:
            kinds = {one.name: one for one in PAGES}
            if name not in kinds:
                raise BadInput(f"there is no page {name!r}: choose {', '.join(kinds)}.")
            page = kinds[name](self.visit, self.moved)
            page.remember(self.kept)
            self.pages[name] = page
            self.room.children = [*self.room.children, page.widget]
        return self.pages[name]

    def turn_to(self, page: Page) -> None:
        """Show this page and hide the others."""
        self.fail("")
        self.page = page
        for one in self.pages.values():
            show_if(one.widget, one is page)
        self.moved()

    def moved(self) -> None:
        """The address follows what is on show."""
        page = getattr(self, "page", None)
        if page is None or self.moving:
            return
        self.place.show(page.name, page.query, *page.on_show)
        if isinstance(page, Story):
            self.place.kept = {"said": dict(page.said)}

    def fail(self, message: str) -> None:
        self.card.value = views.card(message)

    @guarded
    def go(self, query: Query, kept: dict[str, Any]) -> None:
        """Where an address says, with what the browser tab had kept."""
        if not self.place.answered:  # the page has just been loaded: from now on Python knows more
            self.kept = kept
            for one in self.pages.values():
                one.remember(kept)
        page = self.page_named(query.get("page", Story.name))
        self.moving = True
        try:
            if query or kept:
                page.open(query)
        finally:  # what an address says wrongly is told on its page
            self.moving = False
            self.turn_to(page)

    @guarded
    def page_chosen(self, name: str) -> None:
        self.turn_to(self.page_named(name))
