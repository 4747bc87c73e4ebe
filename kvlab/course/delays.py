"""When each user gets what: outputs by step and by second, and how many of them come in time.

TTFT, the time to first token, counts from the step in which a request arrives to the one that
delivers its first output. A gap (inter-token latency) lies between two outputs of one request.
Goodput counts outputs that were delivered, and with a limit only those that came within it.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from kvlab.trace.document import Trace
from kvlab.trace.gaps import Gap
from kvlab.trace.samples import samples
from kvlab.trace.speech import ENGLISH, Speech
from kvlab.trace.table import Table

NOTHING = "–"


@dataclass(frozen=True, slots=True)
class Delays:
    """One request as its user sees it. Steps; `delivered[i]` is the step that delivered output i."""

    id: str
    arrived: int  # the first step that could have served it
    delivered: tuple[int, ...]
    gaps: tuple[Gap, ...]

    @property
    def ttft(self) -> int | None:
        """Steps to the first output, the one that delivers it included; None without an output."""
        return self.delivered[0] - self.arrived + 1 if self.delivered else None

    def in_time(self, limit: int | None) -> int:
        """Outputs that came at most `limit` steps after the one before, the first after arrival."""
        if limit is None:
            return len(self.delivered)
        first = self.ttft is not None and self.ttft <= limit
        return int(first) + sum(gap.steps <= limit for gap in self.gaps)


def delays(trace: Trace) -> list[Delays]:
    """Every request, forks included, in the order of the trace."""
    return [
        Delays(id, (one.arrived or 0) + 1, tuple(one.delivered), tuple(one.gaps))
        for id, one in samples(trace.document).items()
    ]


def step_ends(trace: Trace) -> dict[int, float]:
    """Seconds from the start of the run to the end of each step, as measured; waiting between steps
    is not part of a run."""
    now, found = 0.0, {}
    for step in trace.steps:
        now += step["seconds"]
        found[step["step"]] = now
    return found


def goodput(trace: Trace, limit: int | None = None) -> float:
    """Outputs in time per step of the run."""
    return sum(one.in_time(limit) for one in delays(trace)) / len(trace.steps)


def delay_table(trace: Trace, limit: int | None = None, speech: Speech = ENGLISH) -> Table:
    """A row a request, in steps, and the goodput of the run below."""
    every = delays(trace)
    rows = tuple(
        (
            one.id,
            f"{len(one.delivered)}",
            NOTHING if one.ttft is None else f"{one.ttft}",
            speech.number(median(gap.steps for gap in one.gaps)) if one.gaps else NOTHING,
            longest(one, speech),
            speech("delay.of", good=one.in_time(limit), all=len(one.delivered)),
        )
        for one in every
    )
    good, steps = sum(one.in_time(limit) for one in every), len(trace.steps)
    seconds = sum(step["seconds"] for step in trace.steps)
    heads = ("request", "outputs", "ttft", "median", "longest", "in_time")
    return Table(
        speech("delay.table"),
        tuple(speech(f"delay.head_{name}") for name in heads),
        rows,
        speech(
            "delay.goodput_of",
            good=good,
            steps=steps,
            per_step=speech.number(good / steps, ".2f"),
            per_second=speech.number(good / seconds, ",.0f"),
        ),
        "kvlab-delays",
    )


def longest(one: Delays, speech: Speech) -> str:
    """The longest gap, and what it is made of where it is not plain decoding."""
    if not one.gaps:
        return NOTHING
    worst = max(one.gaps, key=lambda gap: gap.steps)
    if not worst.waiting:
        return f"{worst.steps}"
    parts = {"waiting": worst.waiting, "recovery": worst.recovery}
    return speech("delay.longest", steps=worst.steps, **parts)
