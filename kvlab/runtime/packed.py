"""A Llama whose weights are laid out for the CPU's matrix units once, not in every product.

A decode step multiplies a few rows with every weight of the model. oneDNN, which torch brings along,
reorders a plain matrix for each such product anew. Packed, q, k, v and gate, up, which have the same
input, are one product each; one row in float32 is bound by reading the weights and goes the plain
way, which reads fewer bytes.

The packed weights are memory of this process, as many bytes again as the model's own, which are
mapped from files and shared by all. `KVLAB_PACK=0` keeps to those.
"""

from __future__ import annotations

import os
from typing import ClassVar, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kvlab.models.config import ModelConfig
from kvlab.models.llama import Attend, DecoderLayer, Llama, rotate
from kvlab.models.memory import available_memory
from kvlab.runtime.threads import SMALL_WIDTH

PACK_VARIABLE = "KVLAB_PACK"
ROOM = 3
"""Weights are packed where so many times their bytes are free."""
ROWS = 16
"""How many rows the layout is chosen for. Other counts are computed as well, and as exactly."""


class Packed:
    """Linear layers with one input as one product: x [N, in] -> [N, out of all]."""

    def __init__(self, *layers: nn.Linear) -> None:
        self._plain = layers
        weights: list[Tensor] = [layer.weight for layer in layers]
        biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
        weight = torch.cat(weights)
        self._bias = torch.cat(biases) if biases else None
        self._one_row_plain = weight.dtype == torch.float32
        self._weight: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)

    def __call__(self, x: Tensor) -> Tensor:
        if len(x) == 1 and self._one_row_plain:
            return torch.cat([F.linear(x, one.weight, one.bias) for one in self._plain], dim=-1)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._weight, self._bias, "none", [], ""
        )
        return out


class PackedLayer:
    """One decoder layer; see `DecoderLayer.forward`, whose arithmetic this is."""

    def __init__(self, layer: DecoderLayer, config: ModelConfig) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._layer = layer
        self._head_dim = config.head_dim
        self._heads = config.num_heads, config.num_kv_heads, config.num_kv_heads
        self._qkv = Packed(attention.q_proj, attention.k_proj, attention.v_proj)
        self._o = Packed(attention.o_proj)
        self._gate_up = Packed(mlp.gate_proj, mlp.up_proj)
        self._down = Packed(mlp.down_proj)

    def __call__(self, x: Tensor, cos: Tensor, sin: Tensor, index: int, attend: Attend) -> Tensor:
        rows = len(x)
        qkv = self._qkv(self._layer.input_layernorm(x)).view(rows, -1, self._head_dim)
        out = attend(index, *self._rotated(qkv, cos, sin))
        x = x + self._o(out.reshape(rows, -1))
        gate, up = self._gate_up(self._layer.post_attention_layernorm(x)).chunk(2, dim=-1)
        return x + self._down(F.silu(gate) * up)

    def _rotated(self, qkv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v out of qkv [N, heads + 2 kv_heads, head_dim]; q and k turned as one."""
        attention = self._layer.self_attn
        q, k, v = qkv.split(self._heads, dim=1)
        both = qkv[:, : -self._heads[2]]
        if attention.qk_norm:
            both = torch.cat((attention.q_norm(q), attention.k_norm(k)), dim=1)
        q, k = rotate(both, cos, sin).split(self._heads[:2], dim=1)
        return q, k, v


class PackedDecoder:
    """The same hidden states and logits as the model's, up to rounding.

    It holds the model's parts and not the model, so that a model of which nobody else knows can go.
    """

    _made: ClassVar[WeakKeyDictionary[Llama, PackedDecoder]] = WeakKeyDictionary()

    def __init__(self, model: Llama) -> None:
        self._embed, self._rotary, self._norm = (
            model.model.embed_tokens,
            model.rotary,
            model.model.norm,
        )
        self._layers = [
            PackedLayer(cast(DecoderLayer, layer), model.config) for layer in model.model.layers
        ]
        self._head = Packed(model.lm_head)

    @classmethod
    @torch.inference_mode()
    def of(cls, model: Llama) -> PackedDecoder:
        """Packed once for each model, however many runners it serves."""
        if model not in cls._made:
            cls._made[model] = cls(model)
        return cls._made[model]

    def __call__(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Hidden states [N, hidden]; see `Llama.forward`."""
        x = self._embed(ids)
        cos, sin = self._rotary.at(positions, x.dtype)
        for index, layer in enumerate(self._layers):
            x = layer(x, cos, sin, index, attend)
        hidden: Tensor = self._norm(x)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [rows, vocab] of hidden states [rows, hidden]."""
        return self._head(hidden)


def why_not_packed(model: Llama) -> str:
    """Why a model cannot be packed or had better not be; empty where it can."""
    weight = model.lm_head.weight
    if weight.device.type != "cpu":
        return "not on the CPU"
    if os.environ.get(PACK_VARIABLE) == "0":
        return f"{PACK_VARIABLE}=0"
    if model.config.hidden_size < SMALL_WIDTH:
        return f"narrower than {SMALL_WIDTH}"
    if not torch.backends.mkldnn.is_available() or not hasattr(
        torch.ops.mkldnn, "_reorder_linear_weight"
    ):
        return "this torch has no oneDNN"
    if weight.dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return "this CPU computes no bfloat16"
    if weight.dtype not in (torch.float32, torch.bfloat16):
        return f"not for {weight.dtype}"
    free = available_memory()
    if free is not None and free < ROOM * sum(values.nbytes for values in model.parameters()):
        return "too little memory for a second copy of the weights"
    return ""
