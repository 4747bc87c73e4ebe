"""n > 1: each sample after the first is a request of its own, forked off when the prompt is computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from kvlab.engine.event_log import EventLog
from kvlab.engine.events import Forked
from kvlab.engine.kv_cache_manager import KVCacheManager
from kvlab.engine.queues import Queues
from kvlab.engine.request import Request, Sampled


class Forks:
    """Which samples belong to which request. `register` makes a fork known to the engine."""

    def __init__(
        self,
        queues: Queues,
        kv: KVCacheManager,
        log: EventLog,
        register: Callable[[Request], None],
    ) -> None:
        self._queues = queues
        self._kv = kv
        self._log = log
        self._register = register
        self._of: dict[str, list[Request]] = {}

    def of(self, id: str) -> list[Request]:
        """The forks of a request so far."""
        return self._of.get(id, [])

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
        self._share_table(parent, fork)
        self._queues.join_after(fork, parent, self._of[parent.id])
        return fork

    def _share_table(self, parent: Request, fork: Request) -> None:
        """The fork starts with the parent's blocks; whoever writes into a shared one copies it first.
        Where the batch has no place for it, it has none: it has to wait."""
        pool = self._kv.pool
        if self._queues.active < self._kv.config.places:
            fork.table = parent.table[: self._kv.config.blocks_for(parent.computed)]
            fork.computed, fork.hashed_blocks = parent.computed, parent.hashed_blocks
        pool.share(fork.table)
        self._log.record(
            Forked(
                id=fork.id,
                parent=parent.id,
                history=len(fork.history),
                kv=fork.computed,
                max_tokens=fork.max_tokens,
                blocks=tuple(fork.table),
                refs=tuple(pool.references(block) for block in fork.table),
            )
        )
