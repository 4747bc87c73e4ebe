"""Replay: the state of a run at a cursor, folded from the events before it. No torch, no engine.

Only here is it known what an event does. `apply` says it as changes (kvlab.trace.changes), so that
whoever has those, the player in the page, moves without knowing a rule of the engine.

    cursor        events that have been applied; step: the step that has begun (0: none)
    free          blocks that an allocation could take; host_free likewise in the host pool
    in_flight     blocks that belong to a copy under way: neither free nor held
    blocks[b]     status free | held | in_flight; owners, ids in the order they came; cached;
                  damaged: null, or {layers, why} where its bytes are not those that its owner wrote
                  (unsafe runs only); copy: null, or {id, way: out | in, logical} of the copy under way;
                  cells[s]: null, or the KV that lies in the slot: {id, position, how, live, event}
                  how: first | rebuilt | restored. live false: a ghost, its owner has released it;
                  event: the index of the event that wrote it
    host_blocks[h]  status free | held; owner or null; cells likewise (how: stored)
    requests[id]  state waiting | running | paused | preempted | swapping_out | swapped |
                  swapping_in | finished; method of the last preemption or null;
                  history, kv, host_kv, delivered (counts of tokens); outputs (token ids);
                  table, host_table (block ids in logical order); preemptions;
                  unmet: null or {logical, position, needs}; batch: null, or [tokens, of them again]
                  that go through the model in this step; finish: null or the reason
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kvlab.trace.changes import Blocks, Change, Changes, State

EventJson = dict[str, Any]


def empty_state(num_blocks: int, block_size: int, host_blocks: int) -> State:
    """Before the first event: every block is free and nothing was ever written."""
    empty: list[Any] = [None] * block_size
    free = {"status": "free", "owners": [], "cached": False, "damaged": None, "copy": None}
    return {
        "cursor": 0,
        "step": 0,
        "free": num_blocks,
        "host_free": host_blocks,
        "in_flight": 0,
        "blocks": Blocks(num_blocks, free | {"cells": empty}),
        "host_blocks": Blocks(host_blocks, {"status": "free", "owner": None, "cells": empty}),
        "requests": {},
    }


def state_at(trace: dict[str, Any], cursor: int) -> State:
    """The state after the first `cursor` events of a trace document."""
    pool = trace["pool"]
    state = empty_state(pool["num_blocks"], pool["block_size"], pool["host_blocks"])
    for event in trace["events"][:cursor]:
        apply(state, event)
    return state


def states(trace: dict[str, Any]) -> Iterable[State]:
    """The one state object, yielded at every cursor from 0 on; copy it to keep it."""
    state = state_at(trace, 0)
    yield state
    for event in trace["events"]:
        apply(state, event)
        yield state


def apply(state: State, event: EventJson) -> list[Change]:
    """Change `state` by one event; returns what was changed. Kinds that change nothing visible are
    simply facts."""
    now = Changes(state)
    now.set_state(step=event["step"])
    rule = CHANGES.get(event["kind"])
    if rule:
        rule(now, event)
    return now.done()


def step_started(now: Changes, event: EventJson) -> None:
    for id, request in now.requests.items():
        if request["unmet"] or request["batch"]:
            now.set_request(id, unmet=None, batch=None)


def arrived(now: Changes, event: EventJson) -> None:
    now.add_request(event["id"], event["history"])


def admitted(now: Changes, event: EventJson) -> None:
    now.set_request(event["id"], state="running")


def resumed(now: Changes, event: EventJson) -> None:
    if now.requests[event["id"]]["state"] != "swapping_in":
        now.set_request(event["id"], state="running")


def block_needed(now: Changes, event: EventJson) -> None:
    unmet = {name: event[name] for name in ("logical", "position", "needs")}
    now.set_request(event["id"], unmet=unmet)


def block_allocated(now: Changes, event: EventJson) -> None:
    for block in event["blocks"]:
        now.set_block(block, status="held", owners=[event["id"]], cached=False, damaged=None)
        now.mark("blocks", block, live=False)
    now.set_request(event["id"], unmet=None)
    now.append(event["id"], "table", event["blocks"])


def block_shared(now: Changes, event: EventJson) -> None:
    for block in event["blocks"]:
        owners = now.blocks[block]["owners"]
        now.set_block(block, status="held", owners=[*owners, event["id"]])
        now.mark("blocks", block, live=True)
    now.append(event["id"], "table", event["blocks"])
    now.set_request(event["id"], kv=now.requests[event["id"]]["kv"] + event["tokens"])


def block_copied(now: Changes, event: EventJson) -> None:
    id, source, block = event["id"], event["source"], event["block"]
    damaged = now.blocks[source]["damaged"]
    now.set_block(block, status="held", owners=[id], cached=False, damaged=damaged)
    now.copy("blocks", source, "blocks", block)
    now.mark("blocks", block, id=id)
    leave(now, source, id)
    now.splice(id, "table", event["logical"], 1, [block])


def forked(now: Changes, event: EventJson) -> None:
    arrived(now, event)
    now.set_request(event["id"], state="running" if event["blocks"] else "waiting", kv=event["kv"])
    now.append(event["id"], "table", event["blocks"])
    for block in event["blocks"]:
        now.set_block(block, owners=[*now.blocks[block]["owners"], event["id"]])


def leave(now: Changes, block: int, id: str) -> None:
    """A table gives up a block; without any other, a copy under way still reads it."""
    owners = without(now.blocks[block]["owners"], id)
    now.set_block(block, owners=owners)
    if not owners:
        now.set_block(block, status="in_flight")


def without(owners: list[str], id: str) -> list[str]:
    at = owners.index(id) if id in owners else len(owners)
    return [*owners[:at], *owners[at + 1 :]]


def block_released(now: Changes, event: EventJson) -> None:
    id, freed, cached = event["id"], set(event["freed"]), set(event["cached"])
    for block in event["blocks"]:
        owners = without(now.blocks[block]["owners"], id)
        now.set_block(block, owners=owners)
        if block in freed:
            now.set_block(block, status="free", cached=block in cached, copy=None)
            now.mark("blocks", block, live=False)
        elif owners:
            now.set_block(block, status="held")
        else:  # the last table gone, a copy still reads it, or fills it for somebody else
            now.set_block(block, status="in_flight", damaged=None)
    leave_table(now, id, event["blocks"])
    if not now.requests[id]["table"]:  # before a swap only the blocks without KV go
        now.set_request(id, kv=0)


def preempted(now: Changes, event: EventJson) -> None:
    times = now.requests[event["id"]]["preemptions"] + 1
    now.set_request(
        event["id"], state="preempted", method=event["method"], unmet=None, preemptions=times
    )


def paused(now: Changes, event: EventJson) -> None:
    now.set_request(event["id"], state="paused")


def scheduled(now: Changes, event: EventJson) -> None:
    now.set_request(event["id"], batch=[event["tokens"], event["again"]])


def unscheduled(now: Changes, event: EventJson) -> None:
    now.set_request(event["id"], batch=None)


def kv_written(now: Changes, event: EventJson) -> None:
    count = event["last"] - event["first"] + 1
    now.write(event["block"], event["slot"], event["id"], event["first"], count, event["why"])
    now.set_request(event["id"], kv=event["last"] + 1)


def token_sampled(now: Changes, event: EventJson) -> None:
    now.set_request(event["id"], history=now.requests[event["id"]]["history"] + 1)
    now.append(event["id"], "outputs", [event["token"]])


def token_delivered(now: Changes, event: EventJson) -> None:
    now.set_request(event["id"], delivered=now.requests[event["id"]]["delivered"] + 1)


def leave_table(now: Changes, id: str, blocks: list[int]) -> None:
    """Blocks go from a request's table."""
    gone, table = set(blocks), now.requests[id]["table"]
    kept = [block for block in table if block not in gone]
    if len(kept) < len(table):
        now.replace(id, "table", kept)


