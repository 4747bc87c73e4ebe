"""The race: one run brought back in two ways, side by side and in step, with both readers' texts.

What happens in each step is read off the traces here; the page moves it (kvlab/draw/js/src/race.js).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from typing import Any

import anywidget
import traitlets

from kvlab.draw.notebook_still import Bundle, Kept, with_still
from kvlab.draw.player import BUNDLE, Player
from kvlab.draw.stills.marks import owners_of
from kvlab.trace.changes import State
from kvlab.trace.document import Trace
from kvlab.trace.replay import states
from kvlab.trace.speech import LANGUAGE, Speech

MOST_BLOCKS = 32  # of a pool, drawn one by one
MOST_REQUESTS = 4  # whose readers are shown: those that were paused first
MOST_STEP = 10**9

Step = dict[str, Any]


class Race(Kept, anywidget.AnyWidget):
    """Two traces of one scenario, playing beside each other.

        Race(recomputed, swapped)
        Race(one, other, names=("Recompute", "Swap"), language="de")

    Raises BadInput for a language without words.
    """

    _esm = (BUNDLE / "race.js").read_text("utf-8")
    _css = Player._css + (BUNDLE / "race.css").read_text("utf-8")

    race = traitlets.Dict(help="Both runs, step by step: see `race_of`.").tag(sync=True)
    words = traitlets.Dict(help="The language's words.").tag(sync=True)
    step = traitlets.Int(0, help="The step that both show; 0: before the first.").tag(sync=True)

    def __init__(
        self,
        one: Trace,
        other: Trace,
        *,
        names: tuple[str, str] | None = None,
        language: str = LANGUAGE,
    ) -> None:
        self.traces, self.names = (one, other), names
        super().__init__()
        self.speak(Speech(language))

    def speak(self, speech: Speech) -> None:
        """The same in another language."""
        self.language = speech.language
        names = self.names or names_of(self.traces, speech)
        self._still = still(self.traces, names, speech)
        with self.hold_sync():
            self.set_trait("race", race_of(self.traces, names, speech))
            self.set_trait("words", words_of(speech))

    @traitlets.validate("step")
    def _check_step(self, proposal: traitlets.Bunch) -> int:
        value: int = proposal["value"]
        return max(0, min(value, MOST_STEP))

    def _repr_mimebundle_(self, **kwargs: Any) -> Bundle:
        """The widget, and what both readers got for readers without a kernel."""
        lines = self._still
        return with_still(
            self, "".join(f"<p>{escape(line)}</p>" for line in lines), "\n".join(lines)
        )


def names_of(traces: Sequence[Trace], speech: Speech) -> tuple[str, str]:
    """What the two runs are called: by their methods."""
    one, other = (trace.document["scenario"]["engine"]["method"] for trace in traces)
    labels = {"recompute": "compare.recompute", "swap": "compare.swap", "auto": "compare.auto"}
    return tuple(speech(labels[m]) if m in labels else str(m) for m in (one, other))  # type: ignore[return-value]


def words_of(speech: Speech) -> dict[str, Any]:
    """What the page needs of the language."""
    return {
        "language": speech.language,
        "grammar": speech.words["grammar"],
        "forms": speech.words["forms"],
        "race": speech.text("race"),
    }


def race_of(traces: Sequence[Trace], names: Sequence[str], speech: Speech) -> dict[str, Any]:
    """Both runs as the page draws them.

    sides: of each run its name, pools (sizes) and steps; owners: requests and their marks, in the order
    of the trace; readers: those whose texts are shown; most: the larger of both runs' totals;
    verdict: what the two runs show, in a sentence.
    """
    ids = list(dict.fromkeys(one["id"] for trace in traces for one in trace.document["requests"]))
    sides = [side(trace, name) for trace, name in zip(traces, names, strict=True)]
    return {
        "title": speech("race.label", left=names[0], right=names[1]),
        "owners": [asdict(owner) for owner in owners_of(ids).values()],
        "readers": readers(traces, ids),
        "sides": sides,
        "most": {
            total: max(one["steps"][-1][total] if one["steps"] else 0 for one in sides)
            for total in ("computed", "moved")
        },
        "verdict": verdict(traces, names, speech),
    }


def readers(traces: Sequence[Trace], ids: Sequence[str]) -> list[str]:
    """The requests whose texts are shown: those that were paused, then others, in their order."""
    paused = {e["id"] for trace in traces for e in trace.events if e["kind"] == "preempted"}
    chosen = sorted(ids, key=lambda id: id not in paused)[:MOST_REQUESTS]
    return [id for id in ids if id in chosen]


def side(trace: Trace, name: str) -> dict[str, Any]:
    """One run. A step has: pool and host, the owner (or null) of each block once it has ended; model,
    what went through it; copies, pairs of block ids from and to; says, the texts that readers got;
    held, for how many steps a reader has got nothing; ended; computed and moved, totals so far in
    tokens and bytes."""
    pool = trace.document["pool"]
    ends = {step["end"]: step for step in trace.steps}
    made: list[Step] = []
    last: dict[str, int] = {}
    computed = moved = 0
    for cursor, state in enumerate(states(trace.document)):
        entry = ends.get(cursor)
        if entry is None:
            continue
        now, events = entry["step"], trace.events[entry["first"] : entry["end"]]
        copies = copies_in(events)
        model = [
            {key: event[key] for key in ("id", "tokens", "again")}
            for event in events
            if event["kind"] == "scheduled"
        ]
        says: dict[str, str] = {}
        for event in events:
            if event["kind"] == "token_delivered":
                says[event["id"]] = says.get(event["id"], "") + event["text"]
        last |= dict.fromkeys(says, now)
        computed += sum(one["tokens"] for one in model)
        moved += sum(len(one["pairs"]) for one in copies) * pool["kv_bytes_per_block"]
        requests = state["requests"]
        made.append(
            {
                "step": now,
                **pools_of(state, pool),
                "model": model,
                "copies": copies,
                "says": says,
                "held": {
                    id: now - at
                    for id, at in last.items()
                    if at < now and requests[id]["state"] != "finished"
                },
                "ended": [id for id in last if requests[id]["state"] == "finished"],
                "computed": computed,
                "moved": moved,
            }
        )
    sizes = {"num_blocks": pool["num_blocks"], "host_blocks": pool["host_blocks"]}
    return {"name": name, **sizes, "steps": made}


def pools_of(state: State, pool: dict[str, Any]) -> dict[str, list[str | None]]:
    """Who owns each block of the GPU pool, and of the CPU pool; of a shared one the first."""
    gpu = [(state["blocks"][at]["owners"] or [None])[0] for at in shown(pool["num_blocks"])]
    cpu = [state["host_blocks"][at]["owner"] for at in shown(pool["host_blocks"])]
    return {"pool": gpu, "host": cpu}


def shown(blocks: int) -> range:
    return range(min(blocks, MOST_BLOCKS))


def copies_in(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks that arrived in a step, out of the GPU pool or back into it."""
    found = []
    for event in events:
        if event["kind"] in ("swap_out_advanced", "swap_in_advanced"):
            out = event["kind"] == "swap_out_advanced"
            ends = (event["blocks"], event["host_blocks"])
            pairs = [list(pair) for pair in zip(*(ends if out else ends[::-1]), strict=True)]
            found.append({"id": event["id"], "way": "out" if out else "in", "pairs": pairs})
    return found


