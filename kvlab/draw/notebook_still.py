"""What a widget leaves in a notebook: a still, in whose place the live widget is shown.

An output with a widget's own mime type is saved as a reference to a model that is gone when the
notebook is opened again ("model not found"), and a converted notebook asks a CDN for it. So the
output of a cell holds a still alone, as HTML. While its kernel runs, a model in the page
finds the still by its class name and puts the widget's view there.
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

NAME = "kvlab-still"
VIEW = "application/vnd.jupyter.widget-view+json"

Bundle = tuple[dict[str, Any], dict[str, Any]]


class StillReplacer(anywidget.AnyWidget):
    """Shows `widget` (a model's id) wherever the page has an element of the class `still`."""

    _esm = Path(__file__).with_name("notebook_still.js").read_text("utf-8")

    still = traitlets.Unicode("").tag(sync=True)
    widget = traitlets.Unicode("").tag(sync=True)


REPLACERS: weakref.WeakKeyDictionary[ipywidgets.Widget, StillReplacer] = weakref.WeakKeyDictionary()


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
        REPLACERS[widget] = replacer = StillReplacer(still=name, widget=widget.model_id)
        weakref.finalize(widget, replacer.close).atexit = False
    return data, {}


def needs_view() -> bool:
    """VS Code and Colab load no widget manager for a page without a widget's mime type."""
    return "VSCODE_PID" in os.environ or "google.colab" in sys.modules
