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
from torch.nn import functional as F

from kvlab.engine.request import Batch, ScheduledRequest
from kvlab.runtime.attention.launch import (
    Decoding,
    decode,
    first_line,
    processors_of,
    splits_for,
    store_kv,
)
from kvlab.runtime.attention.paged import sdpa, slots_of
from kvlab.runtime.kv_cache import KVCache
from kvlab.runtime.to_device import to_device


@dataclass(frozen=True, slots=True)
class Span:
    """One request with several rows: where they are, which slots it reads, who sees what."""

    first_row: int
    end_row: int
    slots: Tensor  # int64 [L]: slot of each position below `end`
    mask: Tensor | None  # bool [rows, L]: row i sees position j; None: all of it is here, causal


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
                spans.append(self._span(scheduled, slots, row))
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

    def _span(self, scheduled: ScheduledRequest, slots: list[int], row: int) -> Span:
        mask = None
        if scheduled.start:
            position = torch.arange(scheduled.start, scheduled.end, device=self._device)
            mask = torch.arange(scheduled.end, device=self._device) <= position[:, None]
        end = row + len(scheduled.tokens)
        return Span(row, end, to_device(slots, self._device), mask)

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


def slot_of(scheduled: ScheduledRequest, position: int, block_size: int) -> int:
    """The slot of one position, through the block table."""
    return scheduled.table[position // block_size] * block_size + position % block_size


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


def prefill(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """q [rows, heads, d] over k, v [L, kv_heads, d]; without a mask all of L is causal with q."""
    if mask is None:
        query, key, value = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
        out = F.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=q.shape[1] != k.shape[1]
        )
        return out[0].transpose(0, 1)
    if q.is_cuda and q.dtype != torch.float32 and (group := q.shape[1] // k.shape[1]) > 1:
        # With a mask torch's fused kernels know no groups. float32 goes the reference's way.
        k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    return sdpa(q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), mask)[0]