def outputs(trace: Trace) -> dict[str, str]:
    """The whole text that each reader got."""
    found: dict[str, str] = {}
    for event in trace.events:
        if event["kind"] == "token_delivered":
            found[event["id"]] = found.get(event["id"], "") + event["text"]
    return found


def verdict(traces: Sequence[Trace], names: Sequence[str], speech: Speech) -> str:
    """Both runs' totals in a sentence, and whether their readers got the same text."""
    one, other = (trace.summary for trace in traces)
    same = outputs(traces[0]) == outputs(traces[1])
    moved = [speech.number(s["bytes_swapped_out"] + s["bytes_swapped_in"]) for s in (one, other)]
    return speech(
        "race.verdict" if same else "race.verdict_differs",
        left=names[0],
        right=names[1],
        left_tokens=one["tokens_processed"],
        right_tokens=other["tokens_processed"],
        left_bytes=moved[0],
        right_bytes=moved[1],
    )


def still(traces: Sequence[Trace], names: Sequence[str], speech: Speech) -> list[str]:
    """The race in lines of text: the readers' texts of each run, then the verdict."""
    lines = []
    for trace, name in zip(traces, names, strict=True):
        texts = "; ".join(f"{id}: {text.strip()}" for id, text in outputs(trace).items())
        lines.append(f"{name}. {texts}")
    return [*lines, verdict(traces, names, speech)]
