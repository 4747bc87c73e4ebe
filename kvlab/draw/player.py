"""The player: one widget that moves through a recorded run, on the client alone.

The browser gets the whole trace once, deflated, and never asks the kernel for a step; the kernel
hears where the reader has come to rest and what was answered (a quarter of a second late). What is
drawn is a function of the trace and the cursor: see kvlab/draw/js/src.
"""

from __future__ import annotations

from base64 import b64encode
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import anywidget
import traitlets

from kvlab.draw.notebook_still import REPLACERS, Bundle, Kept, with_still
from kvlab.draw.packed import pack
from kvlab.draw.stills.storyboard import storyboard
from kvlab.draw.stills.svg import LIGHT
from kvlab.errors import BadInput
from kvlab.trace import replay
from kvlab.trace.changes import State
from kvlab.trace.document import Trace
from kvlab.trace.narration import Words, fill, load_words, narrate
from kvlab.trace.speech import Speech, in_language

BUNDLE = Path(__file__).parent / "js" / "dist"
MOST_BLOCKS_IN_FALLBACK = 64
MOST_ANSWERS = 1000
LONGEST_TEXT = 2000
LARGEST_NUMBER = 10**9  # in what the page sends
LARGEST_STILL = 500_000  # events × blocks of a run that is drawn when it is displayed


