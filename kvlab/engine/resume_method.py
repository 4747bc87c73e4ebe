"""How a victim will resume: by recomputing its KV, or by swapping it out now and in later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvlab.engine.cost_model import CostModel
from kvlab.engine.request import Request


@dataclass(frozen=True, slots=True)
class Resumption:
    """The method for one victim; `fallback` says why it is not the one that was asked for.

    The estimates are seconds from the cost model of method `auto`, else None.
    """

    method: str
    fallback: str | None = None
    recompute_s: float | None = None
    swap_s: float | None = None


class ResumeMethod:
    """Chooses per victim, within what the host pool can hold.

    `measure` is asked once, when `auto` first needs it: measuring takes a moment.
    """

    def __init__(self, method: str, measure: Callable[[], CostModel]) -> None:
        self.method = method  # may be another later in a run
        self.costs: CostModel | None = None  # where `auto` has used one
        self._measure = measure

    def choose(
        self, request: Request, *, to_store: int, found: int, host_free: int, asked: str | None
    ) -> Resumption:
        """The method for `request`; `asked` (an action's) goes before the engine's own.

        `to_store` blocks would be copied, `found` positions need no computing again. Swap falls back
        to recompute when the host pool has no room; so does auto, with both estimates given all the
        same.
        """
        method = asked or self.method
        if method not in ("swap", "auto") or not request.computed:
            return Resumption("recompute")
        fallback = "host_full" if to_store > host_free else None
        if method == "swap":
            return Resumption("recompute" if fallback else "swap", fallback)
        self.costs = self.costs or self._measure()
        recompute_s = self.costs.recompute_seconds(request.computed, found)
        swap_s = self.costs.swap_seconds(to_store)
        if recompute_s <= swap_s:
            return Resumption("recompute", None, recompute_s, swap_s)
        return Resumption("recompute" if fallback else "swap", fallback, recompute_s, swap_s)
