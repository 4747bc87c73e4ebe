"""Requests that are still to come, and what a new one is checked for."""

from __future__ import annotations

from bisect import insort

from kvlab.engine.request import Request, RequestState
from kvlab.errors import BadInput


class Arrivals:
    """Requests in the order in which they arrive; truthy while one is to come."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._ids: set[str] = set()  # of all requests, forks that are still to come included
        self._pending: list[Request] = []

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, request: Request) -> None:
        """Raises BadInput for an id that is taken (by a sample of another request, too) or a prompt
        token outside the vocabulary."""
        for id in request.sample_ids:
            if id in self._ids:
                raise BadInput(f"request {id!r}: the id is used twice; give each its own.")
        for place, token in enumerate(request.prompt):
            if not 0 <= token < self._vocab_size:
                raise BadInput(
                    f"request {request.id!r}: prompt token {token} at place {place} is outside the "
                    f"vocabulary of {self._vocab_size} tokens."
                )
        self._ids.update(request.sample_ids)
        insort(self._pending, request, key=lambda pending: pending.arrival_step)

    def due(self, step: int) -> list[Request]:
        """Those that join the queue in this step: they arrived after an earlier one."""
        count = sum(request.arrival_step < step for request in self._pending)
        due, self._pending = self._pending[:count], self._pending[count:]
        return due

    def drop_ended(self) -> None:
        """Who was aborted before it arrived does not come."""
        self._pending = [r for r in self._pending if r.state is RequestState.PENDING]
