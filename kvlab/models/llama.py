"""The llama-family decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

Llama, Mistral, Qwen2 and Qwen3 are one computation with a few options (biases, normed queries and
keys, scaled rotary frequencies), which the config names.

The model computes; it stores nothing. Tokens come packed as one row each, whatever request they
belong to, and `attend` is handed in by the caller: the engine's reads the paged KV cache through
block tables, training's is plain causal attention. Module names are those of Hugging Face
checkpoints, so that a state dict loads as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from kvlab.models.config import ModelConfig

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [N, heads, head_dim], k [N, kv_heads, head_dim], v alike) -> [N, heads, head_dim]."""


class RMSNorm(nn.Module):
    """x / rms(x) * weight, the mean square taken in float32 (Zhang & Sennrich 2019)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


def frequencies(config: ModelConfig) -> Tensor:
    """Angle per position of each rotated pair, float32 [head_dim / 2], scaled as config says."""
    exponent = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequency = 1.0 / config.rope_theta**exponent
    scaling = config.rope_scaling
    if scaling is None:
        return frequency
    slow = frequency / scaling.factor
    if scaling.kind == "linear":
        return slow
    # llama3: turns[i] says how often pair i turns within the original context.
    turns = scaling.original_positions * frequency / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - keep) * slow + keep * frequency


class Rotary(nn.Module):
    """Rotary position embedding (Su et al. 2021), halves paired as in Hugging Face checkpoints.

    cos and sin of every position, [max_positions, head_dim / 2] in `dtype`: rounding a float32
    cosine when the table is made equals rounding it at each use.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, config: ModelConfig, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        if torch.get_default_device().type == "meta":  # shapes alone are wanted
            angle = torch.empty(config.max_positions, config.head_dim // 2)
            self.cos, self.sin = angle, angle
            return
        positions = torch.arange(config.max_positions, dtype=torch.float32)
        angle = torch.outer(positions, frequencies(config))
        self.register_buffer("cos", angle.cos().to(dtype), persistent=False)
        self.register_buffer("sin", angle.sin().to(dtype), persistent=False)

    def at(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and sin, [N, 1, head_dim] each, for `positions` [N]; sin with the signs that `rotate`
        wants, minus in the first half."""
        cos, sin = self.cos[positions, None].to(dtype), self.sin[positions, None].to(dtype)
        return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x_i, x_{i + d/2}) of x [N, heads, d] by its position's angle."""
    return x * cos + x.roll(x.shape[-1] // 2, dims=-1) * sin


class Attention(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        hidden, bias = config.hidden_size, config.qkv_bias
        queries = config.num_heads * config.head_dim
        keys = config.num_kv_heads * config.head_dim
        self.q_proj = nn.Linear(hidden, queries, bias=bias)
        self.k_proj = nn.Linear(hidden, keys, bias=bias)
        self.v_proj = nn.Linear(hidden, keys, bias=bias)
        self.o_proj = nn.Linear(queries, hidden, bias=config.output_bias)
        self.qk_norm = config.qk_norm
        if config.qk_norm:  # over each head, before its rotation
            self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
            self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, layer: int, attend: Attend) -> Tensor:
        rows = x.shape[0]
        q, k, v = self.project(x)
        if self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        out = attend(layer, rotate(q, cos, sin), rotate(k, cos, sin), v)
        return self.o_proj(out.reshape(rows, -1))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q [N, heads, head_dim], k and v [N, kv_heads, head_dim] of rows x [N, hidden]."""
        shape = (x.shape[0], -1, self.head_dim)
        return self.q_proj(x).view(shape), self.k_proj(x).view(shape), self.v_proj(x).view(shape)


class MLP(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x)) (Shazeer 2020)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj = nn.Linear(hidden, inner, bias=bias)
        self.up_proj = nn.Linear(hidden, inner, bias=bias)
        self.down_proj = nn.Linear(inner, hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = MLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, layer: int, attend: Attend) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, layer, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Embedding, layers and final norm; `model.` in checkpoint names."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class Llama(nn.Module):
    """A llama-family language model over packed tokens."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        self.rotary = Rotary(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.tie()

    def tie(self) -> None:
        """Give the head the embedding's weights, where the config says that they are the same."""
        if self.config.tie_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Hidden states [N, hidden] of N packed tokens.

        `ids` and `positions` are int64 [N]; a position is the token's index within its own request.
        """
        x = self.model.embed_tokens(ids)
        cos, sin = self.rotary.at(positions, x.dtype)
        for index, layer in enumerate(self.model.layers):
            x = layer(x, cos, sin, index, attend)
        return self.model.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [rows, vocab] of hidden states [rows, hidden]."""
        return self.lm_head(hidden)
