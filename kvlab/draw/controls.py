"""The controls of the pages, and the bounds on what they send.

A widget's message may hold anything, so a choice is a place in a list of ours and a number has a
least and a most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import ipywidgets

from kvlab.errors import BadInput
from kvlab.trace.speech import ENGLISH, Speech


def bounded(index: object, items: Sequence[object]) -> int:
    """A place in a list of ours. Raises BadInput for anything else."""
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(items):
        raise BadInput(f"there is no choice number {str(index)[:20]}.")
    return index


def bounded_number(
    value: object, what: str, least: float, most: float, speech: Speech = ENGLISH
) -> float:
    """A finite number from `least` to `most`. Raises BadInput, naming `what`, for anything else."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not least <= number <= most:  # false for what is no number, too
        ends = {"least": speech.number(least, ",g"), "most": speech.number(most, ",g")}
        raise BadInput(speech("page.no_number", what=what, value=str(value)[:20], **ends))
    return float(number)


def pills(labels: Sequence[str], name: str, index: int | None = None) -> ipywidgets.RadioButtons:
    """Radio buttons that the style sheet draws in a row."""
    return ipywidgets.RadioButtons(
        options=list(labels), index=index, tooltip=name, layout={"width": "auto"}
    )


def menu(labels: Sequence[str], name: str, index: int = 0) -> ipywidgets.Dropdown:
    """One of many, with its name before it."""
    return ipywidgets.Dropdown(
        options=list(labels),
        index=index,
        description=name,
        style={"description_width": "auto"},
        layout={"width": "auto"},
    )


def button(label: str, primary: bool = False) -> ipywidgets.Button:
    return ipywidgets.Button(description=label, button_style="primary" if primary else "")


def name_of(text: str) -> ipywidgets.HTML:
    """A label beside a control."""
    return ipywidgets.HTML(f'<span class="kp-name-of">{escape(text)}</span>')


def stack(*children: ipywidgets.Widget) -> ipywidgets.Box:
    """One below the other."""
    return ipywidgets.VBox(list(children)).add_class("kp-stack")


def flow(*children: ipywidgets.Widget) -> ipywidgets.Box:
    """Side by side, as many as fit."""
    return ipywidgets.Box(list(children)).add_class("kp-bar-of-controls")


def columns(*children: ipywidgets.Widget) -> ipywidgets.Box:
    """Side by side in columns of one width, below each other where there is no room."""
    return ipywidgets.Box(list(children)).add_class("kp-columns")


def show_if(widget: ipywidgets.DOMWidget, yes: bool) -> None:
    widget.layout.display = None if yes else "none"
