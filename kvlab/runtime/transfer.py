"""Copies of whole blocks between the GPU pool and the host pool.

On the CPU both pools are separate allocations and the copies are plain copies. On CUDA they run on
a stream of their own; events keep the orderings: a copy starts after the writes queued before it,
and the model's stream goes on only when the copy is complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from kvlab.engine.mover import CopyError, Pairs
from kvlab.runtime.kv_cache import KVCache


class Transfer:
    """Moves blocks between `device` and `host`, or within `device`."""

    def __init__(self, device: KVCache, host: KVCache) -> None:
        self._device = device
        self._host = host
        cuda = device.data.is_cuda
        self._stream = torch.cuda.Stream(device.data.device) if cuda else None

    def copy_out(self, pairs: Pairs) -> None:
        """Device block to host block, every layer, K and V. Raises CopyError."""
        self._copy(self._device, self._host, pairs)

    def copy_in(self, pairs: Pairs) -> None:
        """Host block to device block, every layer, K and V. Raises CopyError."""
        self._copy(self._host, self._device, pairs)

    def copy_block(self, source: int, target: int) -> None:
        """Device block to device block. Raises CopyError."""
        self._copy(self._device, self._device, [(source, target)])

    def _copy(self, source: KVCache, target: KVCache, pairs: Pairs) -> None:
        if not pairs:
            return
        try:
            with self._ordered():
                if self._stream is None:
                    copy_blocks(source, target, pairs)
                else:
                    copy_runs(source, target, pairs)
        except (RuntimeError, IndexError) as error:
            raise CopyError(str(error).splitlines()[0]) from error

    @contextmanager
    def _ordered(self) -> Iterator[None]:
        """On CUDA: after all that the model's stream was given, before all that it will be given."""
        if self._stream is None:
            yield
            return
        model = torch.cuda.current_stream(self._device.data.device)
        self._stream.wait_stream(model)
        with torch.cuda.stream(self._stream):
            yield
            done = self._stream.record_event()
        model.wait_event(done)


def copy_blocks(source: KVCache, target: KVCache, pairs: Pairs) -> None:
    """All pairs at once, by index."""
    from_blocks = torch.tensor([a for a, _ in pairs], device=source.data.device)
    to_blocks = torch.tensor([b for _, b in pairs], device=target.data.device)
    target.data.index_copy_(2, to_blocks, source.data.index_select(2, from_blocks))


def copy_runs(source: KVCache, target: KVCache, pairs: Sequence[tuple[int, int]]) -> None:
    """Between memories: each layer's K and V of a block is one contiguous, asynchronous copy."""
    for layer_from, layer_to in zip(source.data, target.data, strict=True):
        for half in (0, 1):
            for a, b in pairs:
                layer_to[half, b].copy_(layer_from[half, a], non_blocking=True)
