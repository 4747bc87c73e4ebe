"""Packed weights give what the model gives: held against the plain products, family by family."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from kvlab.models.config import ModelConfig
from kvlab.models.llama import Llama
from kvlab.models.loading import LoadedModel
from kvlab.runs.live import LiveRun, Stopped
from kvlab.runs.scenario import load_scenario
from kvlab.runtime import packed
from kvlab.runtime.packed import PackedDecoder, why_not_packed

SHAPE: dict[str, Any] = {
    "vocab_size": 640,
    "hidden_size": 512,
    "intermediate_size": 704,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama"},
    "biases": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", "head_dim": 96},
}
needs_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN"
)


def model(dtype: torch.dtype = torch.float32, **more: Any) -> Llama:
    torch.manual_seed(0)
    made = Llama(ModelConfig.from_json({"model_type": "llama"} | SHAPE | more, "here")).to(dtype)
    with torch.no_grad():
        for name, weight in made.named_parameters():
            weight.normal_(1.0 if "norm" in name else 0.0, 0.04)
    return made.requires_grad_(False).eval()


def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return out[0].transpose(0, 1)


@needs_onednn
@pytest.mark.parametrize("rows", [1, 3, 16, 40])
@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_packed_logits_are_the_models(family: str, rows: int) -> None:
    plain = model(**FAMILIES[family])
    ids, positions = torch.arange(rows) * 37 % 640, torch.arange(rows) + 5
    hidden = plain(ids, positions, attend)
    twin = PackedDecoder.of(plain)
    got = twin(ids, positions, attend)
    assert hidden.std() > 0.1
    torch.testing.assert_close(got, hidden, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(twin.logits(got), plain.logits(hidden), rtol=1e-4, atol=1e-4)


@needs_onednn
@pytest.mark.parametrize("rows", [1, 16])
@torch.inference_mode()
def test_packed_bfloat16_is_as_near_to_float32_as_plain(rows: int) -> None:
    exact, rough = model(), model(torch.bfloat16)
    if why := why_not_packed(rough):
        pytest.skip(why)
    ids, positions = torch.arange(rows) * 37 % 640, torch.arange(rows)
    truth = exact.logits(exact(ids, positions, attend))
    twin = PackedDecoder.of(rough)
    plain_error = (rough.logits(rough(ids, positions, attend)).float() - truth).abs().mean()
    packed_error = (twin.logits(twin(ids, positions, attend)).float() - truth).abs().mean()
    assert packed_error < 1.5 * plain_error


def test_who_is_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = model()
    monkeypatch.setattr(packed, "available_memory", lambda: 1 << 40)
    assert "narrower than 512" in why_not_packed(model(hidden_size=256))
    assert "float16" in why_not_packed(model(torch.float16))
    monkeypatch.setattr(packed, "available_memory", lambda: 1 << 20)
    assert "memory" in why_not_packed(wide)
    monkeypatch.setenv("KVLAB_PACK", "0")
    assert why_not_packed(wide) == "KVLAB_PACK=0"


@needs_onednn
def test_a_model_is_packed_once_and_goes_with_its_last_owner() -> None:
    made = model()
    twin = PackedDecoder.of(made)
    assert PackedDecoder.of(made) is twin
    gone = weakref.ref(twin)
    del made, twin
    gc.collect()
    assert gone() is None


@needs_onednn
@torch.inference_mode()
def test_stop_is_heard_between_the_layers_of_a_packed_model_too() -> None:
    """A live run asks for it in the model's parts, which the packed twin runs without the layers."""
    wide = model()
    loaded = cast(LoadedModel, SimpleNamespace(model=wide))
    live = LiveRun(
        load_scenario("figure-5"), model=loaded, on_done=lambda _: None, on_error=lambda _: None
    )
    live.stop()
    reached: list[int] = []

    def note(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        reached.append(layer)
        return attend(layer, q, k, v)

    twin = PackedDecoder.of(wide)
    with live._heard_between_layers(), pytest.raises(Stopped):
        twin(torch.arange(4), torch.arange(4), note)
    assert reached == []
    twin(torch.arange(4), torch.arange(4), note)
    assert reached == [0, 1]
