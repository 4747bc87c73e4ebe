"""Blocks outside the GPU, where swapped-out KV is kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from kvlab.engine.event_log import EventLog
from kvlab.engine.events import HostBlockReleased
from kvlab.engine.request import Request


class HostPool:
    """A queue of free host blocks; a block has at most one owner."""

    def __init__(self, num_blocks: int, log: EventLog) -> None:
        self.num_blocks = num_blocks
        self._log = log
        self._free = deque(range(num_blocks))

    @property
    def free(self) -> int:
        return len(self._free)

    def keep(self, request: Request, places: Sequence[int], kv: int) -> list[int]:
        """Take blocks from the front for `places` of the request's table, which hold `kv` positions.

        Raises IndexError when there are fewer.
        """
        if len(places) > len(self._free):
            raise IndexError(f"{len(places)} host blocks asked, {len(self._free)} are free")
        blocks = [self._free.popleft() for _ in places]
        request.host_table += blocks
        request.host_places += places
        request.host_kv += kv
        return blocks

    def give_up(self, request: Request, why: str) -> None:
        """All that is stored of the request goes."""
        if request.host_table:
            blocks = tuple(request.host_table)
            self._free.extend(blocks)
            request.host_table, request.host_places, request.host_kv = [], [], 0
            self._log.record(
                HostBlockReleased(id=request.id, why=why, host_blocks=blocks, host_free=self.free)
            )

    def check_integrity(self, tables: Iterable[Iterable[int]]) -> None:
        """Raise AssertionError unless every block is free or in exactly one table."""
        held = [block for table in tables for block in table]
        assert sorted([*held, *self._free]) == list(range(self.num_blocks)), "host blocks leaked"
