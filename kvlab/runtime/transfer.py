"""Copies of whole blocks between the GPU pool and the host pool.

On the CPU both pools are separate allocations and the copies are plain copies. On CUDA a copy goes
through staging memory on the device: one kernel gathers the scattered blocks there, and whole runs
of blocks cross the link, on streams of their own. The model's stream never waits for the link where
it need not, and the CPU never waits. Events keep the three orderings:

- KV write before copy-out: the gather waits for what the model's stream was given before.
- Copy-out complete before the block is reused: once gathered, a block's values are safe. The
  model's stream waits for the gather, and no longer.
- Last read before copy-in: the scatter into the pool waits for what the model's stream was given
  before; the way from the host to the staging memory does not. A step waits for the copies of
  blocks in its own tables (`settle`), and for no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from kvlab.engine.runner import CopyError, Pairs
from kvlab.runtime.kv_cache import KVCache
from kvlab.runtime.to_device import to_device

LANES = 2
STAGING_BYTES = 64 << 20
"""Of each lane. A copy that fits into both lanes leaves the model's stream at once."""


class Transfer:
    """Moves blocks between `device` and `host`, or within `device`."""

    def __init__(self, device: KVCache, host: KVCache, *, staging_bytes: int | None = None) -> None:
        self._device = device
        self._host = host
        if staging_bytes is None and device.data.is_cuda and host.num_blocks:
            staging_bytes = STAGING_BYTES
        self._staged = Staged(device, host, staging_bytes) if staging_bytes else None

    def copy_out(self, pairs: Pairs) -> None:
        """Device block to host block, every layer, K and V. Raises CopyError."""
        self._copy(self._device, self._host, pairs)

    def copy_in(self, pairs: Pairs) -> None:
        """Host block to device block, every layer, K and V. Raises CopyError.

        On CUDA, whoever reads the blocks calls `settle` before.
        """
        self._copy(self._host, self._device, pairs)

    def copy_block(self, source: int, target: int) -> None:
        """Device block to device block. Raises CopyError."""
        self.settle((source, target))
        self._copy(self._device, self._device, [(source, target)])

    def settle(self, blocks: Iterable[int]) -> None:
        """Later work on the model's stream finds in these device blocks what was copied in."""
        if self._staged:
            self._staged.settle(blocks)

    def finish(self) -> None:
        """Wait until every copy is complete, so that the CPU can read the host pool."""
        if self._staged:
            self._staged.finish()

    def _copy(self, source: KVCache, target: KVCache, pairs: Pairs) -> None:
        if not pairs:
            return
        check_blocks(source, [a for a, _ in pairs])
        check_blocks(target, [b for _, b in pairs])
        try:
            if self._staged is None or source is target:
                copy_blocks(source, target, pairs)
            elif source is self._device:
                self._staged.copy_out(pairs)
            else:
                self._staged.copy_in(pairs)
        except RuntimeError as error:
            raise CopyError(str(error).splitlines()[0]) from error


def check_blocks(pool: KVCache, blocks: Sequence[int]) -> None:
    """Raise CopyError for a block that the pool lacks: on CUDA a kernel would only abort later."""
    for block in blocks:
        if not 0 <= block < pool.num_blocks:
            raise CopyError(f"block {block} is not one of the pool's {pool.num_blocks}")


def copy_blocks(source: KVCache, target: KVCache, pairs: Pairs) -> None:
    """Block by block, within one kind of memory: a copy of all by index would first gather them in a
    temporary as large as the whole copy, and take several times as long on the CPU."""
    for a, b in pairs:
        target.data[:, :, b].copy_(source.data[:, :, a])


Mark = torch.cuda.Event | None
"""A point in a stream's work; None on the CPU, where work is done when it is given."""


class Lane:
    """A stream and the staging memory that it owns, [blocks, layers, 2, ...]. Two lanes take turns:
    while one has its piece on the link, the other gathers the next."""

    def __init__(self, staging: Tensor) -> None:
        self.staging = staging
        self.stream = torch.cuda.Stream(staging.device) if staging.is_cuda else None

    def work(self) -> AbstractContextManager[object]:
        """What is launched inside goes to this lane."""
        return torch.cuda.stream(self.stream) if self.stream else nullcontext()

    def mark(self) -> Mark:
        """The end of what the lane has been given."""
        return self.stream.record_event() if self.stream else None

    def wait(self, mark: Mark) -> None:
        if self.stream and mark:
            self.stream.wait_event(mark)


class Run(NamedTuple):
    """`length` blocks of a pool from `first` on, and where they begin in the staging memory."""

    at: int
    first: int
    length: int


