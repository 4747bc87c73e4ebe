"""Method pause_only: a shortage pauses somebody and releases nothing. It shows what skipping is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvlab.engine.request import Request, RequestState


def pauses_for(in_need: Request, running: Sequence[Request]) -> list[Request]:
    """Who may be paused for `in_need`: nobody where somebody is already, once for each shortage."""
    if any(request.paused_for == in_need.id for request in running):
        return []
    able = [request for request in running if request.state is RequestState.RUNNING]
    return [] if able == [in_need] else able


def is_over(
    paused: Request, running: Sequence[Request], is_short: Callable[[Request], bool]
) -> bool:
    """A pause for another's need ends when neither of them is short of a block any more."""
    if paused.paused_for is None or is_short(paused):
        return False
    in_need = next((request for request in running if request.id == paused.paused_for), None)
    return in_need is None or not is_short(in_need)
