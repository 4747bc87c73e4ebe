"""The two ways to come back, each run for real, side by side in numbers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from kvlab.errors import BadInput
from kvlab.lessons.facts import gaps
from kvlab.lessons.runs import load_for, run_lesson
from kvlab.scenario import load_scenario
from kvlab.trace.document import Trace

if TYPE_CHECKING:
    from kvlab.models.loading import LoadedModel

METHODS = ("recompute", "swap")
REPEATS = 20
TOO_SMALL = "too small to decide between the methods"


@dataclass(frozen=True, slots=True)
class Spread:
    """Seconds of a step over repeated runs: the median, and the range of the middle half."""

    median: float
    low: float
    high: float
    repeats: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        """Raises BadInput for fewer than two values: one value has no spread."""
        if len(seconds) < 2:
            raise BadInput(f"{len(seconds)} runs have no spread: repeat at least twice.")
        low, median, high = statistics.quantiles(seconds, n=4, method="inclusive")
        return cls(median, low, high, len(seconds))

    def __str__(self) -> str:
        return (
            f"{self.median * 1e3:.2f} ms ({self.low * 1e3:.2f} to {self.high * 1e3:.2f} ms in the "
            f"middle half of {self.repeats} runs)"
        )


@dataclass(frozen=True, slots=True)
class MethodFacts:
    """What one method kept, did and cost in one run."""

    method: str
    history: int  # tokens kept during the pause
    kv_positions: int  # positions of KV kept outside the GPU during the pause
    bytes_kept: int  # bytes of KV kept outside the GPU during the pause
    recomputed: int  # tokens
    first_time: int  # tokens of the resuming step that had never been computed
    bytes_out: int
    bytes_in: int
    blocks_out: int
    blocks_in: int
    processed: int  # tokens, the whole run
    longest_gap: int  # steps
    seconds: Spread | None = None


def facts_of(trace: Trace, seconds: Spread | None = None) -> MethodFacts:
    """The numbers of one run. Raises BadInput for a run without a preemption."""
    gone = [event for event in trace.events if event["kind"] == "preempted"]
    back = [event for event in trace.events if event["kind"] == "resumed"]
    stored = [event for event in trace.events if event["kind"] == "swap_out_finished"]
    if not gone:
        raise BadInput(f"run {trace.name}: nothing was preempted, so there is nothing to compare.")
    pool, summary = trace.document["pool"], trace.summary
    least = min(entry["host_free"] for entry in summary["per_step"])
    return MethodFacts(
        method=gone[0]["method"],
        history=sum(event["history"] for event in gone),
        kv_positions=sum(event["kv"] for event in stored),
        bytes_kept=(pool["host_blocks"] - least) * pool["kv_bytes_per_block"],
        recomputed=summary["tokens_recomputed"],
        first_time=sum(event["history"] - event["kv"] - event["rebuild"] for event in back),
        bytes_out=summary["bytes_swapped_out"],
        bytes_in=summary["bytes_swapped_in"],
        blocks_out=summary["blocks_swapped_out"],
        blocks_in=summary["blocks_swapped_in"],
        processed=summary["tokens_processed"],
        longest_gap=max((gap.steps for gap in gaps(trace)), default=0),
        seconds=seconds,
    )


@dataclass(frozen=True, slots=True)
class MethodsTable:
    """The two methods side by side; shows itself in a notebook."""

    recompute: MethodFacts
    swap: MethodFacts
    source: str
    """Which two runs these are: device, model, recorded or just made."""

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """What, with recompute, with swap; as text."""
        one, other = self.recompute, self.swap

        def row(what: str, say: Callable[[MethodFacts], str]) -> tuple[str, str, str]:
            return what, say(one), say(other)

        found = [
            row("Kept during the pause", kept),
            row("KV kept outside the GPU", lambda facts: f"{facts.bytes_kept:,} bytes"),
            row("Work to resume", work),
            (
                "Additional cost",
                "model computation",
                "memory outside the GPU, and transfers in both directions",
            ),
            row("Computed again", lambda facts: f"{facts.recomputed:,} tokens"),
            row("Moved to the CPU", lambda facts: f"{facts.bytes_out:,} bytes"),
            row("Moved back", lambda facts: f"{facts.bytes_in:,} bytes"),
            row("Processed in the whole run", lambda facts: f"{facts.processed:,} tokens"),
            row("Longest gap between outputs", lambda facts: f"{facts.longest_gap} steps"),
        ]
        if one.seconds and other.seconds:
            found.append(("Seconds of the resuming step", str(one.seconds), str(other.seconds)))
        return found

    @property
    def note(self) -> str:
        """Where the numbers are from, and what they cannot say."""
        if self.recompute.seconds and self.swap.seconds:
            return f"{self.source} The seconds of a run this small are {TOO_SMALL}."
        return self.source

    def as_html(self) -> str:
        """A table with headings for rows and columns; every text is escaped."""
        start = 'style="text-align:start;vertical-align:top"'  # a notebook would align to the end
        head = "".join(f'<th scope="col" {start}>{name}</th>' for name in ("", "Recompute", "Swap"))
        body = "".join(
            f'<tr><th scope="row" {start}>{escape(what)}</th>'
            f"<td {start}>{escape(left)}</td><td {start}>{escape(right)}</td></tr>"
            for what, left, right in self.rows
        )
        return (
            '<table class="kvlab-methods"><caption>The two methods, in numbers of two real runs'
            f"</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            f'<p class="kvlab-note">{escape(self.note)}</p>'
        )

    def as_markdown(self) -> str:
        """The same as a Markdown table."""
        lines = ["| | Recompute | Swap |", "| --- | --- | --- |"]
        lines += [f"| {plain(a)} | {plain(b)} | {plain(c)} |" for a, b, c in self.rows]
        return "\n".join([*lines, "", plain(self.note)])

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        return {"text/html": self.as_html(), "text/plain": self.as_markdown()}


def kept(facts: MethodFacts) -> str:
    """What is retained, in words with the run's counts."""
    words = f"token history ({facts.history} tokens) and request state"
    return f"{words}, and KV for {facts.kv_positions} positions" if facts.kv_positions else words


