"""What two runs differ in: a pure function of their traces, as numbers and as a table in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from kvlab.trace.document import Trace
from kvlab.trace.facts import gaps
from kvlab.trace.narration import Words, fill, narrate
from kvlab.trace.table import Table

MOST_REQUESTS = 8
NOTHING = "–"
MEASURED = ("recompute_s", "swap_s", "say")
"""Fields of an event that two runs of the same need not agree in: seconds, and the key of its words,
which a later release may choose more finely."""

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """One quantity of both runs; None where a run has none. Its unit is the catalogue's for `what`:

    recomputed (tokens), bytes_moved and blocks_moved (between the pools, both directions),
    preemptions, gap (steps, the longest of `id`), finish (the step in which `id` ended), steps (of
    the run), outputs (tokens put out).
    """

    what: str
    one: int | None
    other: int | None
    id: str | None = None

    @property
    def by(self) -> int | None:
        """How much more the other run has."""
        return None if self.one is None or self.other is None else self.other - self.one


UNITS = {
    "recomputed": "token",
    "bytes_moved": "byte",
    "blocks_moved": "block",
    "preemptions": "preemption",
    "gap": "step",
    "steps": "step",
    "outputs": "output",
}


def differences(one: Trace, other: Trace) -> list[Difference]:
    """Every quantity of both runs, equal or not: totals first, then each request's.

    Of more than MOST_REQUESTS requests those are named whose gap or end changed most.
    """
    left, right = totals(one), totals(other)
    found = [
        Difference(what, left[what], right[what])
        for what in ("recomputed", "bytes_moved", "blocks_moved", "preemptions", "steps", "outputs")
        if what != "bytes_moved" or one.document["pool"]["kv_bytes_per_block"]
    ]
    gap, end = [longest_gaps(t) for t in (one, other)], [finish_steps(t) for t in (one, other)]
    for id in most_changed(ids_of(one, other), gap, end):
        found.append(Difference("gap", gap[0].get(id), gap[1].get(id), id))
        found.append(Difference("finish", end[0].get(id), end[1].get(id), id))
    return found


def totals(trace: Trace) -> dict[str, int]:
    summary = trace.summary
    return {
        "recomputed": summary["tokens_recomputed"],
        "bytes_moved": summary["bytes_swapped_out"] + summary["bytes_swapped_in"],
        "blocks_moved": summary["blocks_swapped_out"] + summary["blocks_swapped_in"],
        "preemptions": summary["preemptions"],
        "steps": len(trace.steps),
        "outputs": sum(event["kind"] == "token_delivered" for event in trace.events),
    }


def ids_of(*traces: Trace) -> list[str]:
    """All requests, forks included, in the order in which they appear."""
    return list(dict.fromkeys(r["id"] for trace in traces for r in trace.document["requests"]))


def longest_gaps(trace: Trace) -> dict[str, int]:
    """Steps of the longest gap of each request that delivered two outputs."""
    found: dict[str, int] = {}
    for gap in gaps(trace):
        found[gap.id] = max(gap.steps, found.get(gap.id, 0))
    return found


def finish_steps(trace: Trace) -> dict[str, int]:
    return {event["id"]: event["step"] for event in trace.events if event["kind"] == "finished"}


def most_changed(ids: list[str], gap: list[dict[str, int]], end: list[dict[str, int]]) -> list[str]:
    if len(ids) <= MOST_REQUESTS:
        return ids

    def change(id: str) -> int:
        return sum(abs(pair[1].get(id, 0) - pair[0].get(id, 0)) for pair in (gap, end))

    kept = set(sorted(ids, key=change, reverse=True)[:MOST_REQUESTS])
    return [id for id in ids if id in kept]


def other_outputs(one: Trace, other: Trace) -> list[str]:
    """Requests that got other tokens, or fewer or more of them."""
    left, right = outputs(one), outputs(other)
    return [id for id in ids_of(one, other) if left.get(id) != right.get(id)]


def outputs(trace: Trace) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for event in trace.events:
        if event["kind"] == "token_delivered":
            found.setdefault(event["id"], []).append(event["token"])
    return found


# In words.


def difference_table(one: Trace, other: Trace, words: Words) -> Table:
    """The differences with a plain sentence each, in the language of the catalogue."""
    pair = words["pair"]
    rows = [first_row(one, other, words)]
    rows += [row(one, other, found, words) for found in differences(one, other)]
    left_out = len(ids_of(one, other)) - MOST_REQUESTS
    notes = [pair["seconds_note"]]
    if left_out > 0:
        notes.append(fill(pair["left_out"], {"requests": left_out, "most": MOST_REQUESTS}, words))
    head = (pair["what"], pair["before"], pair["after"], pair["in_words"])
    return Table(pair["differences"], head, tuple(rows), " ".join(notes), "kvlab-differences")


def first_row(one: Trace, other: Trace, words: Words) -> tuple[str, ...]:
    """The first event that differs, apart from those that announce a change."""
    pair = words["pair"]
    left, right = what_happened(one), what_happened(other)
    at = first_difference(left, right)
    if at is None:
        return pair["first"], NOTHING, NOTHING, pair["first_none"]
    here = [events[at] if at < len(events) else None for events in (left, right)]
    step = next(event["step"] for event in here if event)
    says = [narrate(event, words) if event else pair["no_event"] for event in here]
    return pair["first"], *says, fill(pair["first_at"], {"step": step}, words)


def what_happened(trace: Trace) -> list[dict[str, Any]]:
    """The events without those that only say what the scenario wants from now on."""
    return [
        event
        for event in trace.events
        if event["kind"] != "setting_changed" and event.get("action") != "next_victim"
    ]


def row(one: Trace, other: Trace, found: Difference, words: Words) -> tuple[str, ...]:
    """Name, both values, and what that means."""
    pair = words["pair"]
    name = fill(pair[found.what], {"id": found.id}, words)
    values = [
        value_text(trace, found, value, words)
        for trace, value in ((one, found.one), (other, found.other))
    ]
    return name, *values, sentence(one, other, found, words)


def sentence(one: Trace, other: Trace, found: Difference, words: Words) -> str:
    pair = words["pair"]
    if found.what == "outputs":
        changed = other_outputs(one, other)
        return fill(pair["outputs_other" if changed else "outputs_same"], {"ids": changed}, words)
    by = found.by
    if by is None:
        return str(pair["not_comparable"])
    if by == 0 and found.what == "finish":  # its value names measured seconds, too
        return fill(pair["finish_same"], {"id": found.id}, words)
    if by == 0:
        return str(pair["same_value"])
    key = f"{found.what}_{'more' if by > 0 else 'less'}"
    return fill(pair[key], {"by": abs(by), "id": found.id}, words)


def value_text(trace: Trace, found: Difference, value: int | None, words: Words) -> str:
    if value is None:
        return NOTHING
    if found.what == "finish":
        return finish_text(trace, str(found.id), value, words)
    return fill(f"{{value:{UNITS[found.what]}}}", {"value": value}, words)


def finish_text(trace: Trace, id: str, step: int, words: Words) -> str:
    """The step, the measured seconds up to its end, and the reason where it is not the usual one."""
    why = next(e["why"] for e in trace.events if e["kind"] == "finished" and e["id"] == id)
    values: dict[str, Any] = {"step": step, "seconds": f"{seconds_to(trace.steps, step):.3f}"}
    text = fill(words["pair"]["finish_value"], values, words)
    reason = words["pair"].get(f"end_{why}")
    return f"{text}: {reason}" if reason else text


def seconds_to(steps: Iterable[dict[str, Any]], step: int) -> float:
    """Measured seconds of all steps up to and including `step`."""
    upto = [entry["seconds"] for entry in steps if entry["step"] <= step]
    return list(accumulate(upto))[-1] if upto else 0.0


# What two runs have in common.


def same_event(one: Event, other: Event) -> bool:
    """Equal in all that does not depend on the clock."""
    return plain(one) == plain(other)


def plain(event: Event) -> Event:
    return {key: value for key, value in event.items() if key not in MEASURED}


def first_difference(one: Iterable[Event], other: Iterable[Event]) -> int | None:
    """The index of the first event in which two runs differ; None: they are the same to the end."""
    left, right = list(one), list(other)
    for at, (a, b) in enumerate(zip(left, right, strict=False)):
        if not same_event(a, b):
            return at
    return None if len(left) == len(right) else min(len(left), len(right))
