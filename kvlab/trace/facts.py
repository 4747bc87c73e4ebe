"""What a trace says, as plain numbers: the answers of the lessons and the data of the charts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvlab.errors import BadInput
from kvlab.trace import replay
from kvlab.trace.document import Trace

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Gap:
    """The steps between two outputs of a request that its user received one after the other.

    `steps` = decoding + waiting + recovery. Recovery runs from the step that resumed the request to
    the one that delivered; without a pause the last step is decoding and any before it is waiting.
    """

    id: str
    after: int  # number of the earlier output: 1 for the gap between x1 and x2
    steps: int
    waiting: int
    recovery: int

    @property
    def decoding(self) -> int:
        return self.steps - self.waiting - self.recovery


def gaps(trace: Trace) -> list[Gap]:
    """Every gap of every request, requests in the order of the trace, gaps in the order of time."""
    found: dict[str, list[Gap]] = {request["id"]: [] for request in trace.document["requests"]}
    resumed: dict[str, int] = {}
    for event in trace.events:
        id, step = event.get("id"), event["step"]
        if event["kind"] == "resumed":
            resumed[event["id"]] = step
        elif event["kind"] == "token_delivered" and id is not None:
            back, gap = resumed.pop(id, None), event["gap"]
            if gap is None:
                continue
            recovery = 0 if back is None else step - back + 1
            waiting = gap - recovery if recovery else gap - 1
            found.setdefault(id, []).append(Gap(id, event["index"] - 1, gap, waiting, recovery))
    return [gap for of_request in found.values() for gap in of_request]


@dataclass(frozen=True, slots=True)
class Moment:
    """A step of a run: KV while the model runs in it (positions by request), and after it."""

    step: int
    kv: dict[str, int]
    host_kv: dict[str, int]
    free: int  # blocks, when the step has ended


def moments(trace: Trace) -> list[Moment]:
    """One entry a step. A request that finishes in a step still has its KV while the model runs."""
    ends = [step["end"] for step in trace.steps]
    written = [ran_until(trace, step) for step in trace.steps]
    wanted, seen = set(written), {}
    for cursor, state in enumerate(replay.states(trace.document)):
        if cursor in wanted:
            seen[cursor] = (lengths(state, "kv"), lengths(state, "host_kv"))
        if cursor in ends and cursor not in seen:
            seen[cursor] = ({}, {})
    free = [entry["free"] for entry in trace.summary["per_step"]]
    return [
        Moment(step["step"], *seen[at], free_after)
        for step, at, free_after in zip(trace.steps, written, free, strict=True)
    ]


def ran_until(trace: Trace, step: dict[str, Any]) -> int:
    """The cursor after the last write of KV in a step, or the step's end where nothing was."""
    for at in range(step["end"] - 1, step["first"] - 1, -1):
        if trace.events[at]["kind"] == "kv_written":
            return at + 1
    end: int = step["end"]
    return end


def lengths(state: replay.State, name: str) -> dict[str, int]:
    """The requests of which a count is not zero."""
    return {id: request[name] for id, request in state["requests"].items() if request[name]}


def first(trace: Trace, kind: str, **fields: Any) -> Event:
    """The first event that fits. Raises BadInput when the run has none."""
    for event in trace.events:
        if event["kind"] == kind and fields.items() <= event.items():
            return event
    wanted = "".join(f" {name}={value}" for name, value in fields.items())
    raise BadInput(f"run {trace.name}: nothing like {kind}{wanted} happened in it.")


def happened(trace: Trace, kind: str) -> bool:
    """Whether the run has an event of this kind."""
    return any(event["kind"] == kind for event in trace.events)


def free_after(trace: Trace, step: int) -> int:
    """Blocks that are free when a step has ended."""
    return int(entry_of(trace, step)["free"])


def entry_of(trace: Trace, step: int) -> dict[str, Any]:
    """The summary's entry of a step. Raises BadInput when the run has no such step."""
    for entry in trace.summary["per_step"]:
        if entry["step"] == step:
            found: dict[str, Any] = entry
            return found
    raise BadInput(f"run {trace.name}: there is no step {step}.")


def longest_gap(trace: Trace, id: str) -> Gap:
    """The longest gap between two outputs of a request. Raises BadInput when it has none."""
    own = [gap for gap in gaps(trace) if gap.id == id]
    if not own:
        raise BadInput(f"run {trace.name}: {id} delivered fewer than 2 outputs.")
    return max(own, key=lambda gap: gap.steps)


def method_of(trace: Trace) -> str:
    """The way in which the paused come back: of the first preemption, else the engine's setting."""
    for event in trace.events:
        if event["kind"] == "preempted":
            return str(event["method"])
    return str(trace.document["scenario"]["engine"]["method"])
