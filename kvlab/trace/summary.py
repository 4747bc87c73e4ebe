"""The numbers of a run, as `kvlab run --summary` prints them.

Steps and seconds stay apart. Lengths and totals count tokens, blocks where named, bytes where named.

    occupancy     mean over the steps of (blocks held or in flight) / blocks
    waste_slots   mean over the steps of slots in block tables without KV in them
    recompute_tax tokens computed again / tokens processed
    goodput       output tokens delivered, per step and per second
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import kvlab
from kvlab.engine.engine import Engine
from kvlab.engine.report import Snapshot, StepReport
from kvlab.engine.request import Request


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a summary says of the run as a whole."""

    scenario: str
    model: str | None
    device: str
    dtype: str
    seconds: float
    scheduling_seconds: float
    bytes_per_block: int


def step_entry(report: StepReport, state: Snapshot) -> dict[str, Any]:
    """One entry of `per_step`: what the step did and the state after it."""
    return {
        "step": report.step,
        "running": list(state.running),
        "waiting": list(state.waiting),
        "paused": list(state.paused),
        "scheduled": dict(report.scheduled),
        "admitted": list(report.admitted),
        "resumed": list(report.resumed),
        "finished": list(report.finished),
        "emitted": {id: list(tokens) for id, tokens in report.emitted.items()},
        "preempted": [
            {
                "id": victim.id,
                "method": victim.method,
                "reclaimable": victim.reclaimable,
                "blocks": victim.blocks,
                "why": victim.fallback or victim.why,
                "need_of": victim.need_of,
                "estimates": None
                if victim.recompute_s is None
                else {"recompute_s": victim.recompute_s, "swap_s": victim.swap_s},
            }
            for victim in report.victims
        ],
        "stalled": [
            {"id": stall.id, "needs": stall.needs, "why": stall.why} for stall in report.stalled
        ],
        "free": state.free,
        "cached": state.cached,
        "in_flight": state.in_flight,
        "reserved_unused": state.reserved_unused,
        "host_free": state.host_free,
        "copies": [
            {"id": c.id, "direction": c.direction, "blocks": c.blocks, "done": c.done}
            for c in report.copies
        ],
        "blocks": {id: list(table) for id, table in state.blocks.items()},
        "kv": dict(state.kv),
        "host_blocks": {id: list(table) for id, table in state.host_blocks.items()},
        "host_kv": dict(state.host_kv),
        "history": dict(state.history),
    }


def request_entry(samples: Sequence[Request]) -> dict[str, Any]:
    """One request's outcome; with several samples of its prompt, the first one's and all outputs."""
    request = samples[0]
    steps = request.delivered_steps
    more = {"samples": [sample.outputs for sample in samples]} if len(samples) > 1 else {}
    return more | {
        "output": request.outputs,
        "text": request.text,
        "finish_reason": request.finish_reason,
        "message": request.message,
        "ttft_steps": steps[0] - request.arrival_step if steps else None,
        "gaps_steps": request.gaps,
        "gaps": request.split_gaps,
        "waiting_steps": request.waiting_steps,
        "recovery_steps": request.recovery_steps,
        "preemptions": request.preemptions,
        "recomputed": request.recomputed,
        "from_cache": request.from_cache,
        "logprobs": list(request.logprobs),
    }


def summarise(
    facts: RunFacts, engine: Engine, reports: Sequence[StepReport], states: Sequence[Snapshot]
) -> dict[str, Any]:
    """The whole summary; names and meanings are a contract, keys may only be added."""
    size, blocks = engine.config.block_size, engine.config.num_blocks
    processed = sum(report.tokens for report in reports)
    again = sum(report.tokens_again for report in reports)
    delivered = sum(request.delivered for request in engine.requests.values())
    out, back = engine.blocks_swapped
    waste = [sum(len(s.blocks[id]) * size - s.kv[id] for id in s.blocks) for s in states]
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
        "steps": len(reports),
        "per_step": [step_entry(r, s) for r, s in zip(reports, states, strict=True)],
        "preemptions": sum(len(report.victims) for report in reports),
        "tokens_processed": processed,
        "tokens_recomputed": again,
        "tokens_from_cache": sum(report.tokens_from_cache for report in reports),
        "blocks_swapped_out": out,
        "blocks_swapped_in": back,
        "bytes_swapped_out": out * facts.bytes_per_block,
        "bytes_swapped_in": back * facts.bytes_per_block,
        "blocks_shared_max": max(map(shared_blocks, states)),
        "recompute_tax": again / processed if processed else 0.0,
        "goodput_per_step": delivered / len(reports),
        "goodput_per_second": delivered / facts.seconds if facts.seconds else None,
        "occupancy": sum(1 - s.free / blocks for s in states) / len(states),
        "waste_slots": sum(waste) / len(states),
        "storms": [
            {"from": storm.first, "to": storm.last, "redone": storm.redone, "new": storm.new}
            for storm in engine.storms
        ],
        "damage": [
            {"request": found.id, "layer": layer, "block": found.block, "why": found.why}
            for found in engine.damage
            for layer in found.layers
        ],
        "costs": None if engine.costs is None else engine.costs.as_json(),
        "requests": {id: request_entry(engine.samples(id)) for id in engine.asked},
    }


def shared_blocks(state: Snapshot) -> int:
    """Blocks that stand in more than one table."""
    held = Counter(block for table in state.blocks.values() for block in table)
    return sum(count > 1 for count in held.values())
