"""What was measured of the values in a block, and what it says beside what was measured before.

A trace's `measurements` are {event, block, …}:

    of kv_written         checksum, k_norm and v_norm of the written slots (one number a layer);
                          max_diff {k, v}: largest difference to the values before the release
    of swap_out_started   checksum of each block, before the copy
    of swap_in_finished   checksum of each block, after the return
"""

from __future__ import annotations

from kvlab.trace.document import Trace


def checksums(trace: Trace) -> dict[tuple[int, int], str]:
    """By event and block."""
    return {
        (entry["event"], entry["block"]): entry["checksum"]
        for entry in trace.document["measurements"]
        if entry.get("checksum") is not None
    }


def writes_before(trace: Trace) -> dict[int, int]:
    """For each event that rebuilt positions the one that wrote the same positions before; where that
    wrote others with them, nothing can be compared."""
    last: dict[tuple[str, int], int] = {}
    found: dict[int, int] = {}
    for at, event in enumerate(trace.events):
        if event["kind"] != "kv_written":
            continue
        span = event["first"], event["last"]
        before = last.get((event["id"], event["first"]))
        if before is not None and event["why"] == "rebuilt":
            earlier = trace.events[before]
            if (earlier["first"], earlier["last"]) == span:
                found[at] = before
        last |= {(event["id"], position): at for position in range(span[0], span[1] + 1)}
    return found


def same_bytes(trace: Trace) -> list[tuple[int, int, bool | None]]:
    """[event, block, whether it has the bytes that were copied out], for each block of each return;
    None: not measured. An event later than another speaks of a later copy."""
    sums = checksums(trace)
    found: list[tuple[int, int, bool | None]] = []
    out: dict[str, tuple[int, list[int]]] = {}
    for at, event in enumerate(trace.events):
        if event["kind"] == "swap_out_started":
            out[event["id"]] = (at, event["blocks"])
        elif event["kind"] == "damage_found" and event["restored"]:
            found.append((at, event["block"], False))
        elif event["kind"] == "swap_in_finished":
            began, sources = out.get(event["id"], (-1, []))
            for place, block in enumerate(event["blocks"]):
                source = sources[place] if place < len(sources) else -1
                one, other = sums.get((began, source)), sums.get((at, block))
                known = one is not None and other is not None
                found.append((at, block, one == other if known else None))
    return found
