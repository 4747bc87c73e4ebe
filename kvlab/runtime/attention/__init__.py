"""Attention over the paged cache: who computes it, and how.

`choose_attention` is the one place where a backend is chosen. `paged` is the reference in plain
torch and runs anywhere; `triton_paged` reads K and V in place with the kernels of `kernels`.
"""

from __future__ import annotations

import os
from typing import Protocol

from torch import Tensor

from kvlab.engine.request import Batch
from kvlab.errors import BadInput
from kvlab.runtime.attention.paged import Attention
from kvlab.runtime.kv_cache import KVCache

BACKENDS = ("auto", "torch", "triton")
BACKEND_VARIABLE = "KVLAB_ATTENTION"


class Layout(Protocol):
    """One step's rows, slots and tables, built once and used in every layer."""

    @property
    def slot_mapping(self) -> Tensor:
        """int64 [N]: where each row's K and V are written."""
        ...

    def attend(self, cache: KVCache, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write k and v through the slot mapping, then attend; all [N, heads, head_dim]."""
        ...


class Backend(Protocol):
    """Attention for one pool. `why` says in a few words how it came to be chosen."""

    name: str
    why: str

    def layout(self, batch: Batch) -> Layout:
        """Read the block tables of a batch."""
        ...


class TorchAttention:
    """The reference of `paged`."""

    name = "torch"

    def __init__(self, cache: KVCache, why: str) -> None:
        self.why = why
        self._cache = cache

    def layout(self, batch: Batch) -> Layout:
        return Attention.layout(batch, self._cache)


def choose_attention(cache: KVCache, heads: int, wanted: str | None = None) -> Backend:
    """The backend for a pool and a model with so many query heads.

    `auto` (the default; the environment variable KVLAB_ATTENTION names another) takes the Triton
    kernels on CUDA where Triton is installed and they can take the model's shape, else the torch
    reference, and says why. `triton` by name raises BadInput where `auto` would fall back.
    """
    wanted = wanted or os.environ.get(BACKEND_VARIABLE, "auto")
    if wanted not in BACKENDS:
        raise BadInput(f"attention = {wanted!r} must be one of {', '.join(BACKENDS)}.")
    if wanted == "torch":
        return TorchAttention(cache, "asked for")
    if wanted == "auto" and not cache.data.is_cuda:
        return TorchAttention(cache, "on the CPU")
    why_not = why_not_triton(cache, heads)
    if not why_not:
        from kvlab.runtime.attention.triton_paged import TritonAttention

        triton = TritonAttention(cache, heads, "asked for" if wanted == "triton" else "on CUDA")
        why_not = triton.why_it_fails()
        if not why_not:
            return triton
    if wanted == "triton":
        raise BadInput(f"attention = triton cannot be had: {why_not}; use auto or torch.")
    return TorchAttention(cache, why_not)


def why_not_triton(cache: KVCache, heads: int) -> str:
    """Why the Triton kernels cannot serve this pool; empty when they can.

    The interpreter (TRITON_INTERPRET=1) runs them on the CPU, for tests.
    """
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if not cache.data.is_cuda and not interpreted:
        return "Triton's kernels need a CUDA device"
    try:
        from kvlab.runtime.attention.launch import unsuited
    except ImportError:
        return "the package triton is not installed"
    keys, _ = cache.slots(0)
    slots, kv_heads, head_dim = keys.shape
    return unsuited(keys.dtype, head_dim, heads, kv_heads, slots)
