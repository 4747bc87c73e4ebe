"""The two ways to come back, each run for real, side by side in numbers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvlab.course.record import recorded
from kvlab.errors import BadInput
from kvlab.runs.run import load_for, run_scenario
from kvlab.runs.scenario import Scenario, load_scenario
from kvlab.trace.document import Trace
from kvlab.trace.facts import gaps
from kvlab.trace.speech import ENGLISH, Speech
from kvlab.trace.table import Table

if TYPE_CHECKING:
    from kvlab.models.loading import LoadedModel

METHODS = ("recompute", "swap")
REPEATS = 20
CLEAR = 2.0
"""How many times the other's median a median must be before a method counts as quicker."""


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

    def told(self, speech: Speech) -> str:
        """Milliseconds, and how far they scatter."""
        median, low, high = (
            speech.number(seconds * 1e3, ".2f") for seconds in (self.median, self.low, self.high)
        )
        return speech("methods.spread", median=median, low=low, high=high, runs=self.repeats)


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
    traces: tuple[Trace, Trace]
    """The two runs: device, model, recorded or just made."""

    def rows(self, speech: Speech = ENGLISH) -> list[tuple[str, str, str]]:
        """What, with recompute, with swap; as text."""
        one, other = self.recompute, self.swap

        def row(key: str, say: Callable[[MethodFacts], str]) -> tuple[str, str, str]:
            return speech(f"methods.{key}"), say(one), say(other)

        def counted(name: str, unit: str) -> Callable[[MethodFacts], str]:
            return lambda facts: speech.count(getattr(facts, name), unit)

        more = (speech("methods.computation"), speech("methods.memory"))
        found = [
            row("kept", lambda facts: kept(facts, speech)),
            row("outside", counted("bytes_kept", "byte")),
            row("work", lambda facts: work(facts, speech)),
            (speech("methods.additional"), *more),
            row("again", counted("recomputed", "token")),
            row("out", counted("bytes_out", "byte")),
            row("back", counted("bytes_in", "byte")),
            row("processed", counted("processed", "token")),
            row("gap", counted("longest_gap", "step")),
        ]
        if one.seconds and other.seconds:
            times = (one.seconds.told(speech), other.seconds.told(speech))
            found.append((speech("methods.time"), *times))
        return found

    def note(self, speech: Speech = ENGLISH) -> str:
        """Where the numbers are from, and what they cannot say."""
        parts = [
            speech("methods.of", method=speech(f"methods.{method}"), how=made(trace, speech))
            for method, trace in zip(METHODS, self.traces, strict=True)
        ]
        if self.recompute.seconds and self.swap.seconds:
            quicker = clearly_quicker(self.recompute.seconds, self.swap.seconds)
            parts.append(speech("methods.two_steps"))
            if quicker is None:
                parts.append(speech("methods.too_small"))
            else:
                parts.append(speech("methods.quicker", method=speech(f"methods.{quicker}")))
        return " ".join(parts)

    def table(self, speech: Speech = ENGLISH) -> Table:
        return Table(
            speech("methods.title"),
            ("", speech("methods.recompute"), speech("methods.swap")),
            tuple(self.rows(speech)),
            self.note(speech),
            "kvlab-methods",
        )

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        return self.table()._repr_mimebundle_()


def kept(facts: MethodFacts, speech: Speech) -> str:
    """What is retained, in words with the run's counts."""
    key = "methods.history_kv" if facts.kv_positions else "methods.history"
    return speech(key, history=facts.history, kv=facts.kv_positions)


def work(facts: MethodFacts, speech: Speech) -> str:
    """What resuming asks for, in words with the run's counts."""
    if facts.blocks_in:
        return speech("methods.copy_back", blocks=facts.blocks_in, fresh=facts.first_time)
    tokens = facts.recomputed + facts.first_time
    return speech("methods.process", tokens=tokens, fresh=facts.first_time)


