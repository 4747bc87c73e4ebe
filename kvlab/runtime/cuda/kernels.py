# mypy: ignore-errors
"""Triton kernels for what lies between the matrix products of a decode step.

Each rounds to the tensors' type where the plain model (kvlab.models.llama) rounds, so that the two
differ by the order of sums alone. Sums and products are float32 inside.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add_norm(
    x,  # [rows, SIZE], the residual stream; `delta` is added to it in place
    delta,  # [rows, SIZE]; read only if ADD
    weight,  # [SIZE]
    out,  # [rows, SIZE]
    eps,
    SIZE: tl.constexpr,
    SIZE_PAD: tl.constexpr,
    ADD: tl.constexpr,
):
    """x += delta; out = x / rms(x) * weight. One program a row."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, SIZE_PAD)
    here = at < SIZE
    wide = tl.load(x + row * SIZE + at, mask=here, other=0.0).to(tl.float32)
    if ADD:
        more = tl.load(delta + row * SIZE + at, mask=here, other=0.0).to(tl.float32)
        total = (wide + more).to(x.dtype.element_ty)
        tl.store(x + row * SIZE + at, total, mask=here)
        wide = total.to(tl.float32)
    mean = tl.sum(wide * wide, axis=0) / SIZE
    normed = (wide * tl.rsqrt(mean + eps)).to(out.dtype.element_ty).to(tl.float32)
    scaled = normed * tl.load(weight + at, mask=here, other=0.0).to(tl.float32)
    tl.store(out + row * SIZE + at, scaled.to(out.dtype.element_ty), mask=here)


@triton.jit
def rms_of_halves(first, second, weight, at, here, HALF: tl.constexpr, eps):
    """Both halves of a head, normed over the whole head; rounds as `add_norm` does."""
    dtype = weight.dtype.element_ty
    mean = (tl.sum(first * first, axis=0) + tl.sum(second * second, axis=0)) / (2 * HALF)
    scale = tl.rsqrt(mean + eps)
    weight_first = tl.load(weight + at, mask=here, other=0.0).to(tl.float32)
    weight_second = tl.load(weight + HALF + at, mask=here, other=0.0).to(tl.float32)
    first = (first * scale).to(dtype).to(tl.float32) * weight_first
    second = (second * scale).to(dtype).to(tl.float32) * weight_second
    return first.to(dtype).to(tl.float32), second.to(dtype).to(tl.float32)


@triton.jit
def rotate_and_store(
    qkv,  # [rows, (HEADS + 2 * KV_HEADS) * 2 * HALF]: the heads of q, then of k, then of v
    q,  # [rows, HEADS, 2 * HALF]: q turned, written
    keys,  # [slots, KV_HEADS, 2 * HALF], one layer of the pool; `values` likewise
    values,
    positions,  # int64 [rows]
    slot_mapping,  # int64 [rows]; below 0: a padding row, which stores nothing
    cos,  # [positions, HALF]; `sin` likewise
    sin,
    q_weight,  # [2 * HALF] of the norm over a head; read only if NORM
    k_weight,
    eps,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HALF: tl.constexpr,
    HALF_PAD: tl.constexpr,
    NORM: tl.constexpr,
):
    """Turn q and k to their positions, store K and V by slot. One program a row and head."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    dtype = q.dtype.element_ty
    at = tl.arange(0, HALF_PAD)
    here = at < HALF
    source = qkv + (row * (HEADS + 2 * KV_HEADS) + head) * (2 * HALF) + at
    first = tl.load(source, mask=here, other=0.0).to(tl.float32)
    second = tl.load(source + HALF, mask=here, other=0.0).to(tl.float32)
    slot = tl.load(slot_mapping + row)
    if head < HEADS + KV_HEADS:
        if NORM:
            if head < HEADS:
                first, second = rms_of_halves(first, second, q_weight, at, here, HALF, eps)
            else:
                first, second = rms_of_halves(first, second, k_weight, at, here, HALF, eps)
        turn = tl.load(positions + row) * HALF + at
        c = tl.load(cos + turn, mask=here, other=0.0).to(dtype).to(tl.float32)
        s = tl.load(sin + turn, mask=here, other=0.0).to(dtype).to(tl.float32)
        new_first = (first * c).to(dtype).to(tl.float32) - (second * s).to(dtype).to(tl.float32)
        new_second = (second * c).to(dtype).to(tl.float32) + (first * s).to(dtype).to(tl.float32)
        first, second = new_first, new_second
        if head < HEADS:
            to = q + (row * HEADS + head) * (2 * HALF) + at
            tl.store(to, first.to(dtype), mask=here)
            tl.store(to + HALF, second.to(dtype), mask=here)
        elif slot >= 0:
            to = keys + (slot * KV_HEADS + head - HEADS) * (2 * HALF) + at
            tl.store(to, first.to(dtype), mask=here)
            tl.store(to + HALF, second.to(dtype), mask=here)
    elif slot >= 0:
        to = values + (slot * KV_HEADS + head - HEADS - KV_HEADS) * (2 * HALF) + at
        tl.store(to, first.to(dtype), mask=here)
        tl.store(to + HALF, second.to(dtype), mask=here)


@triton.jit
def silu_times(
    gate_up,  # [rows, 2 * SIZE]: gate, then up
    out,  # [rows, SIZE]
    SIZE: tl.constexpr,
    TILE: tl.constexpr,
):
    """out = silu(gate) * up."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * TILE + tl.arange(0, TILE)
    here = at < SIZE
    dtype = out.dtype.element_ty
    gate = tl.load(gate_up + row * 2 * SIZE + at, mask=here, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * SIZE + SIZE + at, mask=here, other=0.0).to(tl.float32)
    active = (gate * tl.sigmoid(gate)).to(dtype).to(tl.float32)
    tl.store(out + row * SIZE + at, (active * up).to(dtype), mask=here)
