"""What a trace says, as plain numbers: the answers of the lessons and the data of the charts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvlab.errors import BadInput
from kvlab.trace import replay
from kvlab.trace.changes import State
from kvlab.trace.document import Trace
from kvlab.trace.gaps import Gap
from kvlab.trace.gaps import gaps as gaps_of_events

Event = dict[str, Any]


def gaps(trace: Trace) -> list[Gap]:
    """Every gap of every request, requests in the order of the trace, gaps in the order of time."""
    found = gaps_of_events(trace.events)
    return [gap for one in trace.document["requests"] for gap in found.get(one["id"], [])]


@dataclass(frozen=True, slots=True)
class StepMemory:
    """A step of a run: KV while the model runs in it (positions by request), and after it."""

    step: int
    kv: dict[str, int]
    host_kv: dict[str, int]
    free: int  # blocks, when the step has ended


def memory(trace: Trace) -> list[StepMemory]:
    """One entry a step. A request that finishes in a step still has its KV while the model runs."""
    found: list[StepMemory] = []
    state = trace.state_at(0)
    for step in trace.steps:
        ran = ran_until(trace, step)
        kv: dict[str, int] = {}
        host_kv: dict[str, int] = {}
        for at in range(step["first"], step["end"]):
            replay.apply(state, trace.events[at])
            if at + 1 == ran:
                kv, host_kv = lengths(state, "kv"), lengths(state, "host_kv")
        found.append(StepMemory(step["step"], kv, host_kv, state["free"]))
    return found


def ran_until(trace: Trace, step: dict[str, Any]) -> int:
    """The cursor after the last write of KV in a step, or the step's end where nothing was."""
    for at in range(step["end"] - 1, step["first"] - 1, -1):
        if trace.events[at]["kind"] == "kv_written":
            return at + 1
    end: int = step["end"]
    return end


def lengths(state: State, name: str) -> dict[str, int]:
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
