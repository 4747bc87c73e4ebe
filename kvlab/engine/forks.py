"""n > 1: each sample after the first is a request of its own, forked off when the prompt is computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from kvlab.engine.kv_cache_manager import KVCacheManager
from kvlab.engine.request import Request, Sampled
from kvlab.engine.scheduler import Scheduler


class Forks:
    """Which samples belong to which request. `register` makes a fork known to the engine."""

    def __init__(
        self, scheduler: Scheduler, kv: KVCacheManager, register: Callable[[Request], None]
    ) -> None:
        self._scheduler = scheduler
        self._kv = kv
        self._register = register
        self._of: dict[str, list[Request]] = {}

    def of(self, id: str) -> list[Request]:
        """The forks of a request so far."""
        return self._of.get(id, [])

    @property
    def ids(self) -> set[str]:
        """Of all forks."""
        return {fork.id for forks in self._of.values() for fork in forks}

    def give_each_its_own(
        self, sampled: Sequence[Sampled], requests: dict[str, Request]
    ) -> Iterator[Sampled]:
        """The tokens, each further first one of a request under the id of a fork made for it."""
        seen: Counter[str] = Counter()
        for choice in sampled:
            number = seen[choice.id]
            seen[choice.id] += 1
            yield (
                replace(choice, id=self._fork(requests[choice.id], number).id) if number else choice
            )

    def _fork(self, parent: Request, number: int) -> Request:
        fork = parent.fork(number)
        self._of.setdefault(parent.id, []).append(fork)
        self._register(fork)
        siblings = self._of[parent.id]
        self._kv.share_table(parent, fork, blocks=self._scheduler.places > 0)
        self._scheduler.join_after(fork, parent, siblings)
        return fork
