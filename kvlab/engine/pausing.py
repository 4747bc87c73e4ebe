"""Pausing: a request is skipped and keeps its blocks.

An action pauses and resumes; method pause_only pauses somebody at each shortage, and releases nothing.
It shows what skipping is not.
"""

from __future__ import annotations

from collections.abc import Callable

from kvlab.engine.event_log import EventLog
from kvlab.engine.events import Paused
from kvlab.engine.queues import Queues
from kvlab.engine.request import Request, RequestState


class Pausing:
    """Begins and ends pauses. `is_short` says whether a request's next tokens need more blocks than
    are free."""

    def __init__(self, queues: Queues, log: EventLog, is_short: Callable[[Request], bool]) -> None:
        self._queues = queues
        self._log = log
        self._is_short = is_short

    def begin(self, request: Request, need_of: str | None) -> None:
        """Skip a running request from now on, for the need of another or since an action says so."""
        request.state, request.paused_for = RequestState.PAUSED, need_of
        why, held = "need" if need_of else "action", len(request.table)
        self._log.record(Paused(id=request.id, why=why, need_of=need_of, held=held))

    def resume(self, request: Request) -> None:
        """A paused request takes part again, as soon as the batch has a place."""
        request.resuming = True

    def end_if_over(self, request: Request, *, stalled: bool) -> None:
        """The batch has a place for the paused request; if its pause is over it runs again, with KV
        that never left. `stalled`: somebody lacks blocks in this step."""
        if request.resuming or (not stalled and self._need_is_over(request)):
            request.state, request.paused_for = RequestState.RUNNING, None
            request.resuming = False
            self._log.resumed(request, "pause", request.computed)

    def _need_is_over(self, paused: Request) -> bool:
        """A pause for another's need ends when neither of them is short of a block any more."""
        if paused.paused_for is None or self._is_short(paused):
            return False
        running = self._queues.running
        in_need = next((request for request in running if request.id == paused.paused_for), None)
        return in_need is None or not self._is_short(in_need)

    def able_for(self, in_need: Request) -> list[Request]:
        """Who may be paused for `in_need`: nobody where somebody is already, once for each shortage."""
        running = self._queues.running
        if any(request.paused_for == in_need.id for request in running):
            return []
        able = [request for request in running if request.state is RequestState.RUNNING]
        return [] if able == [in_need] else able
