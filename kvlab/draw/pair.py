"""Two runs of one scenario side by side, on one axis of steps, with their differences named."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from kvlab.draw.notebook_still import Bundle, Kept, with_still
from kvlab.draw.packed import pack
from kvlab.draw.player import BUNDLE, Player
from kvlab.trace.differences import difference_table
from kvlab.trace.document import Trace
from kvlab.trace.narration import load_words
from kvlab.trace.speech import Speech, in_language
from kvlab.trace.table import Table

MOST_STEP = 10**9
"""The largest number that the page may send as a step."""


class Pair(Kept, anywidget.AnyWidget):
    """Shows two traces: one slider drives both, `fork` is the step from which on the second differs.

        Pair(before, after, fork=3)
        Pair(one, other, names=("Recompute", "Swap"))

    Raises BadInput for a trace that does not fit and for a language without words.
    """

    _esm = Player._esm
    _css = Player._css + (BUNDLE / "pair.css").read_text("utf-8")

    packed = traitlets.Bytes(help="The first run as it travels: JSON, deflated, no summary.").tag(
        sync=True
    )
    packed_other = traitlets.Bytes(help="The second run likewise.").tag(sync=True)
    fork = traitlets.Int(0, help="The step from which on the runs may differ; 0: no mark.").tag(
        sync=True
    )
    step = traitlets.Int(0, help="The step that both show; 0: before the first.").tag(sync=True)
    title = traitlets.Unicode("", help="Heading; empty: the first scenario's title.").tag(sync=True)
    note = traitlets.Unicode("", help="A warning above the runs; empty: none.").tag(sync=True)
    words = traitlets.Dict(help="The catalogue of the language.").tag(sync=True)
    table = traitlets.Dict(help="The differences: caption, head, rows, note.").tag(sync=True)

    def __init__(
        self,
        before: Trace,
        after: Trace,
        *,
        fork: int = 0,
        title: str = "",
        note: str = "",
        language: str = "en",
        names: tuple[str, str] | None = None,
    ) -> None:
        self.traces, self.names = (before, after), names
        super().__init__(fork=fork, step=fork, title=title, note=note)
        self.speak(Speech(language))

    def speak(self, speech: Speech) -> None:
        """The same in another language."""
        self.language = speech.language
        words = dict(load_words(speech.language))
        if self.names:  # two runs in their own right, not one and what became of it
            own = {"before": self.names[0], "after": self.names[1]}
            own["differences"] = words["pair"]["differences_between"]
            words["pair"] = {**words["pair"], **own}
        self.differences = difference_table(*self.traces, words)
        packed, packed_other = (pack(in_language(one.document, speech)) for one in self.traces)
        with self.hold_sync():
            self.set_trait("words", words)
            self.set_trait("packed", packed)
            self.set_trait("packed_other", packed_other)
            self.set_trait("table", as_json(self.differences))

    @traitlets.validate("step", "fork")
    def _check_step(self, proposal: traitlets.Bunch) -> int:
        value: int = proposal["value"]
        return max(0, min(value, MOST_STEP))

    def _repr_mimebundle_(self, **kwargs: Any) -> Bundle:
        """The widget, and the table of differences for readers without a kernel."""
        return with_still(self, self.differences.as_html(), self.differences.as_markdown())


def as_json(table: Table) -> dict[str, Any]:
    """What the page needs of a table."""
    return {
        "caption": table.caption,
        "head": list(table.head),
        "rows": [list(row) for row in table.rows],
        "note": table.note,
    }
