"""The numbers of a run, as `kvlab run --summary` prints them: a view over its events.

Steps and seconds stay apart. Lengths and totals count tokens, blocks where named, bytes where named.

    occupancy     mean over the steps of (blocks held or in flight) / blocks
    waste_slots   mean over the steps of slots in block tables without KV in them
    recompute_tax tokens computed again / tokens processed
    goodput       output tokens delivered, per step and per second

A request with several samples of its prompt (n > 1) counts what happened to all of them; `output`,
`text`, `finish_reason`, `message`, `ttft_steps`, `gaps_steps` and `gaps` are its first sample's.
Of `from_cache`, `from_own_cache` are positions that the request itself had KV for before: its own blocks
found again after a preemption, no hit on anybody else's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import kvlab
from kvlab.engine.events import event_from_json
from kvlab.engine.thrashing import ThrashingWatch
from kvlab.trace import replay
from kvlab.trace.changes import State
from kvlab.trace.samples import Sample, positions, samples

Event = Mapping[str, Any]
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a summary says of the run that its events do not.

    `batch`: who is running, waiting and paused after the last step. `logprobs` of each request's
    outputs, and `costs`, the rates that method `auto` decided by, were measured.
    """

    scenario: str
    model: str | None
    device: str
    dtype: str
    seconds: float
    scheduling_seconds: float
    batch: Mapping[str, Sequence[str]]
    logprobs: Mapping[str, list[float]]
    costs: dict[str, Any] | None


def summarise(facts: RunFacts, document: Document) -> dict[str, Any]:
    """The whole summary; names and meanings are a contract, keys may only be added.

    `document` has the parts pool, requests, events and steps of a trace.
    """
    pool, events = document["pool"], document["events"]
    states = list(step_entries(document, facts.batch))
    requests = request_entries(document, facts.logprobs)
    written = [event for event in events if event["kind"] == "kv_written"]
    processed = positions(written)
    again = positions(event for event in written if event["why"] == "rebuilt")
    delivered = sum(event["kind"] == "token_delivered" for event in events)
    out, back = (moved(events, direction) for direction in ("out", "in"))
    waste = [
        sum(
            len(state["blocks"][id]) * pool["block_size"] - state["kv"][id]
            for id in state["blocks"]
        )
        for state in states
    ]
    return {
        "schema": "kvlab-summary/1",
        "kvlab": kvlab.__version__,
        "scenario": facts.scenario,
        "model": facts.model,
        "stand_in_tokens": facts.model is None,
        "device": facts.device,
        "dtype": facts.dtype,
        "seconds": facts.seconds,
        "scheduling_seconds": facts.scheduling_seconds,
        "steps": len(states),
        "per_step": states,
        "preemptions": sum(event["kind"] == "preempted" for event in events),
        "tokens_processed": processed,
        "tokens_recomputed": again,
        "tokens_from_cache": sum(event.get("from_cache", 0) for event in events),
        "tokens_from_own_cache": sum(entry["from_own_cache"] for entry in requests.values()),
        "blocks_swapped_out": out,
        "blocks_swapped_in": back,
        "bytes_swapped_out": out * pool["kv_bytes_per_block"],
        "bytes_swapped_in": back * pool["kv_bytes_per_block"],
        "blocks_shared_max": max(map(shared_blocks, states)),
        "recompute_tax": again / processed if processed else 0.0,
        "goodput_per_step": delivered / len(states),
        "goodput_per_second": delivered / facts.seconds if facts.seconds else None,
        "occupancy": math.fsum(1 - s["free"] / pool["num_blocks"] for s in states) / len(states),
        "waste_slots": sum(waste) / len(states),
        "storms": thrashing(document),
        "damage": [
            {"request": event["id"], "layer": layer, "block": event["block"], "why": event["why"]}
            for event in events
            if event["kind"] == "damage_found"
            for layer in event["layers"]
        ],
        "costs": facts.costs,
        "requests": requests,
    }


def moved(events: Iterable[Event], direction: str) -> int:
    """Blocks copied out of the GPU pool, or in."""
    kind = f"swap_{direction}_advanced"
    return sum(len(event["blocks"]) for event in events if event["kind"] == kind)


def shared_blocks(state: Mapping[str, Any]) -> int:
    """Blocks that stand in more than one table."""
    held = Counter(block for table in state["blocks"].values() for block in table)
    return sum(count > 1 for count in held.values())


def thrashing(document: Document) -> list[dict[str, int]]:
    """The contract's `storms`."""
    watch = ThrashingWatch(document["pool"]["block_size"])
    kinds = {kind.kind for kind in ThrashingWatch.counted}
    for step in document["steps"]:
        events = document["events"][step["first"] : step["end"]]
        watch.see(step["step"], [event_from_json(e) for e in events if e["kind"] in kinds])
    return [
        {"from": spell.first, "to": spell.last, "redone": spell.redone, "new": spell.new}
        for spell in watch.found
    ]


# Steps.


