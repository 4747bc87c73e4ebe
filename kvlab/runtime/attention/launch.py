"""Launches the Triton kernels on tensors: grids, tiles and the number of splits."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvlab.runtime.attention.kernels import combine_splits, paged_decode, write_kv

WIDEST_HEAD = 256
LARGEST_GROUP = 64
MOST_SPLITS = 64
LEAST_PER_SPLIT = 64  # positions; a multiple of every tile
TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


def first_line(error: Exception) -> str:
    """What a compiler or driver says, short enough to be shown."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def interpreting() -> bool:
    """Whether kernels run on the CPU, one program after the other, for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def unsuited(dtype: torch.dtype, head_dim: int, heads: int, kv_heads: int, slots: int) -> str:
    """Why the kernels cannot take this shape; empty when they can. Any block size will do."""
    if dtype not in TYPES:
        return f"the kernels compute in float32, bfloat16 and float16, not {dtype}"
    if head_dim > WIDEST_HEAD:
        return f"the kernels take heads of up to {WIDEST_HEAD} numbers, this model has {head_dim}"
    if heads % kv_heads or heads // kv_heads > LARGEST_GROUP:
        return (
            f"the kernels take 1 to {LARGEST_GROUP} query heads for each KV head, this model has "
            f"{heads} for {kv_heads}"
        )
    if slots >= 2**31:
        return f"the kernels count positions of the pool in 31 bits, this pool has {slots:,}"
    return ""


@dataclass(frozen=True, slots=True)
class Decoding:
    """Which rows decode and what they read: device tensors, described in `paged_decode`.

    `splits` programs share each request's positions; `partial` and `partial_lse` hold what they
    found, for one layer at a time.
    """

    rows: Tensor
    tables: Tensor
    firsts: Tensor
    lengths: Tensor
    splits: int
    partial: Tensor
    partial_lse: Tensor

    @classmethod
    def over(
        cls,
        rows: Tensor,
        tables: Tensor,
        firsts: Tensor,
        lengths: Tensor,
        *,
        splits: int,
        heads: int,
        head_dim: int,
    ) -> Decoding:
        """With room for the splits' results."""
        shape = (len(rows), heads, splits) if splits > 1 else (0,)
        lse = torch.empty(shape, dtype=torch.float32, device=rows.device)
        partial = torch.empty((*shape, head_dim), dtype=torch.float32, device=rows.device)
        return cls(rows, tables, firsts, lengths, splits, partial, lse)


def splits_for(requests: int, kv_heads: int, processors: int, longest: int) -> int:
    """Splits that give every processor about two programs, none with fewer than LEAST_PER_SPLIT
    positions of the longest request. A power of two: each number is a kernel of its own."""
    useful = min(-(-2 * processors // max(1, requests * kv_heads)), -(-longest // LEAST_PER_SPLIT))
    return triton.next_power_of_2(min(max(useful, 1), MOST_SPLITS))


def processors_of(device: torch.device) -> int:
    """Multiprocessors of a GPU; a few under the interpreter, so that splits are tried as well."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    return 4


def store_kv(keys: Tensor, values: Tensor, slot_mapping: Tensor, k: Tensor, v: Tensor) -> None:
    """k and v [rows, kv_heads, head_dim] into the slots [rows] of a layer; below 0: nowhere."""
    rows, kv_heads, head_dim = k.shape
    width = kv_heads * head_dim
    if rows:
        k, v = dense_rows(k), dense_rows(v)
        write_kv[(rows,)](
            keys,
            values,
            k,
            v,
            slot_mapping,
            keys.stride(0),
            k.stride(0),
            v.stride(0),
            WIDTH=width,
            WIDTH_PAD=triton.next_power_of_2(width),
        )


def dense_rows(x: Tensor) -> Tensor:
    """x [rows, heads, head_dim] with each row in one piece; rows may lie apart, as views do."""
    return x if x.stride(1) == x.shape[2] and x.stride(2) == 1 else x.contiguous()


def decode(
    q: Tensor, keys: Tensor, values: Tensor, out: Tensor, what: Decoding, block_size: int
) -> None:
    """Attention of `what.rows` of q [N, heads, head_dim] into the same rows of `out`."""
    requests, heads, head_dim = len(what.rows), q.shape[1], q.shape[2]
    if not requests:
        return
    if q.stride(2) != 1:
        q = q.contiguous()
    kv_heads = keys.shape[1]
    group = heads // kv_heads
    head_pad = max(16, triton.next_power_of_2(head_dim))  # a product is at least 16 wide
    wide = head_pad * q.element_size() > 256
    bfloat_interpreted = interpreting() and q.dtype == torch.bfloat16  # it has no such product
    paged_decode[(requests, kv_heads, what.splits)](
        q,
        keys,
        values,
        out,
        what.partial,
        what.partial_lse,
        what.rows,
        what.tables,
        what.firsts,
        what.lengths,
        math.log2(math.e) / math.sqrt(head_dim),
        q.stride(0),
        q.stride(1),
        out.stride(0),
        out.stride(1),
        keys.stride(0),
        GROUP=group,
        GROUP_PAD=max(16, triton.next_power_of_2(group)),
        HEAD=head_dim,
        HEAD_PAD=head_pad,
        BLOCK_SIZE=block_size,
        TILE=32 if wide else 64,
        SPLITS=what.splits,
        LEAST=LEAST_PER_SPLIT,
        DOT=tl.float32 if bfloat_interpreted else TYPES[q.dtype],
        num_warps=4,
        num_stages=2 if wide else 3,
    )
    if what.splits > 1:
        combine_splits[(requests, heads)](
            what.partial,
            what.partial_lse,
            out,
            what.rows,
            what.lengths,
            out.stride(0),
            out.stride(1),
            HEAD=head_dim,
            HEAD_PAD=head_pad,
            SPLITS=what.splits,
            LEAST=LEAST_PER_SPLIT,
            num_warps=4,
        )
