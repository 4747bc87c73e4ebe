"""Who computes attention, and what is said when the kernels cannot. No kernel runs here."""

from __future__ import annotations

import pytest
import torch

from kvlab.errors import BadInput
from kvlab.runtime.attention import choose_attention, why_not_triton
from kvlab.runtime.cuda import choose_decode_steps
from kvlab.runtime.kv_cache import KVCache

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="for a machine without a GPU")


def pool(head_dim: int = 64, dtype: torch.dtype = torch.float32) -> KVCache:
    return KVCache(
        layers=1,
        num_blocks=2,
        block_size=4,
        kv_heads=2,
        head_dim=head_dim,
        dtype=dtype,
        device=torch.device("cpu"),
    )


def test_on_the_cpu_it_is_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KVLAB_ATTENTION", raising=False)
    chosen = choose_attention(pool(), 4)
    assert (chosen.name, chosen.why) == ("torch", "on the CPU")


@NO_GPU
def test_triton_by_name_without_a_gpu_is_refused_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("KVLAB_ATTENTION", "triton")
    with pytest.raises(BadInput, match=r"triton cannot be had: .* need a CUDA device; use auto"):
        choose_attention(pool(), 4)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(BadInput, match=r"attention = 'flash' must be one of auto, torch, triton"):
        choose_attention(pool(), 4, "flash")


@pytest.mark.parametrize(
    ("cache", "heads", "why"),
    [
        (pool(head_dim=320), 4, "heads of up to 256 numbers, this model has 320"),
        (pool(dtype=torch.float64), 4, "not torch.float64"),
        (pool(), 130, "1 to 64 query heads for each KV head, this model has 130 for 2"),
    ],
    ids=["head", "dtype", "group"],
)
def test_a_shape_that_the_kernels_do_not_take_is_named(
    cache: KVCache, heads: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert why in why_not_triton(cache, heads)


def test_decode_steps_say_why_they_are_plain_launches() -> None:
    cache = pool()
    attention = choose_attention(cache, 4, "torch")
    model = object()
    off = choose_decode_steps(model, cache, attention, wanted=False)  # type: ignore[arg-type]
    cpu = choose_decode_steps(model, cache, attention)  # type: ignore[arg-type]
    reference = choose_decode_steps(model, cache, attention, wanted=True)  # type: ignore[arg-type]
    assert off.why_not == "switched off"
    assert cpu.why_not == "no CUDA device"
    assert reference.why_not == "attention is torch's (asked for)"
    assert off.run([]) is None
