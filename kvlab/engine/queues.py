"""Who is served and who waits, each in its order."""

from __future__ import annotations

from collections.abc import Sequence

from kvlab.engine.request import Request, RequestState


class Queues:
    """`running` keeps the order of admission; it holds paused requests and those being swapped in, too.
    `waiting` is in the order in which it will be served: by priority, and among equals the preempted
    before the fresh.
    """

    def __init__(self) -> None:
        self.running: list[Request] = []
        self.waiting: list[Request] = []

    @property
    def live(self) -> list[Request]:
        """All that have arrived and not ended."""
        return [*self.running, *self.waiting]

    @property
    def active(self) -> int:
        """Requests that take part in the batch: who is paused has no place in it."""
        return sum(request.state is not RequestState.PAUSED for request in self.running)

    @property
    def order(self) -> dict[str, tuple[str, ...]]:
        """Ids of who runs, waits and is paused, each in the order in which it is or will be served."""
        paused = [request for request in self.running if request.state is RequestState.PAUSED]
        running = [request for request in self.running if request.state is not RequestState.PAUSED]
        those = {"running": running, "waiting": self.waiting, "paused": paused}
        return {name: tuple(request.id for request in of) for name, of in those.items()}

    def enqueue(self, request: Request) -> None:
        """A fresh request joins behind all that its priority allows."""
        request.state = RequestState.WAITING
        at = len(self.waiting)
        while at and self.waiting[at - 1].priority > request.priority:
            at -= 1
        self.waiting.insert(at, request)

    def enqueue_first(self, request: Request) -> None:
        """A preempted request goes to the front of those with its priority."""
        self.waiting.insert(self._front(request), request)

    def _front(self, request: Request) -> int:
        better = (other.priority < request.priority for other in self.waiting)
        return sum(better)  # the queue is in the order of priorities

    def admit(self, request: Request) -> None:
        """From the waiting to the running."""
        self.waiting.remove(request)
        self.running.append(request)
        request.state = RequestState.RUNNING

    def leave(self, request: Request) -> None:
        for queue in (self.running, self.waiting):
            if request in queue:
                queue.remove(request)

    def take_failed_restores(self) -> None:
        """Requests whose swap-in broke off wait again, for recomputation."""
        for request in [r for r in self.running if r.state is RequestState.PREEMPTED]:
            self.running.remove(request)
            self.enqueue_first(request)

    def join_after(self, fork: Request, parent: Request, siblings: Sequence[Request]) -> None:
        """A fork runs from the next step on, right after its parent and its earlier siblings; one that
        the batch has no place for waits, at the front like a preempted request."""
        if fork.table:
            at, queue = self.running.index(parent) + 1, self.running
            fork.state = RequestState.RUNNING
        else:
            at, queue = self._front(fork), self.waiting
            fork.state = RequestState.WAITING
        while at < len(queue) and queue[at] in siblings:
            at += 1
        queue.insert(at, fork)
