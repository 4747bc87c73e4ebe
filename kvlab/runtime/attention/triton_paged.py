"""Attention with Triton's kernels: decoding reads the pool in place, through the block tables.

Requests with several rows (prefill, chunks, recomputation) are bound by arithmetic: their KV is
gathered, which costs little beside, and handed to torch's fused attention.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from kvlab.engine.request import Batch, ScheduledRequest
from kvlab.runtime.attention.launch import (
    LEAST_PER_SPLIT,
    Decoding,
    decode,
    first_line,
    processors_of,
    splits_for,
    store_kv,
)
from kvlab.runtime.attention.paged import Span, prefill, sorted_out
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
        self._slots = cache.num_blocks * cache.block_size
        self._device = cache.data.device
        self._dtype = cache.data.dtype
        self._kv_heads, self._head_dim = cache.data.shape[-2:]
        self._heads = heads
        self._processors = processors_of(self._device)
        self._splits = [1]  # the numbers of splits whose kernels work here, ascending

    def why_it_fails(self) -> str:
        """Try the kernels in every number of splits that this pool can ask for, which compiles them,
        too. Empty: all is well, or at least without splits; `why` names those that are not used.

        A machine may have Triton and yet no compiler for it, or a GPU that it does not serve.
        """
        most = splits_for(1, self._kv_heads, self._processors, self._slots)
        failed = {}
        for splits in (2**power for power in range(most.bit_length())):
            if why_not := self._trial(splits):
                failed[splits] = why_not
        if 1 in failed:
            return failed[1]
        self._splits = [2**power for power in range(most.bit_length()) if 2**power not in failed]
        if failed:
            self.why += (
                f", not in {', '.join(map(str, failed))} splits: {next(iter(failed.values()))}"
            )
        return ""

    def _trial(self, splits: int) -> str:
        """One request at which all positions look alike, so that the result is the mean of their
        values: those of every second split are larger by one. Empty where it is."""
        try:
            length = LEAST_PER_SPLIT * splits if splits > 1 else 1
            blocks = -(-length // self._block_size)
            width = self._kv_heads * self._head_dim
            own = (torch.arange(width, device=self._device) % 17 - 8) / 8  # in every type exact
            position = torch.arange(length, device=self._device)
            v = (own + (position // LEAST_PER_SPLIT % 2)[:, None]).to(self._dtype)
            v = v.view(length, self._kv_heads, self._head_dim)
            keys, values = v.new_zeros(2, blocks * self._block_size, *v.shape[1:])
            table = torch.arange(blocks - 1, -1, -1, dtype=torch.int32, device=self._device)
            size = self._block_size
            slots = table[position // size].long() * size + position % size
            store_kv(keys, values, slots, torch.zeros_like(v), v)
            q = v.new_zeros(1, self._heads, self._head_dim)
            out = torch.empty_like(q)
            zero = to_device([0], self._device)
            one = self._decoding(zero, table, zero, zero + length, splits)
            decode(q, keys, values, out, one, size)
            mean = (own + (0.5 if splits > 1 else 0.0)).to(self._dtype).view(1, *v.shape[1:])
            if not torch.equal(out, mean.repeat_interleave(self._heads // self._kv_heads, dim=1)):
                return "a trial of the kernels gave a wrong result"
        except Exception as error:  # whatever the compiler or the driver raised
            return f"a trial of the kernels failed ({first_line(error)})"
        return ""

    def layout(self, batch: Batch) -> TritonLayout:
        """Read the block tables of a batch."""
        mapping, rows, decoding, spans = sorted_out(batch, self._block_size, self._device)
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
            spans=spans,
            block_size=self._block_size,
        )

    def decoding(
        self, rows: Tensor, tables: Tensor, firsts: Tensor, lengths: Tensor, *, longest: int
    ) -> Decoding:
        """Split so that the device is busy, for requests of up to `longest` positions."""
        wanted = splits_for(len(rows), self._kv_heads, self._processors, longest)
        splits = max(splits for splits in self._splits if splits <= wanted)
        return self._decoding(rows, tables, firsts, lengths, splits)

    def _decoding(
        self, rows: Tensor, tables: Tensor, firsts: Tensor, lengths: Tensor, splits: int
    ) -> Decoding:
        return Decoding.over(
            rows,
            tables,
            firsts,
            lengths,
            splits=splits,
            heads=self._heads,
            head_dim=self._head_dim,
        )


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