class Player(Kept, anywidget.AnyWidget):
    """Shows a trace and moves through it.

        Player(trace=document, start=17, stop=31, title="Figure 2", predict=True)

    It fills the height that its host names in the CSS variable `--kvlab-fit` on any element around
    it, such as `calc(100dvh - 44px)`; without one most of its window. Raises BadInput for a trace
    that does not fit, a range outside of it or a language without words; TypeError for a keyword that
    it does not know.
    """

    # Text, not a path: a path would keep every closed widget alive.
    _esm = (BUNDLE / "player.js").read_text("utf-8")
    _css = (BUNDLE / "player.css").read_text("utf-8")

    trace = traitlets.Dict(help="The trace document (kvlab.trace.document).")
    packed = traitlets.Bytes(help="The same as it travels: JSON, deflated, no summary.").tag(
        sync=True
    )
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
    language = traitlets.Unicode("en", help="A catalogue in kvlab/trace/words.")
    words = traitlets.Dict(help="The language's catalogue; set by `language`.").tag(sync=True)
    predict = traitlets.Bool(
        False, help="Hold the next step at questions until they are answered or skipped."
    ).tag(sync=True)
    hold = traitlets.Bool(
        True, help="An open question holds the next step; False: who goes on passes it over."
    ).tag(sync=True)
    covered = traitlets.Bool(
        True,
        help="What comes after the cursor is not in the page until the end was reached once.",
    ).tag(sync=True)
    answers: traitlets.List[dict[str, Any]] = traitlets.List(
        help="What was answered: question, cursor, step, ask, text, given, answer, right."
    ).tag(sync=True)
    presenter = traitlets.Bool(False, help="Show the teacher's notes (lesson.notes).").tag(
        sync=True
    )
    guide = traitlets.Dict(
        help="The host's words in the guide, all optional: question and watch (a list) before the "
        "first move, note (what is on show, where that is not the recorded run), why (one sentence) "
        "and next (a label) at the range's end; a press of next is sent as {type: 'next'}."
    ).tag(sync=True)
    link = traitlets.Enum(
        ["", "query", "hash"],
        "",
        help="Where a copied link keeps scenario, method and cursor; empty: no such button.",
    ).tag(sync=True)

    def __init__(self, trace: dict[str, Any] | Trace, **traits: Any) -> None:
        names = [
            "start",
            "stop",
            "language",
            "title",
            "predict",
            "hold",
            "covered",
            "presenter",
            "guide",
            "link",
            "layout",
        ]
        unknown = sorted(set(traits) - {*names, "cursor"})
        if unknown:
            raise TypeError(f"Player does not know {', '.join(unknown)}")
        document = trace.document if isinstance(trace, Trace) else trace
        self._known = trace.document if isinstance(trace, Trace) else None
        # The trace goes first: start, stop and cursor are checked against it.
        super().__init__(trace=document, words=dict(load_words("en")))
        for name in names:
            if name in traits:
                setattr(self, name, traits[name])
        self.cursor = traits.get("cursor", self.start)
        self.on_msg(answer_heartbeat)

    def show(self, trace: Trace) -> None:
        """Put another run into the player."""
        self._known = trace.document
        self.trace = trace.document

    @property
    def place(self) -> str:
        """Where the player stands, as a query: `scenario=figure-5&method=swap&cursor=34`."""
        scenario = self.trace["scenario"]
        return urlencode(
            {
                "scenario": scenario["name"],
                "method": scenario["engine"]["method"],
                "cursor": self.cursor,
            }
        )

    @traitlets.validate("trace")
    def _check_trace(self, proposal: traitlets.Bunch) -> dict[str, Any]:
        """A trace that was made or read here is taken as it is; any other is checked whole."""
        document: dict[str, Any] = proposal["value"]
        if document is not self._known:
            Trace.from_json(document, "player")
        return document

    @traitlets.observe("trace")
    def _fit_to_trace(self, change: traitlets.Bunch) -> None:
        """A shorter run: what pointed behind its end points at its end."""
        events = len(self.trace["events"])
        with self.hold_sync():
            self.packed = pack(in_language(self.trace, Speech(self.language)))
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

    @traitlets.observe("language")
    def _take_words(self, change: traitlets.Bunch) -> None:
        with self.hold_sync():
            self.words = dict(load_words(self.language))
            if self.trace:
                self.packed = pack(in_language(self.trace, Speech(self.language)))

    def speak(self, speech: Speech) -> None:
        """The same in another language."""
        self.language = speech.language

    @traitlets.observe("answers")
    def _keep_answers(self, change: traitlets.Bunch) -> None:
        """What was answered stands in the still, and so in a notebook that is saved."""
        if self in REPLACERS:
            self.keep()

    @traitlets.validate("answers")
    def _bound_answers(self, proposal: traitlets.Bunch) -> list[dict[str, Any]]:
        """A page may send anything: what is not an answer is left out, what is long is cut."""
        entries = [entry for entry in proposal["value"] if isinstance(entry, dict)]
        return [bounded(entry) for entry in entries[-MOST_ANSWERS:]]

    @classmethod
    def from_file(cls, path: str | Path, **traits: Any) -> Player:
        """A player on a trace file (`kvlab run --json`, `kvlab export --trace`).

        Raises BadInput, naming file and place, for one that is missing or does not fit.
        """
        return cls(trace=Trace.read(path), **traits)

    def _repr_mimebundle_(self, **kwargs: Any) -> Bundle:
        """The widget, and the storyboard of its run for readers without a kernel."""
        told = "".join(f"<li>{escape(line)}</li>" for line in self.as_answers())
        still = self.as_still() + (f"<ul>{told}</ul>" if told else "") + self.as_html()
        return with_still(self, still, "\n".join([self.as_text(), *self.as_answers()]))

    def as_answers(self) -> list[str]:
        """A line for each question that was answered."""
        words = load_words(self.language)
        verdicts = {True: "verdict_right", False: "verdict_wrong", None: "verdict_noted"}
        return [
            f"{answer['text']} {fill(words['player'][verdicts[answer['right']]], answer, words)}"
            for answer in self.answers
            if answer["given"] is not None
        ]

    def as_still(self) -> str:
        """The storyboard as an image with a caption; nothing for a run too large to draw."""
        if len(self.trace["events"]) * self.trace["pool"]["num_blocks"] > LARGEST_STILL:
            return ""
        words = load_words(self.language)["player"]
        svg = storyboard(Trace(self.trace), LIGHT, language=self.language, title=self.title)
        picture = b64encode(svg.encode()).decode()
        return (
            f'<figure style="margin:0"><img style="max-width:100%" alt="{escape(self._heading())}" '
            f'src="data:image/svg+xml;base64,{picture}">'
            f"<figcaption>{escape(words['still'])}</figcaption></figure>"
        )

    def as_text(self) -> str:
        """Where the player stands, in a few lines."""
        state = replay.state_at(self.trace, self.cursor)
        lines = [self._heading(), self._sentence(), self._free(state)]
        return "\n".join([*lines, *_rows(state, load_words(self.language))])

    def as_html(self) -> str:
        """The same as a static table, without script or style of its own."""
        state = replay.state_at(self.trace, self.cursor)
        blocks = "".join(
            f"<tr><th>P{at}</th><td>{escape(', '.join(block['owners']) or block['status'])}</td>"
            + "".join(f"<td>{escape(_cell(cell))}</td>" for cell in block["cells"])
            + "</tr>"
            for at, block in enumerate(state["blocks"][:MOST_BLOCKS_IN_FALLBACK])
        )
        rows = _rows(state, load_words(self.language))
        requests = "".join(f"<li>{escape(row)}</li>" for row in rows)
        return (
            f"<details><summary>{escape(self._heading())}</summary><p>{escape(self._sentence())}</p>"
            f"<p>{escape(self._free(state))}</p><table>{blocks}</table><ul>{requests}</ul></details>"
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
            fill(made, {"device": run["device"], "made": run.get("made")}, words),
        ]
        return " · ".join(parts)

    def _sentence(self) -> str:
        words = load_words(self.language)
        if not self.cursor:
            sentence: str = words["player"]["before_first"]
            return sentence
        return narrate(self.trace["events"][self.cursor - 1], words)

    def _free(self, state: State) -> str:
        words = load_words(self.language)
        counts = {"free": state["free"], "total": len(state["blocks"])}
        return fill(words["player"]["free_of"], counts, words)


