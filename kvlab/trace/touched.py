"""What an event touched, so that a picture can point at it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Touched(NamedTuple):
    """`blocks` and `hosts` in the order of the event; `slots` is (block, first slot, last slot);
    `entries` of the request's table and `positions` of its history are (first, last); `unmet`: the
    event is a need that was not met; `others`: requests that the event is about besides `id`."""

    id: str | None = None
    blocks: tuple[int, ...] = ()
    hosts: tuple[int, ...] = ()
    slots: tuple[int, int, int] | None = None
    entries: tuple[int, int] | None = None
    positions: tuple[int, int] | None = None
    unmet: bool = False
    others: tuple[str, ...] = ()


NOTHING = Touched()


def touched(event: Mapping[str, Any] | None, prompts: Mapping[str, Sequence[int]]) -> Touched:
    """What an event changed or spoke of; `prompts` are the tokens of each request's prompt."""
    if event is None:
        return NOTHING
    blocks = list(event.get("blocks") or ())
    more: dict[str, Any] = {}
    match event["kind"]:
        case "block_allocated" | "block_shared":
            more["entries"] = (event["logical"], event["logical"] + len(blocks) - 1)
        case "swap_in_finished":
            more["entries"] = (0, len(blocks) - 1)
        case "block_copied":
            blocks.append(event["block"])
            more["entries"] = (event["logical"], event["logical"])
        case "damage_found":
            blocks.append(event["block"])
        case "block_needed":
            more["unmet"] = True
        case "kv_written":
            last = event["slot"] + event["last"] - event["first"]
            more["slots"] = (event["block"], event["slot"], last)
            more["positions"] = (event["first"], event["last"])
        case "scheduled":
            more["positions"] = (event["start"], event["start"] + event["tokens"] - 1)
        case "token_sampled" | "token_delivered":
            position = len(prompts.get(event["id"], ())) + event["index"]
            more["positions"] = (position, position)
    others = [event.get(name) for name in ("need_of", "next_id")]
    return Touched(
        id=event.get("id"),
        blocks=tuple(blocks),
        hosts=tuple(event.get("host_blocks") or ()),
        others=tuple(other for other in others if other is not None),
        **more,
    )
