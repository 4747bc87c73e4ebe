"""Which earlier event an event follows from: the need behind a preemption, the release behind an
allocation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Event = Mapping[str, Any]


def causes(events: Iterable[Event]) -> list[int | None]:
    """For each event the index of the one that it follows from, or None."""
    past = Past()
    return [past.tell(at, event) for at, event in enumerate(events)]


class Past:
    """Where each kind of event was last seen."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str | None], int] = {}  # by kind and request
        self._given: dict[int, int] = {}  # by block: the event that allocated it
        self._freed: int | None = None
        self._begun = 0  # the first event of the step

    def tell(self, at: int, event: Event) -> int | None:
        """The cause of the next event, the `at`-th."""
        if event["kind"] == "step_started":
            self._begun = at
        found = self._cause(event)
        self._last[event["kind"], event.get("id")] = self._last[event["kind"], None] = at
        if event["kind"] == "block_allocated":
            self._given.update(dict.fromkeys(event["blocks"], at))
        elif event["kind"] == "block_released" and event["freed"]:
            self._freed = at
        return found

    def _now(self, found: int | None) -> int | None:
        """Only what happened in this step."""
        return found if found is not None and found >= self._begun else None

    def _cause(self, event: Event) -> int | None:
        id, why = event.get("id"), event.get("why")

        def ever(kind: str, of: str | None = id) -> int | None:
            return self._last.get((kind, of))

        def own(kind: str, of: str | None = id) -> int | None:
            return self._now(ever(kind, of))

        match event["kind"]:
            case "preempted" | "paused":
                if event["need_of"] is None:
                    return own("action_taken")
                return own("block_needed", event["need_of"])
            case "block_needed":
                return ever("token_sampled")
            case "scheduled":
                return ever("token_sampled") if why == "decode" else own("block_allocated")
            case "admitted":
                return ever("arrived")
            case "finished":
                return own("token_delivered")
            case "swap_out_finished":
                return own("swap_out_started")
            case "swap_in_finished":
                return own("swap_in_started")
            case "host_block_released":
                found = own("swap_in_finished")
                return own("copy_failed") if found is None else found
            case "stalled":
                found = own("paused", None)
                return own("block_needed") if found is None else found
            case "block_released":
                before = {
                    "swapped_out": "swap_out_finished",
                    "copy_unfinished": "swap_out_started",
                    "preempted": "preempted",
                }
                return own(before[why]) if why in before else None
            case "block_allocated":
                if why == "decode":
                    return None if own("block_needed") is None else self._now(self._freed)
                found = own("resumed")
                return own("admitted") if found is None else found
            case "resumed":
                return own("action_taken") if why == "pause" else self._freed
            case "swap_out_started":
                return own("preempted")
            case "swap_in_started":
                return own("resumed")
            case "kv_written":
                found = self._now(self._given.get(event["block"]))
                return own("scheduled") if found is None else found
            case "token_delivered":
                return own("resumed") if event["gap"] is not None and event["gap"] > 1 else None
        return None
