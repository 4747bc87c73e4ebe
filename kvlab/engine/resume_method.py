"""How a victim will resume: by recomputing its KV, or by swapping it out now and in later."""

from __future__ import annotations

from dataclasses import dataclass

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
    """Chooses per victim, within what the host pool can hold."""

    def __init__(self, method: str, swap: Swap) -> None:
        self._method = method
        self._swap = swap

    def choose(self, request: Request, asked: str | None = None) -> Choice:
        """The method for `request`; `asked` (an action's) goes before the engine's own.

        Swap falls back to recompute when the host pool has no room for the request's KV.
        """
        method = asked or self._method
        if method == "swap" and request.computed and not self._swap.fits(request):
            return Choice("recompute", "host_full")
        if method == "swap" and request.computed:
            return Choice("swap")
        return Choice("recompute")
