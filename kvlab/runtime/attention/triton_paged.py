"""Attention with Triton's kernels: decoding reads the pool in place, through the block tables.

Requests with several rows (prefill, chunks, recomputation) are bound by arithmetic: their KV is
gathered, which costs little beside, and handed to torch's fused attention.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from kvlab.engine.request import Batch, ScheduledRequest
from kvlab.runtime.attention.launch import (
    Decoding,
    decode,
    first_line,
    processors_of,
    splits_for,
    store_kv,
)
from kvlab.runtime.attention.paged import Span, prefill, slot_of, slots_of
from kvlab.runtime.kv_cache import KVCache
from kvlab.runtime.to_device import to_device


@dataclass(frozen=True, slots=True)
class TritonLayout:
    """The layout of one step. See `Layout`."""

    slot_mapping: Tensor
    decoding: Decoding
    spans: tuple[Span, ...]
    block_size: int

    def attend(self, cache: KVCache, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write k and v through the slot mapping, then attend; all [N, heads, head_dim]."""
        keys, values = cache.slots(layer)
        store_kv(keys, values, self.slot_mapping, k, v)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for span in self.spans:
            out[span.first_row : span.end_row] = prefill(
                q[span.first_row : span.end_row],
                keys.index_select(0, span.slots),
                values.index_select(0, span.slots),
                span.mask,
            )
        decode(q, keys, values, out, self.decoding, self.block_size)
        return out


class TritonAttention:
    """Attention over one pool, for a model with `heads` query heads."""

    name = "triton"

    def __init__(self, cache: KVCache, heads: int, why: str) -> None:
        self.why = why
        self._block_size = cache.block_size
        self._device = cache.data.device
        self._dtype = cache.data.dtype
        self._kv_heads, self._head_dim = cache.data.shape[-2:]
        self._heads = heads
        self._processors = processors_of(self._device)

    def why_it_fails(self) -> str:
        """Try the kernels on one position, whose attention is its own value; empty: all is well.

        A machine may have Triton and yet no compiler for it, or a GPU that it does not serve.
        """
        try:
            shape = (2, 1, self._kv_heads, self._head_dim)
            numbers = torch.linspace(-1, 1, math.prod(shape)).view(shape)
            k, v = numbers.to(self._device, self._dtype)
            keys, values = torch.zeros(2, self._block_size, *k.shape[1:]).to(k)
            zero = to_device([0], self._device)
            store_kv(keys, values, zero, k, v)
            q = torch.zeros(1, self._heads, self._head_dim).to(k)
            out = torch.empty_like(q)
            table = to_device([0], self._device, torch.int32)
            one = self.decoding(zero, table, zero, zero + 1, longest=1)
            decode(q, keys, values, out, one, self._block_size)
            expected = v.repeat_interleave(self._heads // self._kv_heads, dim=1)
            if not torch.equal(out, expected):
                return "a trial of the kernels gave a wrong result"
        except Exception as error:  # whatever the compiler or the driver raised
            return f"a trial of the kernels failed ({first_line(error)})"
        return ""

    def layout(self, batch: Batch) -> TritonLayout:
        """Read the block tables of a batch."""
        mapping: list[int] = []
        rows: list[int] = []
        decoding: list[ScheduledRequest] = []
        spans: list[Span] = []
        row = 0
        for scheduled in batch:
            count = len(scheduled.tokens)
            if count == 1:
                rows.append(row)
                decoding.append(scheduled)
                mapping.append(slot_of(scheduled, scheduled.start, self._block_size))
            else:
                slots = slots_of(scheduled, self._block_size)
                mapping += slots[scheduled.start :]
                spans.append(Span.of(scheduled, to_device(slots, self._device), row))
            row += count
        tables, firsts = joined_tables(decoding, self._block_size)
        lengths = [scheduled.end for scheduled in decoding]
        to = self._device
        return TritonLayout(
            slot_mapping=to_device(mapping, to),
            decoding=self.decoding(
                to_device(rows, to),
                to_device(tables, to, torch.int32),
                to_device(firsts, to),
                to_device(lengths, to),
                longest=max(lengths, default=0),
            ),
            spans=tuple(spans),
            block_size=self._block_size,
        )

    def decoding(
        self, rows: Tensor, tables: Tensor, firsts: Tensor, lengths: Tensor, *, longest: int
    ) -> Decoding:
        """Split so that the device is busy, for requests of up to `longest` positions."""
        return Decoding.over(
            rows,
            tables,
            firsts,
            lengths,
            splits=splits_for(len(rows), self._kv_heads, self._processors, longest),
            heads=self._heads,
            head_dim=self._head_dim,
        )

    def captured(self, slot_mapping: Tensor, decoding: Decoding) -> TritonLayout:
        """The layout of a step in which every row decodes, over tensors that outlive the step."""
        return TritonLayout(slot_mapping, decoding, (), self._block_size)


def joined_tables(
    decoding: Iterable[ScheduledRequest], block_size: int
) -> tuple[list[int], list[int]]:
    """The tables one after the other, as far as they have KV, and where each begins.

    No rectangle: what is sent grows with the blocks in use, not with the longest request.
    """
    tables: list[int] = []
    firsts: list[int] = []
    for scheduled in decoding:
        firsts.append(len(tables))
        tables.extend(scheduled.table[: -(-scheduled.end // block_size)])
    return tables, firsts
