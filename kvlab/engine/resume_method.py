"""How a victim will resume: by recomputing its KV, or by swapping it out now and in later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvlab.engine.cost_model import CostModel
from kvlab.engine.request import Request
from kvlab.engine.swap import Swap


@dataclass(frozen=True, slots=True)
class Choice:
    """The method for one victim; `fallback` says why it is not the one that was asked for.

    The estimates are seconds from the cost model of method `auto`, else None.
    """

    method: str
    fallback: str | None = None
    recompute_s: float | None = None
    swap_s: float | None = None


class ResumeMethod:
    """Chooses per victim, within what the host pool can hold.

    `costs` is asked once, when `auto` first needs it: measuring takes a moment.
    """

    def __init__(self, method: str, swap: Swap, costs: Callable[[], CostModel]) -> None:
        self.method = method  # may be another later in a run
        self._swap = swap
        self._measure = costs
        self._costs: CostModel | None = None

    @property
    def costs(self) -> CostModel | None:
        """The cost model, where `auto` has used one."""
        return self._costs

    def choose(self, request: Request, asked: str | None = None) -> Choice:
        """The method for `request`; `asked` (an action's) goes before the engine's own.

        Without KV there is nothing to store. Swap falls back to recompute when the host pool has no
        room for the request's KV; so does auto, with both estimates given all the same.
        """
        method = asked or self.method
        if method not in ("swap", "auto") or not request.computed:
            return Choice("recompute")
        fallback = None if self._swap.fits(request) else "host_full"
        if method == "swap":
            return Choice("recompute" if fallback else "swap", fallback)
        recompute_s, swap_s = self._estimates(request)
        cheaper = "swap" if swap_s < recompute_s else "recompute"
        if cheaper == "swap" and fallback:
            return Choice("recompute", fallback, recompute_s, swap_s)
        return Choice(cheaper, None, recompute_s, swap_s)

    def _estimates(self, request: Request) -> tuple[float, float]:
        self._costs = self._costs or self._measure()
        return (
            self._costs.recompute_seconds(request.computed),
            self._costs.swap_seconds(self._swap.blocks_to_store(request)),
        )