def step_entries(
    document: Document, batch: Mapping[str, Sequence[str]]
) -> Iterator[dict[str, Any]]:
    """The entries of `per_step`: what each step did and the state after it.

    The order in which requests run and wait is what the next step begins with, after the last one
    `batch`.
    """
    pool, steps, events = document["pool"], document["steps"], document["events"]
    state = replay.empty_state(pool["num_blocks"], pool["block_size"], pool["host_blocks"])
    starts = [event for event in events if event["kind"] == "step_started"]
    cached: set[int] = set()  # free blocks that can still be found by their prefix
    for step, after in zip(steps, [*starts[1:], batch], strict=True):
        own = events[step["first"] : step["end"]]
        for event in own:
            replay.apply(state, event)
            if event["kind"] in ("block_allocated", "block_shared"):
                cached.difference_update(event["blocks"])
            elif event["kind"] == "block_copied":
                cached.discard(event["block"])
            elif event["kind"] == "block_released":
                cached.update(event["cached"])
        entry = {"step": step["step"]}
        entry |= {name: list(after[name]) for name in ("running", "waiting", "paused")}
        entry |= what_happened(own)
        entry |= what_is_held(state, pool["block_size"])
        yield entry | {"cached": len(cached)}


def what_happened(events: Sequence[Event]) -> dict[str, Any]:
    """The part of a step's entry that its events alone tell."""
    found: dict[str, Any] = {
        "scheduled": {},
        "admitted": [],
        "resumed": [],
        "finished": [],
        "emitted": {},
        "preempted": [],
        "stalled": [],
        "copies": [],
    }
    for event in events:
        id, kind = event.get("id"), event["kind"]
        if kind == "kv_written":
            rows = found["scheduled"]
            rows[id] = rows.get(id, 0) + event["last"] - event["first"] + 1
        elif kind in ("admitted", "resumed", "finished"):
            if id not in found[kind]:  # a copy in that fails at once may be resumed again
                found[kind].append(id)
        elif kind == "token_delivered":
            found["emitted"].setdefault(id, []).append(event["token"])
        elif kind == "preempted":
            found["preempted"].append(preemption(event, events))
        elif kind == "stalled":
            found["stalled"].append({name: event[name] for name in ("id", "needs", "why")})
        elif kind in ("swap_out_advanced", "swap_in_advanced"):
            direction, done = kind.split("_")[1], event["done"] == event["total"]
            found["copies"].append(
                {"id": id, "direction": direction, "blocks": len(event["blocks"]), "done": done}
            )
    return found


def preemption(event: Event, of_step: Iterable[Event]) -> dict[str, Any]:
    """What became of a preemption in its step: a copy may break off that was to store its KV."""
    failed = any(
        other["kind"] == "copy_failed" and (other["id"], other["why"]) == (event["id"], "out")
        for other in of_step
    )
    estimates = {name: event[name] for name in ("recompute_s", "swap_s")}
    return {
        "id": event["id"],
        "method": "recompute" if failed else event["method"],
        "reclaimable": event["reclaimable"],
        "blocks": event["held"],
        "why": "copy_failed" if failed else event["fallback"] or event["why"],
        "need_of": event["need_of"],
        "estimates": None if event["recompute_s"] is None else estimates,
    }


def what_is_held(state: State, block_size: int) -> dict[str, Any]:
    """The part of a step's entry that is the state after it."""
    live = {id: r for id, r in state["requests"].items() if r["state"] != "finished"}
    on_gpu = {id: request for id, request in live.items() if request["table"]}
    on_host = {id: request for id, request in live.items() if request["host_table"]}
    used = sum(-(-request["kv"] // block_size) for request in on_gpu.values())
    return {
        "free": state["free"],
        "in_flight": state["in_flight"],
        "reserved_unused": sum(len(request["table"]) for request in on_gpu.values()) - used,
        "host_free": state["host_free"],
        "blocks": {id: list(request["table"]) for id, request in on_gpu.items()},
        "kv": {id: request["kv"] for id, request in on_gpu.items()},
        "host_blocks": {id: list(request["host_table"]) for id, request in on_host.items()},
        "host_kv": {id: request["host_kv"] for id, request in on_host.items()},
        "history": {id: request["history"] for id, request in live.items()},
    }


# Requests.


def request_entries(
    document: Document, logprobs: Mapping[str, list[float]]
) -> dict[str, dict[str, Any]]:
    """The entries of `requests`."""
    of_request: dict[str, list[Sample]] = {}
    for id, sample in samples(document).items():
        of_request.setdefault(sample.parent or id, []).append(sample)
    return {
        id: request_entry(own) | {"logprobs": list(logprobs.get(id, []))}
        for id, own in of_request.items()
    }


def request_entry(samples: Sequence[Sample]) -> dict[str, Any]:
    """One request's outcome, from its samples."""
    first, all_gaps = samples[0], [gap for sample in samples for gap in sample.gaps]
    counts: Counter[str] = sum((sample.counts for sample in samples), Counter())
    entry: dict[str, Any] = {
        "output": first.outputs,
        "text": first.text,
        "finish_reason": first.finish_reason,
        "message": first.message,
        "ttft_steps": first.ttft,
        "gaps_steps": [gap.steps for gap in first.gaps],
        "gaps": [
            {name: getattr(gap, name) for name in ("waiting", "recovery", "decoding")}
            for gap in first.gaps
        ],
        "waiting_steps": sum(gap.waiting for gap in all_gaps),
        "recovery_steps": sum(gap.recovery for gap in all_gaps),
    }
    names = ("preemptions", "recomputed", "from_cache", "from_own_cache")
    entry |= {name: counts[name] for name in names}
    if len(samples) > 1:
        entry |= {
            "samples": [sample.outputs for sample in samples],
            "sample_reasons": [sample.finish_reason for sample in samples],
            "sample_ttft_steps": [sample.ttft for sample in samples],
        }
    return entry
