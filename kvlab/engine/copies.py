"""Copies of KV between the pools: which are in flight, and how many blocks of them a step moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvlab.engine.event_log import EventLog
from kvlab.engine.events import SwapInAdvanced, SwapOutAdvanced, SwapOutFinished
from kvlab.engine.request import Request, RequestState
from kvlab.engine.runner import Runner


@dataclass(slots=True, eq=False)
class Copy:
    """One request's KV on its way. `done` of its blocks have been moved."""

    number: int
    direction: str  # out | in
    request: Request
    places: list[int]  # in the request's table, ascending
    blocks: list[int]
    host_blocks: list[int]
    kv: int  # positions
    done: int = 0

    @property
    def complete(self) -> bool:
        return self.done == len(self.blocks)

    # What its events say of it.

    @property
    def named(self) -> dict[str, Any]:
        return {"id": self.request.id, "copy": self.number}

    @property
    def whole(self) -> dict[str, Any]:
        """For the first one."""
        lists = {name: tuple(getattr(self, name)) for name in ("places", "blocks", "host_blocks")}
        return self.named | lists | {"kv": self.kv}

    def so_far(self, blocks: Sequence[int], host_blocks: Sequence[int]) -> dict[str, Any]:
        """For its progress; these blocks are the newest."""
        lists = {"blocks": tuple(blocks), "host_blocks": tuple(host_blocks)}
        return self.named | lists | {"done": self.done, "total": len(self.blocks)}


class Copies:
    """The copies in flight, oldest first. With `rate` None a copy moves whole when it is told to; else
    all together move so many blocks a step."""

    def __init__(self, runner: Runner, log: EventLog, *, rate: int | None, block_size: int) -> None:
        self.in_flight: list[Copy] = []  # not settled yet
        self.rate = rate
        self.before_last_write = False  # a copy out does not wait for the last write: unsafe
        self._left = rate  # of the step's share
        self._block_size = block_size
        self._runner = runner
        self._log = log
        self._count = 0

    def number(self) -> int:
        """Of the next copy."""
        self._count += 1
        return self._count

    def open(
        self,
        direction: str,
        request: Request,
        places: list[int],
        blocks: list[int],
        host_blocks: list[int],
        kv: int,
    ) -> Copy:
        """A copy is under way; nothing has moved yet."""
        copy = Copy(self.number(), direction, request, places, blocks, host_blocks, kv)
        self.in_flight.append(copy)
        return copy

    def going(self, direction: str) -> list[Copy]:
        return [copy for copy in self.in_flight if copy.direction == direction]

    def settle(self, copy: Copy) -> None:
        """It is no longer in flight."""
        self.in_flight = [other for other in self.in_flight if other is not copy]

    def next_step(self) -> None:
        """The share of a step is whole again."""
        self._left = self.rate

    def move(self, copy: Copy) -> None:
        """Move the copy's next blocks, within the step's share. Raises CopyError, nothing moved."""
        if self._left == 0:
            return
        end = len(copy.blocks) if self._left is None else copy.done + self._left
        blocks, host_blocks = copy.blocks[copy.done : end], copy.host_blocks[copy.done : end]
        out = list(zip(blocks, host_blocks, strict=True))
        if copy.direction == "out":
            self._runner.copy_out(out, before_last_write=self.before_last_write)
        else:
            self._runner.copy_in([(host_block, block) for block, host_block in out])
        copy.done += len(blocks)
        if self._left is not None:
            self._left -= len(blocks)
        newest = copy.so_far(blocks, host_blocks)
        if copy.direction == "in":
            self._log.record(SwapInAdvanced(**newest))
            return
        to_come = copy.kv - min(copy.kv, copy.done * self._block_size)
        stored = copy.request.host_kv - to_come
        self._log.record(SwapOutAdvanced(**newest, host_kv=stored))
        if copy.complete:
            copy.request.state = RequestState.SWAPPED
            self._log.record(SwapOutFinished(**copy.named, kv=copy.kv))
