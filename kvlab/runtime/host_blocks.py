"""The host pool as the copy engine of a GPU wants it: a block in one piece."""

from __future__ import annotations

import torch

from kvlab.errors import BadInput, reason_of
from kvlab.runtime.kv_cache import KVCache


class HostBlocks(KVCache):
    """A pinned pool, block-major in memory: [blocks, layers, 2, block_size, kv_heads, head_dim].

    `data` shows it with the axes of every pool, [layers, 2, blocks, ...]. A block of an 8B model is
    then one piece of 2 MiB instead of 64 of 32 KiB, and blocks that lie side by side are one copy.
    Nothing attends here, so there is no view by slot.
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
        try:
            by_block = torch.zeros(shape, dtype=dtype, pin_memory=pinned and num_blocks > 0)
        except RuntimeError as error:
            raise BadInput(
                f"a host pool of {num_blocks} blocks needs {size / 1e6:,.0f} MB of pinned memory, "
                f"which could not be had ({reason_of(error)}); give fewer host blocks."
            ) from None
        self.data = by_block.permute(1, 2, 0, 3, 4, 5)
        self.block_size = block_size
        self.num_blocks = num_blocks
        self._slots = []
