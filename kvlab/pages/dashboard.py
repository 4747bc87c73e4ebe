"""The dashboard: a line with five pages and the chapters, and the page that is open.

A page is built when it is first opened. Every state has an address: the line shows it, and goes where
an address says. The language is the address's (`?lang=de`), else the browser's.
"""

from __future__ import annotations

from typing import Any

import ipywidgets

from kvlab.course.chapters import CHAPTERS
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
from kvlab.trace.narration import languages
from kvlab.trace.speech import LANGUAGE, Speech

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
        self.lang = ""
        """The language that an address asked for; empty: the browser's."""
        self.moving = False
        self.card = ipywidgets.HTML()
        self.place = Place(self.go, self.page_chosen, self.chapter_chosen)
        self.room = stack().add_class("kp-room")
        self.terms = ipywidgets.HTML().add_class("kp-terms")
        self.widget = stack(
            ipywidgets.HTML(views.style()).add_class("kp-hidden"),
            self.place,
            self.card,
            self.room,
            self.terms,
        ).add_class("kvlab-page")
        self.speak(Speech())
        self.page = self.page_named(Story.name)
        self.turn_to(self.page)

    @property
    def speech(self) -> Speech:
        return self.visit.speech

    def speak(self, speech: Speech) -> None:
        """Everything from now on in this language; the pages are built anew when they are opened."""
        self.visit.speech = speech
        for page in self.pages.values():
            page.leave()
        self.pages = {}
        self.room.children = ()
        self.terms.value = views.glossary(speech)
        with self.place.hold_sync():
            self.place.words = speech.text("top")
            self.place.language = speech.language
            self.place.pages = [[one.name, speech(f"top.{one.name}")] for one in PAGES]
            self.place.chapters = [[str(one.number), one.text("short", speech)] for one in CHAPTERS]

    def page_named(self, name: str) -> Page:
        """The page of this name, built now when it is opened for the first time. Raises BadInput."""
        if name not in self.pages:
            kinds = {one.name: one for one in PAGES}
            if name not in kinds:
                raise BadInput(self.speech("page.no_page", name=name, names=list(kinds)))
            page = kinds[name](self.visit, self.moved)
            page.remember(self.kept)
            self.pages[name] = page
            self.room.children = [*self.room.children, page.widget]
        return self.pages[name]

    def turn_to(self, page: Page) -> None:
        """Show this page and hide the others."""
        self.fail("")
        self.page = page
        page.came()
        for one in self.pages.values():
            show_if(one.widget, one is page)
        self.moved()

    def moved(self, new: bool = False) -> None:
        """The address follows what is on show; `new`: what has just been made is to be seen."""
        page = getattr(self, "page", None)
        if page is None or self.moving:
            return
        query = page.query | ({"lang": self.lang} if self.lang else {})
        self.place.show(page.name, query, *page.on_show)
        if isinstance(page, Story):
            self.place.kept = page.kept
        if new:
            self.place.to_top()

    def fail(self, message: str) -> None:
        self.card.value = views.card(message, self.speech)

    @guarded
    def go(self, query: Query, kept: dict[str, Any], wanted: list[str]) -> None:
        """Where an address says, with what the browser tab had kept."""
        if not self.place.answered:  # the page has just been loaded: from now on Python knows more
            self.kept = kept
            for one in self.pages.values():
                one.remember(kept)
        self.choose_language(query.get("lang", ""), wanted)
        name = query.get("page", Story.name)
        try:
            page = self.page_named(name)
        except BadInput as error:
            self.turn_to(self.page_named(Story.name))
            self.fail(str(error))
            return
        self.moving = True
        try:
            if query or kept:
                page.open(query)
        finally:  # what an address says wrongly is told on its page
            self.moving = False
            self.turn_to(page)

    def choose_language(self, asked: str, wanted: list[str]) -> None:
        """The address's language where we speak it, else the first of the browser's that we do."""
        known = languages()
        self.lang = asked if asked in known else ""
        found = self.lang or next((one for one in wanted if one in known), LANGUAGE)
        if found != self.speech.language:
            self.speak(Speech(found))

    @guarded
    def page_chosen(self, name: str) -> None:
        self.turn_to(self.page_named(name))

    @guarded
    def chapter_chosen(self, number: str) -> None:
        story = self.page_named(Story.name)
        assert isinstance(story, Story)
        story.turn(number)
        self.turn_to(story)
