"""preempt_for_priority: who makes way for a waiting request of better priority."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvlab.engine.request import Request, RequestState


def who_makes_way(
    waiting: Request,
    running: Sequence[Request],
    enough: Callable[[Sequence[Request]], bool],
) -> list[Request]:
    """The fewest requests of worse priority without which there is `enough` for `waiting`: worst
    priority first, newest among equals. Nobody, where all of them would not do."""
    in_batch = (RequestState.RUNNING, RequestState.PAUSED, RequestState.ENDING)
    worse = [r for r in running if r.priority > waiting.priority and r.state in in_batch]
    worse.reverse()
    worse.sort(key=lambda request: -request.priority)
    counts = (count for count in range(len(worse) + 1) if enough(worse[:count]))
    found = worse[: next(counts, 0)]
    for request in reversed(found):  # a paused one gives back no place, a sharing one no block
        others = [other for other in found if other is not request]
        if enough(others):
            found = others
    return found


def not_better(in_need: Request, candidates: Sequence[Request]) -> list[Request]:
    """Who may be preempted for a running request: nobody of better priority who takes part in the
    batch. Otherwise two could take turns for ever, one by its need and one by its priority."""
    return [
        request
        for request in candidates
        if request.priority >= in_need.priority or request.state is RequestState.PAUSED
    ]
