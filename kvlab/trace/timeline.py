"""A run over its steps: each request's phases, its outputs as the user receives them with the gaps
between, and the pool after every step. A view over events and the state that they lead to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kvlab.trace import replay
from kvlab.trace.changes import State
from kvlab.trace.document import Trace
from kvlab.trace.gaps import Gap, gaps

MOST_BLOCKS = 6
"""A pool of more blocks is not shown block by block below the steps."""

WAITS = {
    "waiting": "waiting",
    "preempted": "preempted",
    "swapping_out": "swapped",
    "swapped": "swapped",
    "swapping_in": "swapped",
    "paused": "paused",
    "running": "stalled",
}
"""The phase of a request that did not run in a step, by its state at the step's end."""

RAN = ("prefill", "decode", "recompute")

Event = dict[str, Any]


@dataclass(slots=True)
class Segment:
    """A phase of a request from one step's index to another's, both included.

    phase: prefill | decode | recompute | restore (KV comes back) | waiting | preempted | swapped |
    paused | stalled. `tokens` went through the model, `restored` positions were on their way back.
    """

    phase: str
    start: int
    stop: int
    tokens: int = 0
    restored: int | None = None


@dataclass(slots=True)
class Lane:
    """One request over the steps: segments; deliveries as (index of the step, number of the output,
    token); the gaps between them; the end as (index of the step, reason)."""

    segments: list[Segment] = field(default_factory=list)
    deliveries: list[tuple[int, int, int]] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    end: tuple[int, str] | None = None


@dataclass(slots=True)
class Timeline:
    """Lanes by request, in the order of the trace. After each step: `free` blocks, and, in a small
    pool, the first owner of every block. `full`: cursors at which the last free block goes."""

    lanes: dict[str, Lane]
    free: list[int] = field(default_factory=list)
    pools: list[list[str | None]] = field(default_factory=list)
    full: list[int] = field(default_factory=list)
    _arriving: dict[str, int] = field(default_factory=dict)
    """Positions by request that a copy under way brings back."""
    _was_free: int | None = None

    @classmethod
    def of(cls, trace: Trace) -> Timeline:
        """The timeline of a whole run."""
        found = cls.begin(trace.document)
        state = trace.state_at(0)
        for step in trace.steps:
            events = trace.events[step["first"] : step["end"]]
            for event in events:
                replay.apply(state, event)
                found.see(state)
            found.end_step(events, state)
        return found

    @classmethod
    def begin(cls, document: dict[str, Any]) -> Timeline:
        """Before the first step of a trace document."""
        lanes = {request["id"]: Lane() for request in document["requests"]}
        for id, of_request in gaps(document["events"]).items():
            lanes.setdefault(id, Lane()).gaps = of_request
        return cls(lanes)

    def see(self, state: State) -> None:
        """Call after each event with the state that it led to."""
        free = state["free"]
        if free == 0 and self._was_free != 0:
            self.full.append(state["cursor"])
        self._was_free = free

    def end_step(self, events: Sequence[Event], state: State) -> None:
        """Call after the last event of each step with all of its events."""
        at = len(self.free)
        self.free.append(state["free"])
        if len(state["blocks"]) <= MOST_BLOCKS:
            self.pools.append([(block["owners"] or [None])[0] for block in state["blocks"]])
        ran: dict[str, Event] = {}
        back = dict(self._arriving)
        for event in events:
            match event["kind"]:
                case "unscheduled":
                    ran.pop(event["id"], None)
                case "scheduled":
                    ran[event["id"]] = event
                case "swap_in_started":
                    self._arriving[event["id"]] = back[event["id"]] = event["kv"]
                case "swap_in_finished" | "copy_failed":
                    self._arriving.pop(event["id"], None)
                case "token_delivered":
                    delivery = (at, event["index"], event["token"])
                    self.lanes[event["id"]].deliveries.append(delivery)
                case "finished":
                    self.lanes[event["id"]].end = (at, event["why"])
        for id, request in state["requests"].items():
            if request["state"] != "finished" or id in ran:
                segment = phase(at, ran.get(id), back.get(id), request["state"])
                extend(self.lanes[id].segments, segment)


def phase(step: int, ran: Event | None, restored: int | None, state: str) -> Segment:
    """What a request did in a step: `ran` is what went through the model."""
    if restored:
        name = "restore"
    elif ran:
        name = ran["why"] if ran["why"] in RAN else "decode"
    else:
        name = WAITS[state]
    return Segment(name, step, step, ran["tokens"] if ran else 0, restored)


def extend(segments: list[Segment], fresh: Segment) -> None:
    """The last phase goes on, or another one begins; each recompute stands for itself."""
    last = segments[-1] if segments else None
    goes_on = last and last.phase == fresh.phase != "recompute" and last.stop == fresh.start - 1
    if last and goes_on:
        last.stop, last.tokens = fresh.stop, last.tokens + fresh.tokens
    else:
        segments.append(fresh)
