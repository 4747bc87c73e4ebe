"""What a run takes on a GPU beside weights and pools: a pass of the model, graphs, staging memory.

A pass is measured, for the largest step that the settings allow. The rest is computed, from shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from kvlab.engine.request import Sampling, ScheduledRequest
from kvlab.errors import BadInput, memory_ran_out
from kvlab.models.config import ModelConfig
from kvlab.runtime.transfer import LANES, staged_blocks

if TYPE_CHECKING:
    from kvlab.models.loading import LoadedModel

SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
"""Rows that decode steps are captured for."""
MOST_TABLE_ENTRIES = 1 << 20
"""Of the block tables of one step that runs as a graph."""
WORKSPACES = 2 * (32 << 20)
"""Bytes that cuBLAS takes on a Hopper for the stream of the captures, outside of one and in it."""


@dataclass(frozen=True, slots=True)
class LargestStep:
    """The most that one step can compute: `requests` of `rows` tokens each, after `before` tokens of
    their own that have KV."""

    requests: int
    rows: int
    before: int

    @classmethod
    def of(
        cls,
        lengths: Sequence[int],
        *,
        step_tokens: int | None = None,
        chunk_tokens: int | None = None,
        prefix_cache: bool = False,
    ) -> LargestStep:
        """Of requests of these lengths at their ends: a recomputation may come that late. Limits as in
        EngineConfig; without one a step may compute every request from its first token on."""
        longest = max(lengths)
        rows = min(longest, chunk_tokens or longest, step_tokens or longest)
        if prefix_cache and rows == longest > 1:
            rows -= 1  # a step that begins after a hit needs a mask, which takes memory, too
        in_all = min(sum(lengths), step_tokens or sum(lengths))
        return cls(min(len(lengths), -(-in_all // rows)), rows, longest - rows)

    @property
    def tokens(self) -> int:
        return self.requests * self.rows


def pass_bytes(loaded: LoadedModel, block_size: int, step: LargestStep) -> int:
    """Bytes that a pass over such a step takes on the device beside weights and pools.

    Measured with one request and with two: further ones, which are alike, add as much as the second
    did. Raises BadInput where there is no room even for these.
    """
    try:
        one = _measured(loaded, block_size, step, 1)
        if step.requests == 1:
            return one
        return one + (step.requests - 1) * (_measured(loaded, block_size, step, 2) - one)
    except RuntimeError as error:
        if not memory_ran_out(error):
            raise
        raise BadInput(
            f"a step may compute {step.tokens:,} tokens at once, {step.rows:,} of one request, which "
            f"takes more memory than {loaded.device} has; give engine.step_tokens."
        ) from None
    finally:
        torch.cuda.empty_cache()  # what torch keeps for the next pass would be counted twice


def _measured(loaded: LoadedModel, block_size: int, step: LargestStep, requests: int) -> int:
    from kvlab.runtime.model_runner import ModelRunner

    each = -(-(step.before + step.rows) // block_size)
    runner = ModelRunner(
        loaded,
        num_blocks=requests * each,
        block_size=block_size,
        host_blocks=0,
        cuda_graphs=False,
    )
    prompt = tuple(place % loaded.config.vocab_size for place in range(step.rows))
    batch = [
        ScheduledRequest(
            f"profile {number}",
            prompt,
            step.before,
            tuple(range(number * each, (number + 1) * each)),
            (Sampling(),),
        )
        for number in range(requests)
    ]
    torch.cuda.synchronize(loaded.device)
    torch.cuda.reset_peak_memory_stats(loaded.device)
    before = torch.cuda.memory_allocated(loaded.device)
    runner.execute(batch)
    torch.cuda.synchronize(loaded.device)
    return torch.cuda.max_memory_allocated(loaded.device) - before


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
