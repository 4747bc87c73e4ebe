"""Every family computes what transformers computes on the same weights."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")

from checkpoints import (
    FAMILIES,
    LINEAR_ROPE,
    LLAMA3_ROPE,
    WAYS,
    paged_logits,
    plain_logits,
    reference_logits,
    rewrite_config,
    some_ids,
    write,
)

from kvlab.engine.config import EngineConfig
from kvlab.engine.engine import Engine
from kvlab.engine.request import Request
from kvlab.models.loading import load_model
from kvlab.runtime.model_runner import ModelRunner

TOLERANCE = 1e-4
"""Largest absolute difference of a logit in float32."""


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    torch.set_num_threads(1)  # models this small only lose by a second thread


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_those_of_transformers(tmp_path: Path, family: str) -> None:
    folder = write(family, tmp_path)
    ids = some_ids(40)
    expected = reference_logits(folder, ids)
    loaded = load_model(str(folder), device="cpu")
    for way, logits in WAYS.items():
        difference = float((logits(loaded, ids) - expected).abs().max())
        assert difference <= TOLERANCE, f"{way}: {difference}"
    assert float(expected.std()) > 0.1, "logits so small that any would be near enough"


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize("family", ["llama3", "qwen3"])
def test_half_precision_files_in_float32(tmp_path: Path, family: str, stored: torch.dtype) -> None:
    folder = write(family, tmp_path, dtype=stored)
    ids = some_ids(30)
    ours = plain_logits(load_model(str(folder), device="cpu"), ids)
    assert float((ours - reference_logits(folder, ids)).abs().max()) <= TOLERANCE


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("family", ["llama3", "qwen2", "qwen3"])
def test_half_precision_runs(tmp_path: Path, family: str, dtype: str) -> None:
    folder = write(family, tmp_path)
    ids = some_ids(30)
    loaded = load_model(str(folder), device="cpu", dtype=dtype)
    assert {weight.dtype for weight in loaded.model.parameters()} == {getattr(torch, dtype)}
    exact = reference_logits(folder, ids)
    theirs = reference_logits(folder, ids, getattr(torch, dtype)).float()
    ours = paged_logits(7)(loaded, ids).float()
    # As far from the float32 logits as transformers in the same precision, give or take.
    assert float((ours - exact).square().mean()) <= 2 * float((theirs - exact).square().mean())


OLD_SPELLINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama3, rope_type": ("llama3", {**LLAMA3_ROPE}),
    "linear, type": ("llama2-linear", {"type": "linear", "factor": LINEAR_ROPE["factor"]}),
}


@pytest.mark.parametrize("spelling", OLD_SPELLINGS)
def test_rope_scaling_as_older_releases_spell_it(tmp_path: Path, spelling: str) -> None:
    family, scaling = OLD_SPELLINGS[spelling]
    folder = write(family, tmp_path)
    ids = some_ids(60)
    expected = reference_logits(folder, ids)
    scaling = {key: value for key, value in scaling.items() if key != "rope_theta"}
    rewrite_config(folder, ["rope_parameters"], rope_theta=10_000.0, rope_scaling=scaling)
    ours = plain_logits(load_model(str(folder), device="cpu"), ids)
    assert float((ours - expected).abs().max()) <= TOLERANCE
    rewrite_config(folder, ["rope_scaling"])
    unscaled = plain_logits(load_model(str(folder), device="cpu"), ids)
    assert float((unscaled - expected).abs().max()) > 0.1  # it was the scaling


@pytest.mark.parametrize("family", ["mistral", "qwen2", "qwen3"])
def test_what_a_config_leaves_out_is_as_in_transformers(tmp_path: Path, family: str) -> None:
    shape = {"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 128}
    if family == "qwen2":
        shape = {"num_attention_heads": 32, "num_key_value_heads": 32, "hidden_size": 64}
    if family == "qwen3":
        shape = {"num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128}
    folder = write(family, tmp_path, num_hidden_layers=1, **shape)
    left_out = ["num_key_value_heads", "rms_norm_eps", "rope_parameters", "sliding_window"]
    rewrite_config(folder, [*left_out, *(["head_dim"] if family == "qwen3" else [])])
    ids = some_ids(12)
    ours = plain_logits(load_model(str(folder), device="cpu"), ids)
    assert float((ours - reference_logits(folder, ids)).abs().max()) <= TOLERANCE


def test_mistrals_window_ends_the_context(tmp_path: Path) -> None:
    folder = write("mistral-window", tmp_path)
    loaded = load_model(str(folder), device="cpu")
    assert (loaded.config.window, loaded.config.max_positions) == (40, 40)
    # Past the window full attention is another model: it was right not to go on.
    ids = some_ids(60)
    expected = reference_logits(folder, ids)
    rewrite_config(folder, sliding_window=None)
    full = plain_logits(load_model(str(folder), device="cpu"), ids)
    difference = (full - expected).abs().amax(dim=1)
    assert float(difference[:40].max()) <= TOLERANCE
    assert float(difference[40:].max()) > 0.01
    # The engine ends a request there.
    engine = Engine(
        EngineConfig(num_blocks=16, block_size=4),
        ModelRunner(loaded, num_blocks=16, block_size=4, host_blocks=0),
    )
    engine.add_request(Request(id="r", prompt=tuple(ids[:30]), max_tokens=30))
    engine.run()
    assert engine.requests["r"].finish_reason == "length"
    assert 30 + len(engine.requests["r"].outputs) <= 41


@pytest.mark.parametrize(
    ("values", "context"),
    [
        ({"use_sliding_window": False}, 128),
        ({"use_sliding_window": True, "max_window_layers": 2, "layer_types": None}, 128),
        ({"use_sliding_window": True, "max_window_layers": 1, "layer_types": None}, 16),
        ({"use_sliding_window": True, "layer_types": ["full_attention"] * 2}, 128),
        ({"use_sliding_window": True, "layer_types": ["full_attention", "sliding_attention"]}, 16),
    ],
)
def test_qwens_window_counts_where_a_layer_has_it(
    tmp_path: Path, values: dict[str, Any], context: int
) -> None:
    folder = write("qwen2", tmp_path)
    rewrite_config(folder, sliding_window=16, **values)
    assert load_model(str(folder), device="cpu").config.max_positions == context


def test_shards_are_one_model(tmp_path: Path) -> None:
    whole = write("qwen3", tmp_path / "whole")
    shards = tmp_path / "shards"
    import transformers

    transformers.AutoModelForCausalLM.from_pretrained(whole).save_pretrained(
        shards, max_shard_size="40KB"
    )
    assert len(list(shards.glob("*.safetensors"))) > 2
    # Mistral's own files lie beside some shards: the index says which ones count.
    (shards / "consolidated.safetensors").write_bytes(b"another format")
    ids = some_ids(30)
    ours = plain_logits(load_model(str(shards), device="cpu"), ids)
    assert float((ours - reference_logits(whole, ids)).abs().max()) <= TOLERANCE


def test_a_tied_head_that_is_stored_all_the_same(tmp_path: Path) -> None:
    """Equal values stay tied; other values are a head of its own, as in transformers 5."""
    from safetensors.torch import load_file, save_file

    folder = write("qwen2", tmp_path)
    path = folder / "model.safetensors"
    weights = load_file(path)
    embedding = weights["model.embed_tokens.weight"]
    ids = some_ids(20)
    save_file({**weights, "lm_head.weight": embedding.clone()}, path, {"format": "pt"})
    loaded = load_model(str(folder), device="cpu")
    assert loaded.model.lm_head.weight is loaded.model.model.embed_tokens.weight
    assert float((plain_logits(loaded, ids) - reference_logits(folder, ids)).abs().max()) <= 1e-4
    save_file({**weights, "lm_head.weight": embedding.flip(0).clone()}, path, {"format": "pt"})
    loaded = load_model(str(folder), device="cpu")
    assert loaded.config.tie_embeddings is False
    assert float((plain_logits(loaded, ids) - reference_logits(folder, ids)).abs().max()) <= 1e-4


def test_end_tokens_come_from_the_generation_config(tmp_path: Path) -> None:
    folder = write("llama3", tmp_path)
    path = folder / "generation_config.json"
    path.write_text(json.dumps({"eos_token_id": [7, 8, 9]}))
    assert load_model(str(folder), device="cpu").config.eos_ids == (7, 8, 9)
    path.unlink()
    rewrite_config(folder, eos_token_id=5)
    assert load_model(str(folder), device="cpu").config.eos_ids == (5,)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_weights_in_their_stored_dtype_are_the_mapped_file(tmp_path: Path) -> None:
    folder = write("qwen2", tmp_path)
    file = folder / "model.safetensors"

    def maps() -> str:
        return Path("/proc/self/maps").read_text()

    mapped = load_model(str(folder), device="cpu")
    assert str(file) in maps()
    before = file.read_bytes()
    with torch.no_grad():
        mapped.model.model.norm.weight.fill_(3.0)  # copy-on-write: nobody else sees it
    assert file.read_bytes() == before
    again = load_model(str(folder), device="cpu")
    assert not bool((again.model.model.norm.weight == 3.0).all())
    del mapped, again
    converted = load_model(str(folder), device="cpu", dtype="bfloat16")
    assert str(file) not in maps()
    assert converted.dtype is torch.bfloat16
