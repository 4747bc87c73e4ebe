"""The decode step as a serving engine runs it on CUDA: fused kernels, replayed as CUDA graphs.

`choose_decode_steps` decides whether it does. What it needs of Triton is imported only then.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kvlab.engine.request import Batch
from kvlab.models.llama import Llama
from kvlab.runtime.attention import Backend
from kvlab.runtime.kv_cache import KVCache

if TYPE_CHECKING:
    from kvlab.runtime.cuda.graphs import Decoded

GRAPHS_VARIABLE = "KVLAB_CUDA_GRAPHS"
"""0 in the environment: every step runs as plain launches."""


class DecodeSteps(Protocol):
    """Runs steps in which every request decodes."""

    @property
    def why_not(self) -> str:
        """Why it does not, or no longer; else empty."""
        ...

    def prepare(self, rows: int) -> None:
        """Make ready for batches of up to `rows` requests; no KV is touched."""
        ...

    def run(self, batch: Batch) -> Decoded | None:
        """Write the batch's KV and compute its logits; None: this one runs as any other batch."""
        ...


@dataclass(frozen=True, slots=True)
class PlainLaunches:
    """No graphs, for the reason given."""

    why_not: str

    def prepare(self, rows: int) -> None:
        """There is nothing to make ready."""

    def run(self, batch: Batch) -> Decoded | None:
        return None


def choose_decode_steps(
    model: Llama, cache: KVCache, attention: Backend, wanted: bool | None = None
) -> DecodeSteps:
    """CUDA graphs where the Triton kernels serve the pool on CUDA, unless `wanted` is False (None:
    unless the environment says KVLAB_CUDA_GRAPHS=0). On the CPU `wanted` runs the same kernels
    uncaptured under Triton's interpreter, for tests."""
    if wanted is None and os.environ.get(GRAPHS_VARIABLE) == "0":
        wanted = False
    if wanted is False:
        return PlainLaunches("switched off")
    if not cache.data.is_cuda and not wanted:
        return PlainLaunches("no CUDA device")
    if attention.name != "triton":
        return PlainLaunches(f"attention is {attention.name}'s ({attention.why})")
    from kvlab.runtime.attention.triton_paged import TritonAttention
    from kvlab.runtime.cuda.graphs import DecodeGraphs

    assert isinstance(attention, TritonAttention)
    return DecodeGraphs(model, cache, attention)