def answer_heartbeat(widget: Any, content: Any, buffers: Any) -> None:
    """Tell the page that the engine is there; anything but a question for it is not heard."""
    if not isinstance(content, dict) or content.get("type") != "ping":
        return
    beat = content.get("beat")
    if isinstance(beat, int) and abs(beat) < LARGEST_NUMBER:
        widget.send({"type": "pong", "beat": beat})


def bounded(entry: dict[str, Any]) -> dict[str, Any]:
    """An answer with the keys that answers have, and no text longer than a text may be."""
    found: dict[str, Any] = {}
    for name in ("question", "ask", "text", "given", "answer"):
        value = entry.get(name)
        found[name] = None if value is None else str(value)[:LONGEST_TEXT]
    for name in ("cursor", "step"):
        value = entry.get(name)
        found[name] = value if isinstance(value, int) and abs(value) < LARGEST_NUMBER else 0
    right = entry.get("right")
    found["right"] = right if isinstance(right, bool) else None
    return found


def _cell(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "·"
    return f"{cell['id']} {cell['position']}" if cell["live"] else f"({cell['position']})"


def _rows(state: State, words: Words) -> list[str]:
    """One line a request: state, the four numbers, the block table."""
    player = words["player"]
    found = []
    for name, request in state["requests"].items():
        key = request["state"]
        if key == "finished":
            key = f"finished_{request['finish']}"
        numbers = {
            "history": request["history"],
            "kv": request["kv"],
            "blocks": len(request["table"]),
            "sent": request["delivered"],
        }
        parts = [
            fill(player.get(f"state_{key}", key), request, words),
            *(f"{player[f'number_{number}']} {value}" for number, value in numbers.items()),
        ]
        table = "".join(f" P{block}" for block in request["table"])
        found.append(f"{name}: {', '.join(parts)}{table}")
    return found
