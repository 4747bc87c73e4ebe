"""How many KV blocks a card holds beside the model: vLLM's sum, with its terms."""

from __future__ import annotations

from dataclasses import dataclass

from kvlab.errors import BadInput
from kvlab.predict.cards import GIB, Card
from kvlab.predict.models import BYTES, ModelShape

SHARE = 0.9
"""Of the card's memory that vLLM takes (gpu_memory_utilization)."""
SAMPLER = 31
"""Bytes for each logit while vLLM tries its sampler at start: bf16 2, fp32 4, sorted 4 with their
indices 8, probabilities 4, their sums 4 and result 4, a mask 1."""
FIXED = int(0.286 * GIB)
"""What is left of the measured run's sum: CUDA graphs, cuBLAS's workspaces, buffers."""
NULL_BLOCKS = 1
"""vLLM's block 0 belongs to no one."""


@dataclass(frozen=True, slots=True)
class PoolSize:
    """Blocks of the pool that requests can have, and the terms, in bytes on each card."""

    blocks: int
    block_bytes: int
    terms: dict[str, int]

    def told(self) -> list[str]:
        """A line a term, as a person reads the sum."""
        lines = [f"{size / GIB:8.2f} GiB  {name}" for name, size in self.terms.items()]
        left = sum(self.terms.values())
        return [
            *lines,
            f"{left / GIB:8.2f} GiB  left for KV: {self.blocks + NULL_BLOCKS:,} blocks of "
            f"{self.block_bytes:,} bytes, one of them nobody's",
        ]


def pool_size(
    card: Card, model: ModelShape, tp: int, block_size: int, step_tokens: int, max_running: int
) -> PoolSize:
    """The pool of `tp` cards, each with its share of the model. Raises BadInput where none is left.

    vLLM runs the largest batch once and takes what is then left of `SHARE`: the more of the sampler's
    peak (all requests' logits at once) and of a step's (the widest activations of all its tokens).
    """
    sampler = max_running * model.vocab * SAMPLER
    wide = step_tokens * (2 * model.intermediate // tp * 2 + 3 * model.hidden) * BYTES
    terms = {
        f"{SHARE:.0%} of {card.memory / GIB:.2f} GiB": int(SHARE * card.memory),
        "weights": -(model.weight_bytes // tp),
        "activations at their peak": -(max(sampler, wide) + step_tokens * model.hidden * BYTES * 2),
        "graphs, workspaces, buffers": -FIXED,
    }
    block = model.kv_bytes // min(tp, model.kv_heads) * block_size
    left = sum(terms.values())
    blocks = left // block - NULL_BLOCKS
    if blocks < 1:
        raise BadInput(
            f"{model.name} does not fit on {tp} x {card.title}: its weights take "
            f"{model.weight_bytes / tp / GIB:.1f} GiB of {SHARE * card.memory / GIB:.1f} on each; "
            "take more cards with --tp, or a larger one."
        )
    return PoolSize(blocks, block, terms)