def work(facts: MethodFacts) -> str:
    """What resuming asks for, in words with the run's counts."""
    fresh = f"{facts.first_time} for the first time"
    if facts.blocks_in:
        return f"copy {facts.blocks_in} blocks back, process {fresh[: fresh.index(' ')]} token"
    return f"process {facts.recomputed + facts.first_time} tokens, {fresh}"


def plain(text: str) -> str:
    """Text that cannot end a cell of a Markdown table or start a tag in it."""
    return escape(text, quote=False).replace("|", "\\|").replace("\n", " ")


def compare(
    recompute: Trace, swap: Trace, seconds: dict[str, Spread] | None = None
) -> MethodsTable:
    """The table of two runs. Raises BadInput when a run is not of the method it stands for."""
    seconds = seconds or {}
    found = {}
    for method, trace in zip(METHODS, (recompute, swap), strict=True):
        found[method] = facts_of(trace, seconds.get(method))
        if found[method].method != method:
            raise BadInput(
                f"run {trace.name}: it came back by {found[method].method}, not {method}."
            )
    return MethodsTable(found["recompute"], found["swap"], source_of(recompute, swap))


def source_of(recompute: Trace, swap: Trace) -> str:
    """One sentence: from which runs the numbers are."""
    return " ".join(
        f"{method.capitalize()}: {made(trace)}."
        for method, trace in (("recompute", recompute), ("swap", swap))
    )


def made(trace: Trace) -> str:
    """`recorded run on cpu, model story, float32`."""
    run = trace.document["run"]
    how = "recorded run" if trace.document["recorded"] else "run just now"
    model = trace.document["model"]["name"] or "none, stand-in tokens"
    return f"{how} on {run['device']}, model {model}, {run['dtype']}"


def repeat(
    name: str = "figure-5",
    repeats: int = REPEATS,
    model: LoadedModel | None = None,
    on_run: Callable[[int, int], None] | None = None,
) -> MethodsTable:
    """Run a story `repeats` times with each method, taking turns, and compare.

    The seconds are those of the step that resumes. `on_run(done, all)` hears of every run. Raises
    BadInput for fewer than two repeats or more than a hundred.
    """
    if not 2 <= repeats <= 100:
        raise BadInput(f"repeats {repeats}: choose 2 to 100.")
    model = model or load_for(load_scenario(name))
    seconds: dict[str, list[float]] = {method: [] for method in METHODS}
    last: dict[str, Trace] = {}
    # Taking turns, so that a busy minute of the machine meets both.
    for turn in range(repeats * len(METHODS)):
        method = METHODS[turn % len(METHODS)]
        trace = run_lesson(name, [f"engine.method={method}"], model).trace
        seconds[method].append(resume_seconds(trace))
        last[method] = trace
        if on_run:
            on_run(turn + 1, repeats * len(METHODS))
    spreads = {method: Spread.of(values) for method, values in seconds.items()}
    return compare(last["recompute"], last["swap"], spreads)


def resume_seconds(trace: Trace) -> float:
    """Seconds of the first step that resumes a request. Raises BadInput when none does."""
    for event in trace.events:
        if event["kind"] == "resumed":
            return float(next(s["seconds"] for s in trace.steps if s["step"] == event["step"]))
    raise BadInput(f"run {trace.name}: nothing was resumed in it.")
