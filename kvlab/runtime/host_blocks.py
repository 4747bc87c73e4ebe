"""The host pool as the copy engine of a GPU wants it: a block in one piece, in page-locked memory."""

from __future__ import annotations

import mmap
import weakref
from contextlib import suppress

import torch

from kvlab.errors import BadInput, reason_of
from kvlab.runtime.kv_cache import KVCache


class HostBlocks(KVCache):
    """A pinned pool, block-major in memory: [blocks, layers, 2, block_size, kv_heads, head_dim].

    `data` shows it with the axes of every pool, [layers, 2, blocks, ...]. A block of an 8B model is
    then one piece of 2 MiB instead of 64 of 32 KiB, and blocks that lie side by side are one copy.
    Nothing attends here, so there is no view by slot.

    The pool is memory of this process that CUDA is told to lock. torch's own pinned memory comes in
    powers of two: a pool of 40 GB would take 64.
    """

    def __init__(
        self,
        *,
        layers: int,
        num_blocks: int,
        block_size: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        pinned: bool,
    ) -> None:
        shape = (num_blocks, layers, 2, block_size, kv_heads, head_dim)
        size = torch.Size(shape).numel() * dtype.itemsize
        if not pinned or not size:
            by_block = torch.zeros(shape, dtype=dtype)
        else:
            try:
                # Whole pages of zeros, shared with nobody: a page can be locked only once.
                by_block = torch.frombuffer(mmap.mmap(-1, size), dtype=dtype).view(shape)
                lock(by_block.data_ptr(), size)
            except (RuntimeError, OSError) as error:
                raise BadInput(
                    f"a host pool of {num_blocks} blocks needs {size / 1e6:,.0f} MB of pinned "
                    f"memory, which could not be had ({reason_of(error)}); give fewer host blocks."
                ) from None
            # Unlocked before it is unmapped, or the next pool at this address could not be locked.
            weakref.finalize(self, unlock, by_block.data_ptr()).atexit = False
        self.data = by_block.permute(1, 2, 0, 3, 4, 5)
        self.block_size = block_size
        self.num_blocks = num_blocks
        self._slots = []


def lock(address: int, size: int) -> None:
    """Page-lock `size` bytes from an address on, for every CUDA device. Raises RuntimeError."""
    portable = 1  # cudaHostRegisterPortable
    status = int(torch.cuda.cudart().cudaHostRegister(address, size, portable))
    if status:
        with suppress(Exception):  # CUDA would tell of it once more, to whoever launches next
            torch.zeros(1, device="cuda").add_(1)
        raise RuntimeError(f"cudaHostRegister failed with status {status}")


def unlock(address: int) -> None:
    """Give back what `lock` locked, once no copy can be under way."""
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaHostUnregister(address)
