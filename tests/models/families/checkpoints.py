"""Small seeded checkpoints of every family, written by transformers, and logits of them.

The source of every expected number is transformers' own class for the family, in float32.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.nn import functional

from kvlab.engine.request import ScheduledRequest
from kvlab.models.loading import LoadedModel
from kvlab.runtime.model_runner import ModelRunner

VOCABULARY = 97
BLOCK_SIZE = 8

SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,  # all three of its ranges are met
}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama2": ("Llama", {"num_key_value_heads": 4}),
    "llama2-linear": ("Llama", {"rope_parameters": LINEAR_ROPE}),
    "llama3": ("Llama", {"rope_parameters": LLAMA3_ROPE, "head_dim": 16}),
    "llama3-tied": ("Llama", {"rope_parameters": LLAMA3_ROPE, "tie_word_embeddings": True}),
    "llama-biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "tinyllama": ("Llama", {"num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 8}),
    "smollm2": (
        "Llama",
        {
            "hidden_size": 72,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100_000.0},
        },
    ),
    "mistral": ("Mistral", {"sliding_window": None, "head_dim": 20}),
    "mistral-window": ("Mistral", {"sliding_window": 40}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2-untied": ("Qwen2", {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}),
    "qwen3": ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    "qwen3-untied": ("Qwen3", {"head_dim": 24, "attention_bias": True}),
}


def write(family: str, folder: Path, dtype: torch.dtype = torch.float32, **more: Any) -> Path:
    """A random checkpoint of this family, every weight large enough to matter."""
    name, shape = FAMILIES[family]
    config = getattr(transformers, f"{name}Config")(**SMALL | shape | more)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(len(family))
        model = getattr(transformers, f"{name}ForCausalLM")(config)
        with torch.no_grad():
            for key, weight in model.named_parameters():
                weight.normal_(1.0 if "norm" in key else 0.0, 0.25)
    model.to(dtype).save_pretrained(folder)
    return folder


def rewrite_config(folder: Path, drop: Sequence[str] = (), **values: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    kept = {key: value for key, value in config.items() if key not in drop}
    path.write_text(json.dumps(kept | values), encoding="utf-8")


def some_ids(count: int) -> list[int]:
    return [(37 * place * place + 11 * place + 3) % VOCABULARY for place in range(count)]


@torch.inference_mode()
def reference_logits(
    folder: Path, ids: Sequence[int], dtype: torch.dtype = torch.float32
) -> Tensor:
    """[len(ids), vocabulary] by transformers."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    logits: Tensor = model(torch.tensor([list(ids)])).logits[0]
    return logits


@torch.inference_mode()
def plain_logits(loaded: LoadedModel, ids: Sequence[int]) -> Tensor:
    """Ours with plain causal attention over the whole sequence."""

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out[0].transpose(0, 1)

    hidden = loaded.model(torch.tensor(ids), torch.arange(len(ids)), attend)
    return loaded.model.logits(hidden)


def paged_logits(most: int) -> Callable[[LoadedModel, Sequence[int]], Tensor]:
    """Ours through the engine's runner, at most `most` tokens a pass, blocks out of order."""

    @torch.inference_mode()
    def logits(loaded: LoadedModel, ids: Sequence[int]) -> Tensor:
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

    return logits


WAYS: dict[str, Callable[[LoadedModel, Sequence[int]], Tensor]] = {
    "plain": plain_logits,
    "paged": paged_logits(1_000),
    "paged in chunks": paged_logits(7),
    "paged token by token": paged_logits(1),
}
