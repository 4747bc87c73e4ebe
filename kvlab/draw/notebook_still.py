"""What a widget leaves in a notebook: a still, in whose place the live widget is shown.

An output with a widget's own mime type is saved as a reference to a model that is gone when the
notebook is opened again ("model not found"), and a converted notebook asks a CDN for it. So the
output of a cell holds a still alone, as HTML. While its kernel runs, a model in the page
finds the still by its class name and puts the widget's view there. It also says which language the
page speaks, and what is answered is written into the still, so that a saved notebook has it.
"""

from __future__ import annotations

import os
import sys
import weakref
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import traitlets
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display

from kvlab.errors import BadInput
from kvlab.trace.speech import LANGUAGE, Speech

NAME = "kvlab-still"
VIEW = "application/vnd.jupyter.widget-view+json"

Bundle = tuple[dict[str, Any], dict[str, Any]]


class StillReplacer(anywidget.AnyWidget):
    """Shows `widget` (a model's id) wherever the page has an element of the class `still`."""

    _esm = Path(__file__).with_name("notebook_still.js").read_text("utf-8")

    still = traitlets.Unicode("").tag(sync=True)
    widget = traitlets.Unicode("").tag(sync=True)
    language = traitlets.Unicode(LANGUAGE, help="What the widget speaks.").tag(sync=True)


class Kept:
    """A widget that a notebook keeps: its output is a still, and follows the page's language."""

    model_id: str
    language: Any = LANGUAGE

    def _repr_mimebundle_(self, **kwargs: Any) -> Bundle:
        raise NotImplementedError

    def speak(self, speech: Speech) -> None:
        """The same in another language."""

    def _ipython_display_(self) -> None:
        """Shown under a name, so that the still can be replaced later."""
        self._publish(update=False)

    def keep(self) -> None:
        """Write what the still says now into the notebook, where it has been shown."""
        if InteractiveShell.initialized():
            self._publish(update=True)

    def _publish(self, *, update: bool) -> None:
        data, metadata = self._repr_mimebundle_()
        name = f"{NAME}-{self.model_id}"
        display(data, metadata=metadata, raw=True, display_id=name, update=update)


REPLACERS: weakref.WeakKeyDictionary[ipywidgets.Widget, StillReplacer] = weakref.WeakKeyDictionary()


def spoken_to(widget: ipywidgets.Widget, content: object) -> None:
    """The page says which language it speaks; one that we do not know is not heard."""
    language = content.get("language") if isinstance(content, dict) else None
    if not isinstance(language, str) or not isinstance(widget, Kept):
        return
    try:
        speech = Speech(language)
    except BadInput:
        return
    if language != widget.language:
        widget.speak(speech)
        widget.keep()
    REPLACERS[widget].language = language


def with_still(widget: ipywidgets.Widget, still: str, text: str) -> Bundle:
    """A display bundle of `widget`: `still` is HTML, `text` the same for a terminal.

    The editors that build a widget only where they find its mime type get that beside the still.
    """
    name = f"{NAME}-{widget.model_id}"
    data = {"text/plain": text, "text/html": f'<div class="{NAME} {name}">{still}</div>'}
    if needs_view():
        view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
        return data | {"text/html": still, VIEW: view}, {}
    if widget not in REPLACERS:
        REPLACERS[widget] = replacer = StillReplacer(
            still=name, widget=widget.model_id, language=getattr(widget, "language", LANGUAGE)
        )
        weakref.finalize(widget, replacer.close).atexit = False
        shown = weakref.ref(widget)
        replacer.on_msg(lambda _, content, __: spoken_to(shown(), content))
    return data, {}


def needs_view() -> bool:
    """VS Code and Colab load no widget manager for a page without a widget's mime type."""
    return "VSCODE_PID" in os.environ or "google.colab" in sys.modules
