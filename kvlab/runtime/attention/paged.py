"""Attention that reads K and V through block tables, in plain torch: the reference of all kernels.

A step's rows are packed: one row a token, whatever request it belongs to. Requests with one row
(decode) are attended to together, padded to the longest history; those with more (prefill, chunks,
recomputation) one by one. Only slots that hold this request's KV are ever read: padding points at a
slot of the same request and is masked, so that whatever lies in other blocks cannot matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from kvlab.engine.request import Batch, ScheduledRequest
from kvlab.runtime.kv_cache import KVCache
from kvlab.runtime.to_device import to_device


@dataclass(frozen=True, slots=True)
class Span:
    """One request with several rows: where they are, which slots it reads, who sees what."""

    first_row: int
    end_row: int
    slots: Tensor  # int64 [L]: slot of each position below `end`
    mask: Tensor | None  # bool [rows, L]: row i sees position j; None: all of it is here, causal

    @classmethod
    def of(cls, scheduled: ScheduledRequest, slots: Tensor, row: int) -> Span:
        """`slots` as `slots_of` gives them, on the device; `row`: its first in the batch."""
        mask = None
        if scheduled.start:
            position = torch.arange(scheduled.start, scheduled.end, device=slots.device)
            mask = torch.arange(scheduled.end, device=slots.device) <= position[:, None]
        return cls(row, row + len(scheduled.tokens), slots, mask)


@dataclass(slots=True)
class Gathered:
    """K and V of some slots, side by side. The room for them is taken once a step: taken anew in
    each layer it costs as much as the copy, as the system clears every page that it hands out."""

    room: list[Tensor] = field(default_factory=list)

    def read(self, keys: Tensor, values: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of `keys` and `values` at `slots` [L], each [L, kv_heads, head_dim]; they hold
        until the next call."""
        if not self.room or len(self.room[0]) < len(slots):
            self.room = [keys.new_empty(len(slots), *keys.shape[1:]) for _ in "kv"]
        k, v = (room[: len(slots)] for room in self.room)
        torch.index_select(keys, 0, slots, out=k)
        torch.index_select(values, 0, slots, out=v)
        return k, v


@dataclass(frozen=True, slots=True)
class Attention:
    """The layout of one step, built once and used in every layer.

    slot_mapping int64 [N]: where each row's K and V are written.
    decode_rows int64 [B], decode_slots int64 [B, L]; decode_mask [B, 1, 1, L], in the pool's dtype,
    is added to the scores: 0, or -inf behind a request's end.
    """

    slot_mapping: Tensor
    decode_rows: Tensor
    decode_slots: Tensor
    decode_mask: Tensor
    spans: tuple[Span, ...]
    gathered: Gathered = field(default_factory=Gathered)

    @classmethod
    def layout(cls, batch: Batch, cache: KVCache) -> Attention:
        """Read the block tables of a batch over a pool."""
        block_size, device = cache.block_size, cache.data.device
        mapping, rows, decoding, spans = sorted_out(batch, block_size, device)
        padded, seen = padded_slots(decoding, block_size, device)
        return cls(
            slot_mapping=to_device(mapping, device),
            decode_rows=to_device(rows, device),
            decode_slots=padded,
            decode_mask=added_mask(seen, cache.data.dtype)[:, None, None, :],
            spans=spans,
        )

    def attend(self, cache: KVCache, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write k and v through the slot mapping, then attend; all [N, heads, head_dim]."""
        cache.write(layer, self.slot_mapping, k, v)
        keys, values = cache.slots(layer)
        if not self.spans:  # all rows decode: no scatter is needed
            return self._decode(q, keys, values)
        out = torch.empty_like(q)
        for span in self.spans:
            own = slice(span.first_row, span.end_row)
            out[own] = prefill(q[own], *self.gathered.read(keys, values, span.slots), span.mask)
        if len(self.decode_rows):
            out[self.decode_rows] = self._decode(q[self.decode_rows], keys, values)
        return out

    def _decode(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """q [B, heads, head_dim], one row a request.

        The query heads of a group read the same K and V: they are handed over as that many queries
        of one head, so that nothing is repeated for them.
        """
        requests, longest = self.decode_slots.shape
        kv_heads, head_dim = keys.shape[1:]
        read = self.gathered.read(keys, values, self.decode_slots.view(-1))
        k, v = (x.view(requests, longest, kv_heads, head_dim).transpose(1, 2) for x in read)
        out = F.scaled_dot_product_attention(
            q.reshape(requests, kv_heads, -1, head_dim), k, v, attn_mask=self.decode_mask
        )
        return out.reshape(q.shape)


def sorted_out(
    batch: Batch, block_size: int, device: torch.device
) -> tuple[list[int], list[int], list[ScheduledRequest], tuple[Span, ...]]:
    """The slot that each row writes; the rows that decode and their requests; the others' spans."""
    mapping: list[int] = []
    rows: list[int] = []
    decoding: list[ScheduledRequest] = []
    spans: list[Span] = []
    for scheduled in batch:
        row = len(mapping)
        if len(scheduled.tokens) == 1:
            rows.append(row)
            decoding.append(scheduled)
            mapping.append(slot_of(scheduled, scheduled.start, block_size))
        else:
            slots = slots_of(scheduled, block_size)
            mapping += slots[scheduled.start :]
            spans.append(Span.of(scheduled, to_device(slots, device), row))
    return mapping, rows, decoding, tuple(spans)


def padded_slots(
    decoding: Sequence[ScheduledRequest], block_size: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The slot of each position of each request, int64 [B, L], and which of them are its own, bool
    [B, L]; those behind the end of a shorter request repeat its first slot."""
    if not decoding:
        none = torch.empty(0, 0, dtype=torch.long, device=device)
        return none, none.bool()
    ends = torch.tensor([scheduled.end for scheduled in decoding], device=device)
    longest = max(scheduled.end for scheduled in decoding)
    width = -(-longest // block_size)
    padded = [(*scheduled.table, *[0] * width)[:width] for scheduled in decoding]
    starts = torch.tensor(padded, dtype=torch.long, device=device) * block_size
    offsets = torch.arange(block_size, device=device)
    slots = (starts[:, :, None] + offsets).flatten(1)[:, :longest]
    seen = torch.arange(longest, device=device) < ends[:, None]
    return torch.where(seen, slots, starts[:, :1]), seen


def added_mask(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where `seen`, else -inf. torch would make this of a bool mask, in every layer."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -torch.inf)


def slot_of(scheduled: ScheduledRequest, position: int, block_size: int) -> int:
    """The slot of one position, through the block table."""
    return scheduled.table[position // block_size] * block_size + position % block_size


def slots_of(scheduled: ScheduledRequest, block_size: int) -> list[int]:
    """The slot of each position below `scheduled.end`, through its block table."""
    return [slot_of(scheduled, position, block_size) for position in range(scheduled.end)]


def prefill(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(q k^T / sqrt(d)) v: q [rows, heads, d] over k, v [L, kv_heads, d]; without a mask
    the rows are all L positions, each of which sees those up to its own."""
    group = q.shape[1] // k.shape[1]
    if mask is not None and q.is_cuda and q.dtype != torch.float32 and group > 1:
        # With a mask torch's fused CUDA kernels know no groups.
        k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
        group = 1
    query, key, value = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
    out = F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, enable_gqa=group > 1
    )
    return out[0].transpose(0, 1)