def hand_over(now: Changes, id: str, blocks: list[int], way: str) -> None:
    """Blocks go over from a request's table to a copy, which knows their places there."""
    table = now.requests[id]["table"]
    for place, block in enumerate(blocks):
        logical = table.index(block) if block in table else place
        now.set_block(block, copy={"id": id, "way": way, "logical": logical})
    leave_table(now, id, blocks)


def reclaimed(now: Changes, event: EventJson) -> None:
    if event["why"] == "recompute":
        now.set_request(event["id"], state="preempted", method="recompute")


def swap_out_started(now: Changes, event: EventJson) -> None:
    id = event["id"]
    now.set_request(id, state="swapping_out", kv=now.requests[id]["kv"] - event["kv"])
    hand_over(now, id, event["blocks"], "out")
    now.append(id, "host_table", event["host_blocks"])
    for block in event["blocks"]:
        leave(now, block, id)
    for host in event["host_blocks"]:
        now.set_host(host, status="held", owner=id)
        now.mark("host_blocks", host, live=False)


def swap_out_advanced(now: Changes, event: EventJson) -> None:
    for block, host in zip(event["blocks"], event["host_blocks"], strict=True):
        now.copy("blocks", block, "host_blocks", host)
        now.mark("host_blocks", host, how="stored")
    now.set_request(event["id"], host_kv=event["host_kv"])


