"""Attention that reads K and V through block tables, in plain torch: the reference of all kernels.

A step's rows are packed: one row a token, whatever request it belongs to. Requests with one row
(decode) are attended to together, padded to the longest history; those with more (prefill, chunks,
recomputation) one by one. Only slots that hold this request's KV are ever read: padding points at a
slot of the same request and is masked, so that whatever lies in other blocks cannot matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from kvlab.engine.request import Batch, ScheduledRequest
from kvlab.runtime.kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class Span:
    """One request with several rows: where they are, which slots it reads, who sees what."""

    first_row: int
    end_row: int
    slots: Tensor  # int64 [L]: slot of each position below `end`
    mask: Tensor  # bool [rows, L]: row i sees position j


@dataclass(frozen=True, slots=True)
class Attention:
    """The layout of one step, built once and used in every layer.

    slot_mapping int64 [N]: where each row's K and V are written.
    decode_rows int64 [B], decode_slots int64 [B, L], decode_mask bool [B, 1, 1, L].
    """

    slot_mapping: Tensor
    decode_rows: Tensor
    decode_slots: Tensor
    decode_mask: Tensor
    spans: tuple[Span, ...]

    @classmethod
    def layout(cls, batch: Batch, block_size: int, device: torch.device) -> Attention:
        """Read the block tables of a batch."""
        mapping: list[int] = []
        rows: list[int] = []
        histories: list[list[int]] = []
        spans: list[Span] = []
        row = 0
        for scheduled in batch:
            slots = slots_of(scheduled, block_size)
            mapping += slots[scheduled.start :]
            count = len(scheduled.tokens)
            if count == 1:
                rows.append(row)
                histories.append(slots)
            else:
                spans.append(_span(scheduled, slots, row, device))
            row += count
        longest = max(map(len, histories), default=0)
        padded = [slots + [slots[0]] * (longest - len(slots)) for slots in histories]
        lengths = torch.tensor([len(slots) for slots in histories], device=device)
        seen = torch.arange(longest, device=device) < lengths[:, None]
        return cls(
            slot_mapping=torch.tensor(mapping, device=device),
            decode_rows=torch.tensor(rows, dtype=torch.long, device=device),
            decode_slots=torch.tensor(padded, dtype=torch.long, device=device),
            decode_mask=seen[:, None, None, :],
            spans=tuple(spans),
        )

    def attend(self, cache: KVCache, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write k and v through the slot mapping, then attend; all [N, heads, head_dim]."""
        cache.write(layer, self.slot_mapping, k, v)
        keys, values = cache.slots(layer)
        if not self.spans:  # all rows decode: no scatter is needed
            return self._decode(q, keys, values)
        out = torch.empty_like(q)
        for span in self.spans:
            out[span.first_row : span.end_row] = sdpa(
                q[span.first_row : span.end_row].unsqueeze(0),
                keys.index_select(0, span.slots).unsqueeze(0),
                values.index_select(0, span.slots).unsqueeze(0),
                span.mask,
            )[0]
        if len(self.decode_rows):
            out[self.decode_rows] = self._decode(q[self.decode_rows], keys, values)
        return out

    def _decode(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """q [B, heads, head_dim], one row a request."""
        requests, longest = self.decode_slots.shape
        flat = self.decode_slots.view(-1)
        shape = (requests, longest, *keys.shape[1:])
        k = keys.index_select(0, flat).view(shape)
        v = values.index_select(0, flat).view(shape)
        return sdpa(q.unsqueeze(1), k, v, self.decode_mask).squeeze(1)


def _span(scheduled: ScheduledRequest, slots: list[int], row: int, device: torch.device) -> Span:
    count = len(scheduled.tokens)
    position = torch.arange(scheduled.start, scheduled.end, device=device)
    mask = torch.arange(scheduled.end, device=device) <= position[:, None]
    return Span(row, row + count, torch.tensor(slots, device=device), mask)


def slots_of(scheduled: ScheduledRequest, block_size: int) -> list[int]:
    """The slot of each position below `scheduled.end`, through its block table."""
    return [
        scheduled.table[position // block_size] * block_size + position % block_size
        for position in range(scheduled.end)
    ]


def sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Softmax(q k^T / sqrt(d)) v with grouped KV heads; q, k, v are [B, tokens, heads, d]."""
    out = F.scaled_dot_product_attention(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        attn_mask=mask,
        enable_gqa=q.shape[2] != k.shape[2],
    )
    return out.transpose(1, 2)
