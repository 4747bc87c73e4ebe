"""A decode step of a Llama with few launches: ten kernels a layer instead of about forty.

At batch 1 a layer of a 1B model is read from memory in 30 microseconds, and a kernel takes about
two to start and drain even inside a CUDA graph: unless what lies between the matrix products is
fused, it takes longer than they do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import triton
from torch import Tensor, nn
from torch.nn import functional as F

from kvlab.models.llama import DecoderLayer, Llama, RMSNorm
from kvlab.runtime.attention.launch import Decoding, decode
from kvlab.runtime.cuda.kernels import add_norm, rotate_and_store, silu_times
from kvlab.runtime.kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a decode step, int64 [N] each; a slot below 0 marks a padding row."""

    ids: Tensor
    positions: Tensor
    slot_mapping: Tensor


@dataclass(frozen=True, slots=True)
class Joined:
    """Several linear layers over the same input as one product."""

    weight: Tensor
    bias: Tensor | None

    @classmethod
    @torch.inference_mode(False)
    @torch.no_grad()
    def of(cls, *layers: nn.Linear) -> Joined:
        """The layers go on working: their weights become views of the joined one, so that no memory
        is taken for good. Layers that were joined before are found joined."""
        biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
        bias = torch.cat(biases) if biases else None
        weights: list[Tensor] = [layer.weight.data for layer in layers]
        sizes = [len(weight) for weight in weights]
        if not side_by_side(weights):
            weights = list(torch.cat(weights).split(sizes))
            for layer, weight in zip(layers, weights, strict=True):
                layer.weight = nn.Parameter(weight, requires_grad=False)
        shape = (sum(sizes), weights[0].shape[1])
        return cls(weights[0].as_strided(shape, weights[0].stride()), bias)

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


def side_by_side(weights: list[Tensor]) -> bool:
    """Whether the rows of each follow those of the one before, in one allocation."""
    storages = {weight.untyped_storage().data_ptr() for weight in weights}
    ends = [weight.data_ptr() + weight.nbytes for weight in weights[:-1]]
    return len(storages) == 1 and ends == [weight.data_ptr() for weight in weights[1:]]


class FusedDecoder:
    """The same arithmetic as `Llama.forward` and `Llama.logits` for rows that each decode.

    It reads the model's own weights and has none. Everything it launches can be captured.
    """

    def __init__(self, model: Llama, cache: KVCache) -> None:
        self._model = model
        self._cache = cache
        self._layers = [cast(DecoderLayer, layer) for layer in model.model.layers]
        self._qkv = [
            Joined.of(layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj)
            for layer in self._layers
        ]
        self._gate_up = [
            Joined.of(layer.mlp.gate_proj, layer.mlp.up_proj) for layer in self._layers
        ]

    def logits(self, rows: Rows, decoding: Decoding) -> Tensor:
        """Write the rows' KV and compute their logits [N, vocab]."""
        x = self._model.model.embed_tokens(rows.ids)
        delta: Tensor | None = None
        for index, layer in enumerate(self._layers):
            q = self._rotated(
                rows, self._qkv[index](normed(x, delta, layer.input_layernorm)), index
            )
            out = torch.empty_like(q)
            decode(q, *self._cache.slots(index), out, decoding, self._cache.block_size)
            delta = layer.self_attn.o_proj(out.flatten(1))
            gate_up = self._gate_up[index](normed(x, delta, layer.post_attention_layernorm))
            delta = layer.mlp.down_proj(activated(gate_up))
        return self._model.logits(normed(x, delta, self._model.model.norm))

    def _rotated(self, rows: Rows, qkv: Tensor, index: int) -> Tensor:
        """q [N, heads, head_dim] turned to its position; k likewise and v into the pool."""
        config, attention = self._model.config, self._layers[index].self_attn
        heads, kv_heads, head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        keys, values = self._cache.slots(index)
        q = torch.empty(len(qkv), heads, head_dim, dtype=qkv.dtype, device=qkv.device)
        norms = attention.qk_norm
        rotary = self._model.rotary
        rotate_and_store[(len(qkv), heads + 2 * kv_heads)](
            qkv,
            q,
            keys,
            values,
            rows.positions,
            rows.slot_mapping,
            rotary.cos,
            rotary.sin,
            attention.q_norm.weight if norms else q,
            attention.k_norm.weight if norms else q,
            config.rms_norm_eps,
            HEADS=heads,
            KV_HEADS=kv_heads,
            HALF=head_dim // 2,
            HALF_PAD=triton.next_power_of_2(head_dim // 2),
            NORM=norms,
            num_warps=1,
        )
        return q


def normed(x: Tensor, delta: Tensor | None, norm: RMSNorm) -> Tensor:
    """Add `delta` to x [N, size] in place; returns x, normed."""
    size = x.shape[1]
    out = torch.empty_like(x)
    add_norm[(len(x),)](
        x,
        x if delta is None else delta,
        norm.weight,
        out,
        norm.eps,
        SIZE=size,
        SIZE_PAD=triton.next_power_of_2(size),
        ADD=delta is not None,
        num_warps=8 if size > 1024 else 4,
    )
    return out


def activated(gate_up: Tensor) -> Tensor:
    """silu(gate) * up, of gate_up [N, 2 * size]."""
    size = gate_up.shape[1] // 2
    out = torch.empty(len(gate_up), size, dtype=gate_up.dtype, device=gate_up.device)
    tile = 1024
    grid = (len(gate_up), triton.cdiv(size, tile))
    silu_times[grid](gate_up, out, SIZE=size, TILE=tile, num_warps=4)
    return out
