"""The player: one widget that moves through a recorded run, on the client alone.

The browser gets the whole trace once and never asks the kernel for a step; the kernel hears where
the reader has come to rest (`cursor`, a quarter of a second late). What is drawn is a function of
the trace and the cursor: see kvlab/widgets/js/src.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from kvlab.errors import BadInput
from kvlab.trace import replay
from kvlab.trace.document import Trace
from kvlab.trace.narration import fill, load_words, narrate

BUNDLE = Path(__file__).parent / "js" / "dist"
MOST_BLOCKS_IN_FALLBACK = 64


class Player(anywidget.AnyWidget):
    """Shows a trace and moves through it.

        Player(trace=document, start=17, stop=31, title="Figure 2")

    Raises BadInput for a trace that does not fit, a range outside of it or a language without
    words; TypeError for a keyword that it does not know.
    """

    # Text, not a path: a path would keep every closed widget alive.
    _esm = (BUNDLE / "player.js").read_text("utf-8")
    _css = (BUNDLE / "player.css").read_text("utf-8")

    trace = traitlets.Dict(help="The trace document (kvlab.trace.document).").tag(sync=True)
    start = traitlets.Int(0, help="First cursor of the range that the buttons keep to.").tag(
        sync=True
    )
    stop = traitlets.Int(
        None, allow_none=True, help="Last cursor of that range; None: the end of the run."
    ).tag(sync=True)
    cursor = traitlets.Int(
        0, help="Events before the picture. Set from Python it moves the player at once."
    ).tag(sync=True)
    title = traitlets.Unicode("", help="Heading; empty: the scenario's title.").tag(sync=True)
    language = traitlets.Unicode("en", help="A catalogue in kvlab/trace/words.").tag(sync=True)

    def __init__(self, trace: dict[str, Any] | Trace, **traits: Any) -> None:
        unknown = sorted(set(traits) - {"start", "stop", "cursor", "title", "language", "layout"})
        if unknown:
            raise TypeError(f"Player does not know {', '.join(unknown)}")
        document = trace.document if isinstance(trace, Trace) else trace
        # The trace goes first: start, stop and cursor are checked against it.
        super().__init__(trace=document)
        for name in ("start", "stop", "language", "title", "layout"):
            if name in traits:
                setattr(self, name, traits[name])
        self.cursor = traits.get("cursor", self.start)

    @traitlets.validate("trace")
    def _check_trace(self, proposal: traitlets.Bunch) -> dict[str, Any]:
        return Trace.from_json(proposal["value"], "player").document

    @traitlets.observe("trace")
    def _fit_to_trace(self, change: traitlets.Bunch) -> None:
        """A shorter run: what pointed behind its end points at its end."""
        events = len(self.trace["events"])
        self.start = min(self.start, events)
        self.cursor = min(self.cursor, events)
        if self.stop is not None:
            self.stop = min(self.stop, events)

    @traitlets.validate("start", "cursor", "stop")
    def _check_cursor(self, proposal: traitlets.Bunch) -> int | None:
        value, name = proposal["value"], proposal["trait"].name
        events = len(self.trace.get("events", ()))
        if value is not None and not 0 <= value <= events:
            raise BadInput(f"player: {name} must be between 0 and {events}, not {value}.")
        checked: int | None = value
        return checked

    @traitlets.validate("language")
    def _check_language(self, proposal: traitlets.Bunch) -> str:
        load_words(proposal["value"])
        language: str = proposal["value"]
        return language

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The widget, and beside it a picture for readers without a kernel or a widget manager."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        return data | {"text/plain": self.as_text(), "text/html": self.as_html()}, metadata

    def as_text(self) -> str:
        """Where the player stands, in a few lines."""
        state = replay.state_at(self.trace, self.cursor)
        return "\n".join([self._heading(), self._sentence(), self._free(state), *_rows(state)])

    def as_html(self) -> str:
        """The same as a static table, without script or style of its own."""
        state = replay.state_at(self.trace, self.cursor)
        blocks = "".join(
            f"<tr><th>P{at}</th><td>{escape(', '.join(block['owners']) or block['status'])}</td>"
            + "".join(f"<td>{escape(_cell(cell))}</td>" for cell in block["cells"])
            + "</tr>"
            for at, block in enumerate(state["blocks"][:MOST_BLOCKS_IN_FALLBACK])
        )
        requests = "".join(f"<li>{escape(row)}</li>" for row in _rows(state))
        return (
            f"<p><b>{escape(self._heading())}</b></p><p>{escape(self._sentence())}</p>"
            f"<p>{escape(self._free(state))}</p><table>{blocks}</table><ul>{requests}</ul>"
        )

    def _heading(self) -> str:
        words = load_words(self.language)
        scenario, run = self.trace["scenario"], self.trace["run"]
        player = words["player"]
        step = self.trace["events"][self.cursor - 1]["step"] if self.cursor else 0
        made = player["recorded" if self.trace["recorded"] else "just_now"]
        parts = [
            self.title or scenario.get("title") or scenario["name"],
            fill(
                player["step_of" if step else "before_step"],
                {"step": step, "steps": len(self.trace["steps"])},
                words,
            ),
            fill(
                player["event_of"],
                {"event": self.cursor, "events": len(self.trace["events"])},
                words,
            ),
            fill(made, {"device": run["device"]}, words),
        ]
        return " · ".join(parts)

    def _sentence(self) -> str:
        words = load_words(self.language)
        if not self.cursor:
            sentence: str = words["player"]["before_first"]
            return sentence
        return narrate(self.trace["events"][self.cursor - 1], words)

    def _free(self, state: replay.State) -> str:
        words = load_words(self.language)
        counts = {"free": state["free"], "total": len(state["blocks"])}
        return fill(words["player"]["free_of"], counts, words)


def _cell(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "·"
    return f"{cell['id']} {cell['position']}" if cell["live"] else f"({cell['position']})"


def _rows(state: replay.State) -> list[str]:
    """One line a request: state, the four numbers, the block table."""
    return [
        f"{name}: {request['state'].replace('_', ' ')}, history {request['history']}, "
        f"KV {request['kv']}, blocks {len(request['table'])}, sent {request['delivered']}"
        + "".join(f" P{block}" for block in request["table"])
        for name, request in state["requests"].items()
    ]
