# mypy: ignore-errors
"""Triton kernels over the paged KV cache. Imported only where they run: a CPU needs no Triton.

Offsets into the pool are int64: a layer of a pool can hold more than 2^31 numbers. Every kernel
takes any block size, a power of two or not: a tile of positions looks its blocks up one by one, so
that nothing depends on how tiles and blocks line up. Only positions below a request's length are
ever read, whatever lies in the rest of its last block or in blocks that nobody holds.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def write_kv(
    keys,  # [slots, kv_heads, head_dim], one layer of the pool; `values` likewise
    values,
    k,  # [rows, kv_heads, head_dim], rows `k_row` numbers apart; `v` likewise
    v,
    slot_mapping,  # int64 [rows]; below 0: a padding row, which writes nothing
    slot_stride,
    k_row,
    v_row,
    WIDTH: tl.constexpr,  # kv_heads * head_dim
    WIDTH_PAD: tl.constexpr,
):
    """K and V of each row go to the row's slot. One program a row."""
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping + row)
    at = tl.arange(0, WIDTH_PAD)
    if slot >= 0:
        to = slot * slot_stride + at
        tl.store(keys + to, tl.load(k + row * k_row + at, mask=at < WIDTH), mask=at < WIDTH)
        tl.store(values + to, tl.load(v + row * v_row + at, mask=at < WIDTH), mask=at < WIDTH)


@triton.jit
def positions_per_split(length, SPLITS: tl.constexpr, LEAST: tl.constexpr):
    """Positions that each split of a request takes: an equal share, a whole multiple of LEAST.

    A short request leaves its last splits empty rather than cut so fine that combining them costs
    more than reading them. Both kernels must agree on this.
    """
    return tl.cdiv(tl.cdiv(length, SPLITS), LEAST) * LEAST


@triton.jit
def paged_decode(
    q,  # [rows, heads, head_dim]
    keys,  # [slots, kv_heads, head_dim]
    values,
    out,  # like q
    partial,  # float32 [requests, heads, SPLITS, head_dim]; with one split, unused
    partial_lse,  # float32 [requests, heads, SPLITS]
    rows,  # int64 [requests]: the row of q and out
    tables,  # int32: the block tables of all requests, one after the other
    firsts,  # int64 [requests]: where each request's table begins
    lengths,  # int64 [requests]: positions to attend to; 0 for padding, whose result is 0
    scale,  # of the scores, times log2(e): 2^x is what the hardware has
    q_row,
    q_head,
    out_row,
    out_head,
    slot_stride,
    GROUP: tl.constexpr,  # query heads that share a KV head
    GROUP_PAD: tl.constexpr,
    HEAD: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,  # positions read at a time
    SPLITS: tl.constexpr,
    LEAST: tl.constexpr,
    DOT: tl.constexpr,  # type of the products' operands; sums are float32
):
    """One new token of each request against the request's KV, by block table.

    A program owns a request, a KV head and a split of the positions. All query heads of the group
    are computed together, so that K and V are read once for the group.
    """
    request = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    length = tl.load(lengths + request).to(tl.int32)
    share = positions_per_split(length, SPLITS, LEAST)
    begin = split * share
    end = tl.minimum(begin + share, length)
    if SPLITS > 1:  # noqa: SIM102  (known when compiled; what follows is not)
        if begin >= end:
            return  # `combine_splits` knows by the same rule that there is nothing to read here

    group = tl.arange(0, GROUP_PAD)
    dim = tl.arange(0, HEAD_PAD)
    head = kv_head * GROUP + group
    in_group = group < GROUP
    in_head = dim < HEAD
    row = tl.load(rows + request)
    q_at = q + row * q_row + head[:, None] * q_head + dim[None, :]
    query = tl.load(q_at, mask=in_group[:, None] & in_head[None, :], other=0.0).to(DOT)
    table = tables + tl.load(firsts + request)

    # Online softmax (Milakov & Gimelshein 2018): `top` is the highest score so far, `total` the sum
    # of 2^(score - top), `mixed` the values weighted by it. Both are rescaled when `top` rises.
    top = tl.full([GROUP_PAD], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_PAD], tl.float32)
    mixed = tl.zeros([GROUP_PAD, HEAD_PAD], tl.float32)
    for start in range(begin, end, TILE):
        position = start + tl.arange(0, TILE)
        live = position < end
        block = tl.load(table + position // BLOCK_SIZE, mask=live, other=0).to(tl.int64)
        slot = block * BLOCK_SIZE + position % BLOCK_SIZE
        at = slot * slot_stride + kv_head * HEAD
        # What lies at dead positions may be NaN, and NaN x 0 is NaN: it is never loaded.
        key = tl.load(
            keys + at[None, :] + dim[:, None], mask=live[None, :] & in_head[:, None], other=0.0
        )
        scores = tl.dot(query, key.to(DOT), input_precision="ieee") * scale
        scores = tl.where(live[None, :], scores, float("-inf"))
        # A tile has at least one live position, so `new_top` is finite and no -inf - -inf arises.
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        weight = tl.exp2(scores - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        value = tl.load(
            values + at[:, None] + dim[None, :], mask=live[:, None] & in_head[None, :], other=0.0
        )
        total = total * shrink + tl.sum(weight, axis=1)
        weight = weight.to(value.dtype).to(DOT)
        mixed = mixed * shrink[:, None] + tl.dot(weight, value.to(DOT), input_precision="ieee")
        top = new_top

    mixed = mixed / tl.where(total > 0, total, 1.0)[:, None]  # nothing to attend to gives 0
    writes = in_group[:, None] & in_head[None, :]
    if SPLITS == 1:
        out_at = out + row * out_row + head[:, None] * out_head + dim[None, :]
        tl.store(out_at, mixed.to(out.dtype.element_ty), mask=writes)
    else:
        part = (request * (tl.num_programs(1) * GROUP) + head) * SPLITS + split
        tl.store(partial + part[:, None] * HEAD + dim[None, :], mixed, mask=writes)
        tl.store(partial_lse + part, top + tl.log2(total), mask=in_group)


@triton.jit
def combine_splits(
    partial,
    partial_lse,
    out,
    rows,
    lengths,
    out_row,
    out_head,
    HEAD: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    SPLITS: tl.constexpr,  # a power of two
    LEAST: tl.constexpr,
):
    """Join the splits of a request and head: each counts by the weight of its own softmax."""
    request = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    length = tl.load(lengths + request).to(tl.int32)
    share = positions_per_split(length, SPLITS, LEAST)
    split = tl.arange(0, SPLITS)
    dim = tl.arange(0, HEAD_PAD)
    written = split * share < length  # the others returned early: their memory was never set
    part = (request * tl.num_programs(1) + head) * SPLITS + split
    lse = tl.load(partial_lse + part, mask=written, other=float("-inf"))
    weight = tl.where(written, tl.exp2(lse - tl.max(lse, axis=0)), 0.0)
    total = tl.sum(weight, axis=0)
    mixed = tl.load(
        partial + part[:, None] * HEAD + dim[None, :],
        mask=written[:, None] & (dim < HEAD)[None, :],
        other=0.0,
    )
    mixed = tl.sum(mixed * weight[:, None], axis=0) / tl.where(total > 0, total, 1.0)
    row = tl.load(rows + request)
    out_at = out + row * out_row + head * out_head + dim
    tl.store(out_at, mixed.to(out.dtype.element_ty), mask=dim < HEAD)
