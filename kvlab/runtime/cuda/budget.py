"""What a run takes on a GPU beside weights, pools and a pass of the model: graphs, staging memory.

Computed, from shapes.
"""

from __future__ import annotations

import torch

from kvlab.models.config import ModelConfig
from kvlab.runtime.transfer import LANES, staged_blocks

SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
"""Rows that decode steps are captured for."""
MOST_TABLE_ENTRIES = 1 << 20
"""Of the block tables of one step that runs as a graph."""
WORKSPACES = 2 * (32 << 20)
"""Bytes that cuBLAS takes on a Hopper for the stream of the captures, outside of one and in it."""


def graph_bytes(config: ModelConfig, dtype: torch.dtype, rows: int, most_splits: int = 64) -> int:
    """Bytes of the graphs of decode steps with up to `rows` requests.

    Each keeps its logits, its tokens and what its splits found; all use the same memory for what lies
    between, as much as the largest needs. q, k, v and gate, up of one layer at a time lie twice while
    they are joined.
    """
    value = dtype.itemsize
    captured = [size for below, size in zip((0, *SIZES), SIZES, strict=False) if below < rows]
    heads, kv_heads, head_dim = config.num_heads, config.num_kv_heads, config.head_dim
    qkv = (heads + 2 * kv_heads) * head_dim
    kept = config.vocab_size * value + 8 + 4 * heads * most_splits * (head_dim + 1)
    between = value * (4 * config.hidden_size + qkv + 2 * heads * head_dim)
    between += value * 3 * config.intermediate_size
    joined = value * config.hidden_size * (qkv + 2 * config.intermediate_size)
    tables = 4 * min(captured[-1] * config.max_positions, MOST_TABLE_ENTRIES)
    return sum(captured) * kept + captured[-1] * between + joined + tables + WORKSPACES


def staging_bytes(bytes_per_block: int, host_blocks: int) -> int:
    """Bytes of the memory through which copies go; none without a host pool."""
    return (
        LANES * staged_blocks(bytes_per_block, host_blocks) * bytes_per_block if host_blocks else 0
    )