class Staged:
    """Copies through staging memory. `copy_out` and `copy_in` return when the work is queued.

    Also runs on the CPU, where the streams are none, so that its indexing can be tested there.
    """

    def __init__(self, device: KVCache, host: KVCache, staging_bytes: int) -> None:
        self._device = device.data.device
        self._pool = by_block(device)
        self._host = by_block(host)
        most = min(device.num_blocks, host.num_blocks)
        self._blocks = staged_blocks(device.bytes_per_block, most, staging_bytes)
        shape = (self._blocks, *self._pool.shape[1:])
        self._lanes = [
            Lane(torch.empty(shape, dtype=self._pool.dtype, device=self._device))
            for _ in range(LANES)
        ]
        self._arriving: dict[int, Mark] = {}

    def copy_out(self, pairs: Pairs) -> None:
        self._begin(self._model_mark())
        gathered: list[Mark] = []
        for lane, piece in self._pieces(pairs):
            with lane.work():
                blocks = to_device([block for block, _ in piece], self._device)
                staging = lane.staging[: len(piece)]
                torch.index_select(self._pool, 0, blocks, out=staging)
                gathered.append(lane.mark())
                for run in runs([host for _, host in piece]):
                    cross(staging[run.at : run.at + run.length], self._host, run, out=True)
        for mark in gathered:
            self._model_waits(mark)

    def copy_in(self, pairs: Pairs) -> None:
        last_read = self._model_mark()
        self._begin(None)
        for lane, piece in self._pieces(pairs):
            with lane.work():
                staging = lane.staging[: len(piece)]
                for run in runs([host for host, _ in piece]):
                    cross(staging[run.at : run.at + run.length], self._host, run, out=False)
                blocks = to_device([block for _, block in piece], self._device)
                lane.wait(last_read)
                self._pool.index_copy_(0, blocks, staging)
                arrived = lane.mark()
            self._arriving |= {block: arrived for _, block in piece if arrived}

    def settle(self, blocks: Iterable[int]) -> None:
        if self._arriving:
            for block in blocks:
                self._model_waits(self._arriving.pop(block, None))

    def finish(self) -> None:
        for lane in self._lanes:
            if lane.stream:
                lane.stream.synchronize()

    def _begin(self, mark: Mark) -> None:
        """Each lane goes on after the other's work (the same host block may be on either) and
        after `mark`."""
        ends = [lane.mark() for lane in self._lanes]
        for lane, other in zip(self._lanes, reversed(ends), strict=True):
            lane.wait(other)
            lane.wait(mark)

    def _pieces(self, pairs: Pairs) -> Iterator[tuple[Lane, Pairs]]:
        for number, start in enumerate(range(0, len(pairs), self._blocks)):
            yield self._lanes[number % LANES], pairs[start : start + self._blocks]

    def _model_mark(self) -> Mark:
        if self._device.type != "cuda":
            return None
        return torch.cuda.current_stream(self._device).record_event()

    def _model_waits(self, mark: Mark) -> None:
        if mark:
            torch.cuda.current_stream(self._device).wait_event(mark)


def staged_blocks(bytes_per_block: int, most: int, staging_bytes: int = STAGING_BYTES) -> int:
    """Blocks that a lane stages at a time: as many as fit into its memory, at least one and not more
    than there are."""
    return max(1, min(staging_bytes // max(1, bytes_per_block), most))


def by_block(pool: KVCache) -> Tensor:
    """The pool as [blocks, layers, 2, block_size, kv_heads, widest units]: a view for copying.

    Copies move bits, so numbers are taken as integers as wide as head_dim allows.
    """
    row = pool.data.shape[-1] * pool.data.element_size()
    units = (torch.int64, torch.int32, torch.int16, torch.int8)
    wide = next(unit for unit in units if row % unit.itemsize == 0)
    return pool.data.view(wide).permute(2, 0, 1, 3, 4, 5)


def runs(blocks: Sequence[int]) -> Iterator[Run]:
    """Blocks that lie side by side in the pool, in the order of the staging memory."""
    start = 0
    for at in range(1, len(blocks) + 1):
        if at == len(blocks) or blocks[at] != blocks[at - 1] + 1:
            yield Run(start, blocks[start], at - start)
            start = at


def cross(staging: Tensor, host: Tensor, run: Run, *, out: bool) -> None:
    """Queue one run's way over the link: one copy where the host pool is block-major, else one for
    each layer's K and V. Only a contiguous host side is copied without the CPU's help."""
    there = host[run.first : run.first + run.length]
    if there.is_contiguous():
        parts = [(there, staging)]
    else:
        parts = [
            (there[:, layer, half], staging[:, layer, half])
            for layer in range(host.shape[1])
            for half in (0, 1)
        ]
    for on_host, on_device in parts:
        target, source = (on_host, on_device) if out else (on_device, on_host)
        target.copy_(source, non_blocking=True)
