"""What waiting requests still hold on the GPU is given up before a running one is preempted."""

from __future__ import annotations

from collections.abc import Sequence

from kvlab.engine.events import Reclaimed
from kvlab.engine.request import Request, RequestState
from kvlab.engine.swap import Swap


def reclaim(swap: Swap, waiting: Sequence[Request], needs: int, need_of: str) -> None:
    """Waiting requests give up blocks that only they hold any more, until `needs` are free or on
    their way: last in the queue first, copied out where the host pool has room."""
    for request in reversed(waiting):
        if swap.kv.pool.free + swap.blocks_to_come >= needs:
            return
        if request.state is not RequestState.SWAPPED or not request.table:
            continue
        idle = swap.kv.pool.held_by_nobody_but(other.table for other in waiting)
        places = range(len(request.table) + len(request.host_table))
        kept = [place for place in places if place not in request.host_places]
        go = [p for p, block in zip(kept, request.table, strict=True) if block in idle]
        if not go:
            continue
        why = "swap" if len(go) <= swap.host.free else "recompute"
        blocks = tuple(block for block in request.table if block in idle)
        swap.log.record(Reclaimed(id=request.id, why=why, need_of=need_of, blocks=blocks))
        if why == "swap":
            swap.store(request, go, kept)
        else:
            swap.give_all_up(request, "reclaimed")
