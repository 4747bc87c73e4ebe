"""Our Llama computes what transformers' LlamaForCausalLM computes on the same weights.

The source of every expected logit is transformers, in float32, on a checkpoint that it has written
itself (or on the bundled model). Ours runs through the paged cache in blocks out of order: all at
once, in chunks, and token by token.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kvlab.engine.config import EngineConfig
from kvlab.engine.engine import Engine
from kvlab.engine.request import Request, ScheduledRequest
from kvlab.models.loading import STORY, LoadedModel, load_model
from kvlab.runtime.model_runner import ModelRunner

transformers = pytest.importorskip("transformers")

TOLERANCE = 1e-4  # largest absolute difference of a logit, float32
BLOCK_SIZE = 16
WAYS = {"at once": 10_000, "in chunks": 7, "token by token": 1}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    torch.set_num_threads(1)  # models this small only lose by a second thread


def checkpoint(folder: Path, *, seed: int = 0, **shape: Any) -> Path:
    """A small random llama that transformers saves itself. Weights are large enough to matter."""
    config = transformers.LlamaConfig(
        **{
            "vocab_size": 97,
            "hidden_size": 48,
            "intermediate_size": 80,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 128,
            "initializer_range": 0.3,
        }
        | shape
    )
    torch.manual_seed(seed)
    transformers.LlamaForCausalLM(config).float().eval().save_pretrained(folder)
    return folder


@torch.inference_mode()
def reference_logits(folder: Path, ids: Sequence[int]) -> Tensor:
    """[len(ids), vocab] by transformers."""
    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    logits: Tensor = model(torch.tensor([list(ids)])).logits[0]
    return logits


@torch.inference_mode()
def our_logits(loaded: LoadedModel, ids: Sequence[int], most: int) -> Tensor:
    """The same through the paged cache, at most `most` tokens a pass."""
    blocks = -(-len(ids) // BLOCK_SIZE)
    runner = ModelRunner(loaded, num_blocks=blocks, block_size=BLOCK_SIZE, host_blocks=0)
    hidden: list[Tensor] = []
    handle = loaded.model.register_forward_hook(
        lambda module, inputs, output: hidden.append(output)
    )
    table = tuple(reversed(range(blocks)))
    try:
        for start in range(0, len(ids), most):
            tokens = tuple(ids[start : start + most])
            runner.execute([ScheduledRequest("r", tokens, start, table, ())])
    finally:
        handle.remove()
    return loaded.model.logits(torch.cat(hidden))


def assert_same_logits(folder: Path, ids: Sequence[int]) -> None:
    expected = reference_logits(folder, ids)
    loaded = load_model(str(folder), device="cpu")
    for way, most in WAYS.items():
        difference = float((our_logits(loaded, ids, most) - expected).abs().max())
        assert difference <= TOLERANCE, f"{way}: {difference}"
    assert float(expected.std()) > 0.1, "logits so small that any would be near enough"


def some_ids(count: int, vocab: int = 97) -> list[int]:
    return [(37 * place * place + 11 * place + 3) % vocab for place in range(count)]


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_logits_of_grouped_heads_tied_or_not(tmp_path: Path, kv_heads: int, tied: bool) -> None:
    shape = {"num_key_value_heads": kv_heads, "tie_word_embeddings": tied}
    folder = checkpoint(tmp_path, seed=kv_heads, **shape)
    assert_same_logits(folder, some_ids(50))


@pytest.mark.parametrize(
    "shape",
    [
        {"head_dim": 20},  # not hidden_size / heads
        {"rms_norm_eps": 1e-2},
        {"num_attention_heads": 6, "num_key_value_heads": 3, "num_hidden_layers": 1},
    ],
    ids=["head_dim", "eps", "heads"],
)
def test_logits_of_other_shapes(tmp_path: Path, shape: dict[str, Any]) -> None:
    assert_same_logits(checkpoint(tmp_path, seed=5, **shape), some_ids(40))


def rewrite_config(folder: Path, drop: Sequence[str] = (), **values: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    for key in drop:
        config.pop(key, None)
    path.write_text(json.dumps(config | values), encoding="utf-8")


@pytest.mark.parametrize("spelling", ["rope_parameters", "rope_theta", "with null", "with default"])
def test_both_spellings_of_rope_are_read(tmp_path: Path, spelling: str) -> None:
    """transformers 5 writes rope_parameters, older releases rope_theta and rope_scaling."""
    theta = 123.0  # far from the default, so that reading past it shows
    rope = {"rope_theta": theta, "rope_type": "default"}
    folder = checkpoint(tmp_path, seed=9, rope_parameters=rope)
    ids = some_ids(60)
    expected = reference_logits(folder, ids)
    if spelling == "rope_theta":
        rewrite_config(folder, ["rope_parameters"], rope_theta=theta)
    elif spelling == "with null":
        rewrite_config(folder, ["rope_parameters"], rope_theta=theta, rope_scaling=None)
    elif spelling == "with default":
        scaling = {"rope_type": "default"}
        rewrite_config(folder, ["rope_parameters"], rope_theta=theta, rope_scaling=scaling)
    ours = our_logits(load_model(str(folder), device="cpu"), ids, 10_000)
    assert float((ours - expected).abs().max()) <= TOLERANCE
    rewrite_config(folder, ["rope_parameters", "rope_scaling", "rope_theta"])
    by_default = our_logits(load_model(str(folder), device="cpu"), ids, 10_000)
    assert float((by_default - expected).abs().max()) > 0.1  # it was theta that made them equal


def test_a_checkpoint_in_several_files_is_one_model(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "whole", seed=3)
    shards = tmp_path / "shards"
    transformers.LlamaForCausalLM.from_pretrained(folder).save_pretrained(
        shards, max_shard_size="60KB"
    )
    assert len(list(shards.glob("*.safetensors"))) > 1
    ids = some_ids(30)
    ours = our_logits(load_model(str(shards), device="cpu"), ids, 10_000)
    assert float((ours - reference_logits(folder, ids)).abs().max()) <= TOLERANCE


# The bundled model.

TEXT = (
    "Ana and Ben share a small room behind the kitchen. There is only one shelf, and it is soon "
    "full. One morning they both came to the desk at the same time, Sam to write a letter, and Sam "
    'to sew a quilt. "The last to come is the first to step aside," said Nora. Größe 10 µm, 25 €. '
)


@cache
def story() -> LoadedModel:
    return load_model("story", device="cpu")


def story_prompt() -> list[int]:
    ids = story().encode(TEXT * 6)[:300]
    assert len(ids) == 300
    return ids


@pytest.fixture(scope="module")
def story_reference() -> Tensor:
    return reference_logits(STORY, story_prompt())


@pytest.mark.parametrize("way", WAYS)
def test_logits_of_the_story_model_over_300_tokens(way: str, story_reference: Tensor) -> None:
    ours = our_logits(story(), story_prompt(), WAYS[way])
    assert float((ours - story_reference).abs().max()) <= TOLERANCE


@pytest.mark.parametrize("prompt", ["Ana and Ben share a small room", TEXT])
def test_greedy_continuation_equals_that_of_transformers(prompt: str) -> None:
    ids = story().encode(prompt)
    model = transformers.LlamaForCausalLM.from_pretrained(STORY, dtype=torch.float32).eval()
    expected = list(ids)
    with torch.inference_mode():
        for _ in range(30):
            expected.append(int(model(torch.tensor([expected])).logits[0, -1].argmax()))
    runner = ModelRunner(story(), num_blocks=40, block_size=4, host_blocks=0)
    engine = Engine(EngineConfig(num_blocks=40, block_size=4), runner)
    engine.add_request(Request(id="r", prompt=tuple(ids), max_tokens=30))
    engine.run()
    assert engine.requests["r"].outputs == expected[len(ids) :]