def swap_out_finished(now: Changes, event: EventJson) -> None:
    now.set_request(event["id"], state="swapped")


def swap_in_started(now: Changes, event: EventJson) -> None:
    id = event["id"]
    now.set_request(id, state="swapping_in")
    hand_over(now, id, event["blocks"], "in")
    for block in event["blocks"]:
        leave(now, block, id)  # else a copy begins before the last read (unsafe)


def swap_in_advanced(now: Changes, event: EventJson) -> None:
    for block, host in zip(event["blocks"], event["host_blocks"], strict=True):
        now.copy("host_blocks", host, "blocks", block)
        now.mark("blocks", block, how="restored")


def swap_in_finished(now: Changes, event: EventJson) -> None:
    id, left = event["id"], event["kv"]
    now.set_request(id, state="running", kv=now.requests[id]["kv"] + left)
    now.replace(id, "table", event["table"])
    for block in event["blocks"]:
        owners = now.blocks[block]["owners"]
        now.set_block(block, status="held", owners=[*owners, id], copy=None)
        # Whatever came back is in use, another request's values too where an ordering was broken.
        size = len(now.blocks[block]["cells"])
        now.mark("blocks", block, 0, min(left, size), live=True)
        now.mark("blocks", block, max(0, min(left, size)), size, live=False)
        left -= size


def copy_failed(now: Changes, event: EventJson) -> None:
    now.set_request(event["id"], state="preempted", method="recompute")


def damage_found(now: Changes, event: EventJson) -> None:
    now.set_block(event["block"], damaged={"layers": list(event["layers"]), "why": event["why"]})


def host_block_released(now: Changes, event: EventJson) -> None:
    for host in event["host_blocks"]:
        now.set_host(host, status="free", owner=None)
        now.mark("host_blocks", host, live=False)
    now.replace(event["id"], "host_table", [])
    now.set_request(event["id"], host_kv=0)


def finished(now: Changes, event: EventJson) -> None:
    now.set_request(event["id"], state="finished", finish=event["why"], unmet=None)


CHANGES: dict[str, Callable[[Changes, EventJson], None]] = {
    rule.__name__: rule
    for rule in (
        step_started,
        arrived,
        admitted,
        resumed,
        block_needed,
        block_allocated,
        block_shared,
        block_copied,
        block_released,
        preempted,
        paused,
        scheduled,
        unscheduled,
        kv_written,
        token_sampled,
        token_delivered,
        swap_out_started,
        swap_out_advanced,
        swap_out_finished,
        swap_in_started,
        swap_in_advanced,
        swap_in_finished,
        forked,
        reclaimed,
        copy_failed,
        damage_found,
        host_block_released,
        finished,
    )
}
