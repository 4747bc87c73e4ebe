"""A pool of KV blocks in one tensor, on whatever device."""

from __future__ import annotations

import zlib
from ctypes import string_at

import torch
from torch import Tensor

from kvlab.errors import BadInput, reason_of


class KVCache:
    """`data` [layers, 2, blocks, block_size, kv_heads, head_dim]: K at index 0, V at index 1.

    A slot is a position in the flattened [blocks * block_size] dimension: block id x block_size +
    offset. Nothing is ever cleared: a released block keeps its values until they are written over.
    Raises BadInput when the memory is not there.
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
        device: torch.device,
    ) -> None:
        shape = (layers, 2, num_blocks, block_size, kv_heads, head_dim)
        try:
            self.data = torch.zeros(shape, dtype=dtype, device=device)
        except RuntimeError as error:
            size = torch.Size(shape).numel() * dtype.itemsize
            raise BadInput(
                f"a KV pool of {num_blocks} blocks needs {size / 1e6:,.0f} MB on {device}, which "
                f"could not be had ({reason_of(error)}); give fewer blocks."
            ) from None
        self.block_size = block_size
        self.num_blocks = num_blocks
        # One [slots, kv_heads, head_dim] view for each layer, so that a step makes none.
        self._slots = [
            (layer[0].view(-1, kv_heads, head_dim), layer[1].view(-1, kv_heads, head_dim))
            for layer in self.data
        ]

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block over all layers, K and V."""
        return self.data[:, :, :1].numel() * self.data.element_size() if self.num_blocks else 0

    def slots(self, layer: int) -> tuple[Tensor, Tensor]:
        """K and V of a layer by slot, each [blocks * block_size, kv_heads, head_dim]."""
        return self._slots[layer]

    def write(self, layer: int, slot_mapping: Tensor, k: Tensor, v: Tensor) -> None:
        """Store k and v [N, kv_heads, head_dim] at the slots [N] given for each row."""
        keys, values = self._slots[layer]
        keys.index_copy_(0, slot_mapping, k)
        values.index_copy_(0, slot_mapping, v)

    def block(self, block: int) -> Tensor:
        """The values of a block, [layers, 2, block_size, kv_heads, head_dim] (a view)."""
        return self.data[:, :, block]

    def fingerprint(self, block: int, length: int) -> tuple[int, ...]:
        """CRC-32 of the bytes of a block's first `length` slots, K and V, for each layer."""
        return tuple(crc(layer[:, block, :length]) for layer in self.data)

    def checksum(self, block: int, length: int | None = None) -> int:
        """CRC-32 of the bytes of a block's first `length` slots (None: all), every layer, K and V."""
        return crc(self.block(block)[:, :, :length])


def crc(values: Tensor) -> int:
    """CRC-32 of a tensor's bytes."""
    flat = values.contiguous().cpu()
    return zlib.crc32(string_at(flat.data_ptr(), flat.numel() * flat.element_size()))
