"""Replay: the state of a run at a cursor, folded from the events before it. No torch, no engine.

The player folds the same events in JavaScript (kvlab/draw/js/src/fold.js); a test holds the two
equal at every cursor of every lesson. State is plain JSON data, so that it can be compared:

    step          the step that has begun (0: none)
    free          blocks that an allocation could take; host_free likewise in the host pool
    in_flight     blocks that belong to a copy under way: neither free nor held
    blocks[b]     status free | held | in_flight; owners, ids in the order they came; cached;
                  damaged: its bytes are not those that its owner wrote (unsafe runs only);
                  cells[s]: null, or the KV that lies in the slot: {id, position, how, live}
                  how: first | rebuilt | restored. live false: a ghost, its owner has released it
    host_blocks[h]  status free | held; owner or null; cells likewise (how: stored)
    requests[id]  state waiting | running | paused | preempted | swapping_out | swapped |
                  swapping_in | finished; method of the last preemption or null;
                  history, kv, host_kv, delivered (counts of tokens); outputs (token ids);
                  table, host_table (block ids in logical order); preemptions;
                  unmet: null or {logical, position, needs}; finish: null or the reason
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

State = dict[str, Any]
EventJson = dict[str, Any]


def empty_state(num_blocks: int, block_size: int, host_blocks: int) -> State:
    """Before the first event: every block is free and nothing was ever written.

    A list of cells is never changed, only replaced: until then all blocks have one.
    """
    empty: list[Any] = [None] * block_size
    return {
        "step": 0,
        "free": num_blocks,
        "host_free": host_blocks,
        "in_flight": 0,
        "blocks": [
            {
                "status": "free",
                "owners": [],
                "cached": False,
                "damaged": False,
                "cells": empty,
            }
            for _ in range(num_blocks)
        ],
        "host_blocks": [
            {"status": "free", "owner": None, "cells": empty} for _ in range(host_blocks)
        ],
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


def apply(state: State, event: EventJson) -> None:
    """Change `state` by one event. Kinds that change nothing visible are simply facts."""
    state["step"] = event["step"]
    change = CHANGES.get(event["kind"])
    if change:
        change(state, event)


def set_status(state: State, block: dict[str, Any], status: str) -> None:
    """A GPU block's new status, with the pool's counts kept in step."""
    for name in ("free", "in_flight"):
        state[name] += (status == name) - (block["status"] == name)
    block["status"] = status


def set_host_status(state: State, block: dict[str, Any], status: str) -> None:
    """The same for a host block."""
    state["host_free"] += (status == "free") - (block["status"] == "free")
    block["status"] = status


def with_live(cells: list[Any], live: bool) -> list[Any]:
    """The cells, all in use by an owner or all ghosts."""
    return [cell and {**cell, "live": live} for cell in cells]


def step_started(state: State, event: EventJson) -> None:
    for request in state["requests"].values():
        request["unmet"] = None


def arrived(state: State, event: EventJson) -> None:
    state["requests"][event["id"]] = {
        "state": "waiting",
        "method": None,
        "history": event["history"],
        "kv": 0,
        "host_kv": 0,
        "delivered": 0,
        "outputs": [],
        "table": [],
        "host_table": [],
        "preemptions": 0,
        "unmet": None,
        "finish": None,
    }


def admitted(state: State, event: EventJson) -> None:
    state["requests"][event["id"]]["state"] = "running"


def resumed(state: State, event: EventJson) -> None:
    request = state["requests"][event["id"]]
    if request["state"] != "swapping_in":
        request["state"] = "running"


def block_needed(state: State, event: EventJson) -> None:
    state["requests"][event["id"]]["unmet"] = {
        "logical": event["logical"],
        "position": event["position"],
        "needs": event["needs"],
    }


def block_allocated(state: State, event: EventJson) -> None:
    request = state["requests"][event["id"]]
    request["unmet"] = None
    for block_id in event["blocks"]:
        block = state["blocks"][block_id]
        set_status(state, block, "held")
        block.update(owners=[event["id"]], cached=False, damaged=False)
        block["cells"] = with_live(block["cells"], False)
        request["table"].append(block_id)


def block_shared(state: State, event: EventJson) -> None:
    request = state["requests"][event["id"]]
    for block_id in event["blocks"]:
        block = state["blocks"][block_id]
        set_status(state, block, "held")
        block["owners"].append(event["id"])
        block["cells"] = with_live(block["cells"], True)
        request["table"].append(block_id)
    request["kv"] += event["tokens"]


def block_copied(state: State, event: EventJson) -> None:
    request = state["requests"][event["id"]]
    source, block = state["blocks"][event["source"]], state["blocks"][event["block"]]
    set_status(state, block, "held")
    block.update(owners=[event["id"]], cached=False, damaged=source["damaged"])
    block["cells"] = [cell and {**cell, "id": event["id"]} for cell in source["cells"]]
    source["owners"].remove(event["id"])
    if not source["owners"]:  # a copy under way still reads it
        set_status(state, source, "in_flight")
    request["table"][event["logical"]] = event["block"]


def forked(state: State, event: EventJson) -> None:
    arrived(state, event)
    request = state["requests"][event["id"]]
    request.update(state="running", kv=event["kv"], table=list(event["blocks"]))
    for block_id in event["blocks"]:
        state["blocks"][block_id]["owners"].append(event["id"])


def block_released(state: State, event: EventJson) -> None:
    request = state["requests"][event["id"]]
    for block_id in event["blocks"]:
        block = state["blocks"][block_id]
        if event["id"] in block["owners"]:
            block["owners"].remove(event["id"])
        if block_id in event["freed"]:
            set_status(state, block, "free")
            block["cached"] = block_id in event["cached"]
            block["cells"] = with_live(block["cells"], False)
        elif block["owners"]:
            set_status(state, block, "held")
        else:  # the last table gone, a copy still reads it, or fills it for somebody else
            set_status(state, block, "in_flight")
            block["damaged"] = False
    request["table"] = [block for block in request["table"] if block not in event["blocks"]]
    if not request["table"]:  # before a swap only the blocks without KV go
        request["kv"] = 0


def preempted(state: State, event: EventJson) -> None:
    state["requests"][event["id"]].update(state="preempted", method=event["method"], unmet=None)
    state["requests"][event["id"]]["preemptions"] += 1


def paused(state: State, event: EventJson) -> None:
    state["requests"][event["id"]]["state"] = "paused"


def kv_written(state: State, event: EventJson) -> None:
    block = state["blocks"][event["block"]]
    cells = list(block["cells"])
    for offset, position in enumerate(range(event["first"], event["last"] + 1)):
        cells[event["slot"] + offset] = {
            "id": event["id"],
            "position": position,
            "how": event["why"],
            "live": True,
        }
    block["cells"] = cells
    state["requests"][event["id"]]["kv"] = event["last"] + 1


def token_sampled(state: State, event: EventJson) -> None:
    request = state["requests"][event["id"]]
    request["history"] += 1
    request["outputs"].append(event["token"])


def token_delivered(state: State, event: EventJson) -> None:
    state["requests"][event["id"]]["delivered"] += 1


def swap_out_started(state: State, event: EventJson) -> None:
    request = state["requests"][event["id"]]
    request.update(state="swapping_out", table=[], kv=0, host_table=list(event["host_blocks"]))
    for block_id in event["blocks"]:
        block = state["blocks"][block_id]
        block["owners"].remove(event["id"])
        if not block["owners"]:
            set_status(state, block, "in_flight")
    for host_id in event["host_blocks"]:
        host = state["host_blocks"][host_id]
        set_host_status(state, host, "held")
        host.update(owner=event["id"], cells=with_live(host["cells"], False))


def swap_out_advanced(state: State, event: EventJson) -> None:
    request = state["requests"][event["id"]]
    for block_id, host_id in zip(event["blocks"], event["host_blocks"], strict=True):
        state["host_blocks"][host_id]["cells"] = [
            cell and {**cell, "how": "stored"} for cell in state["blocks"][block_id]["cells"]
        ]
    stored = [state["host_blocks"][h]["cells"] for h in request["host_table"]]
    request["host_kv"] = sum(bool(cell and cell["live"]) for cells in stored for cell in cells)


def swap_out_finished(state: State, event: EventJson) -> None:
    state["requests"][event["id"]].update(state="swapped", host_kv=event["kv"])


def swap_in_started(state: State, event: EventJson) -> None:
    state["requests"][event["id"]].update(state="swapping_in", table=[])
    for block_id in event["blocks"]:
        block = state["blocks"][block_id]
        if event["id"] in block["owners"]:
            block["owners"].remove(event["id"])
        if not block["owners"]:  # else a copy begins before the last read (unsafe)
            set_status(state, block, "in_flight")


def swap_in_advanced(state: State, event: EventJson) -> None:
    for block_id, host_id in zip(event["blocks"], event["host_blocks"], strict=True):
        state["blocks"][block_id]["cells"] = [
            cell and {**cell, "how": "restored"} for cell in state["host_blocks"][host_id]["cells"]
        ]


def swap_in_finished(state: State, event: EventJson) -> None:
    request = state["requests"][event["id"]]
    request.update(state="running", kv=event["kv"], table=list(event["blocks"]))
    left = event["kv"]
    for block_id in event["blocks"]:
        block = state["blocks"][block_id]
        set_status(state, block, "held")
        block["owners"].append(event["id"])
        # Whatever came back is in use, another request's values too where an ordering was broken.
        block["cells"] = [
            cell and {**cell, "live": slot < left} for slot, cell in enumerate(block["cells"])
        ]
        left -= len(block["cells"])


def copy_failed(state: State, event: EventJson) -> None:
    state["requests"][event["id"]].update(state="preempted", method="recompute")


def damage_found(state: State, event: EventJson) -> None:
    state["blocks"][event["block"]]["damaged"] = True


def host_block_released(state: State, event: EventJson) -> None:
    for host_id in event["host_blocks"]:
        host = state["host_blocks"][host_id]
        set_host_status(state, host, "free")
        host.update(owner=None, cells=with_live(host["cells"], False))
    state["requests"][event["id"]].update(host_table=[], host_kv=0)


def finished(state: State, event: EventJson) -> None:
    state["requests"][event["id"]].update(state="finished", finish=event["why"], unmet=None)


CHANGES: dict[str, Callable[[State, EventJson], None]] = {
    change.__name__: change
    for change in (
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
        copy_failed,
        damage_found,
        host_block_released,
        finished,
    )
}