def clearly_quicker(recompute: Spread, swap: Spread) -> str | None:
    """The method with the shorter step, where the middle halves lie apart and the medians differ by
    CLEAR; else None."""
    quick, slow = sorted(
        (("recompute", recompute), ("swap", swap)), key=lambda entry: entry[1].median
    )
    apart = quick[1].high < slow[1].low and slow[1].median >= CLEAR * quick[1].median
    return quick[0] if apart else None


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
    return MethodsTable(found["recompute"], found["swap"], (recompute, swap))


def made(trace: Trace, speech: Speech = ENGLISH) -> str:
    """`recorded run on cpu, model story, float32`; of a run that was just made, when."""
    run = trace.document["run"]
    recorded = trace.document["recorded"] or not run.get("made")
    return speech(
        "live.recorded" if recorded else "live.made",
        when=run.get("made"),
        device=run["device"],
        model=trace.document["model"]["name"] or speech("live.stand_in"),
        dtype=run["dtype"],
    )


STORY = ("figure-1", "figure-3", "figure-4", "figure-5")
"""Scenarios of the one story: its two recordings are figure-5 and figure-4."""


def both_ways(name: str, settings: Sequence[str] = (), now: bool = True) -> tuple[Trace, Trace]:
    """A scenario brought back by recompute and by swap: run now, or without `now` as it was recorded
    where it is the story as it is. A swap without any CPU pool gets one as large as the GPU's."""
    if not now and not settings and name in STORY:
        return recorded("figure-5"), recorded("figure-4")
    found = []
    for method in METHODS:
        found.append(run_scenario(by_method(load_scenario(name, settings), method)).trace)
    return found[0], found[1]


def by_method(scenario: Scenario, method: str) -> Scenario:
    """The same scenario with this method, and with a CPU pool where the method needs one."""
    engine, settings = scenario.document["engine"], [f"engine.method={method}"]
    if method in ("swap", "auto") and not engine["host_blocks"] and not scenario.sized_at_run:
        settings.append(f"engine.host_blocks={engine['num_blocks']}")
    return scenario.with_settings(settings)


def repeat(
    name: str = "figure-5",
    repeats: int = REPEATS,
    model: LoadedModel | None = None,
    on_run: Callable[[int, int], None] | None = None,
    settings: Sequence[str] = (),
) -> MethodsTable:
    """Run a story `repeats` times with each method, taking turns, and compare.

    The time is that of the step that preempts, where swap copies out, and of the step that resumes,
    together. `on_run(done, all)` hears of every run. Raises
    BadInput for fewer than two repeats or more than a hundred.
    """
    scenarios = repeated(name, repeats, settings)
    model = model or load_for(scenarios[0])
    traces: list[Trace] = []
    for scenario in scenarios:
        traces.append(run_scenario(scenario, None, model).trace)
        if on_run:
            on_run(len(traces), len(scenarios))
    return of_repeats(traces)


def repeated(name: str, repeats: int = REPEATS, settings: Sequence[str] = ()) -> list[Scenario]:
    """A story `repeats` times with each method. They take turns, so that a busy minute of the machine
    meets both. Raises BadInput for fewer than two repeats or more than a hundred."""
    if not isinstance(repeats, int) or not 2 <= repeats <= 100:
        raise BadInput(f"repeats {repeats!r:.60}: choose 2 to 100.")
    pair = [load_scenario(name, [*settings, f"engine.method={method}"]) for method in METHODS]
    return pair * repeats


def of_repeats(traces: Sequence[Trace]) -> MethodsTable:
    """The table of what `repeated` asked for, in that order."""
    of = {method: traces[place :: len(METHODS)] for place, method in enumerate(METHODS)}
    spreads = {method: Spread.of([*map(two_steps, own)]) for method, own in of.items()}
    return compare(of["recompute"][-1], of["swap"][-1], spreads)


def two_steps(trace: Trace) -> float:
    """Seconds of the first step that preempts and the first that resumes. Raises BadInput where
    there is none."""
    found: dict[str, int] = {}
    for event in trace.events:
        if event["kind"] in ("preempted", "resumed"):
            found.setdefault(event["kind"], event["step"])
    if len(found) < 2:
        raise BadInput(f"run {trace.name}: nothing was resumed in it.")
    return sum(float(one["seconds"]) for one in trace.steps if one["step"] in found.values())
