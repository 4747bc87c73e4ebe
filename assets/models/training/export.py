"""Write a trained `story` as a Hugging Face checkpoint folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from tokenizers import Tokenizer

from kvlab.models.config import ModelConfig
from kvlab.models.llama import Llama
from training.corpus import END


def round_weights(model: Llama) -> None:
    """Round every weight to bfloat16, which is what the file holds, and keep it in float32."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.bfloat16())


def config_json(config: ModelConfig) -> dict[str, Any]:
    """`config.json` in the spelling that transformers reads as LlamaForCausalLM."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_positions,
        "rope_theta": config.rope_theta,
        "rms_norm_eps": config.rms_norm_eps,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": config.tie_embeddings,
        "bos_token_id": None,
        "eos_token_id": config.eos_ids[0],
        "torch_dtype": "bfloat16",
    }


def tokenizer_json(config: ModelConfig) -> dict[str, Any]:
    """`tokenizer_config.json`: which class reads `tokenizer.json`, and the end token."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "model_max_length": config.max_positions,
        "clean_up_tokenization_spaces": False,
    }


def export(model: Llama, tokenizer: Tokenizer, folder: Path) -> None:
    """Write config, weights (bfloat16, the tied head once) and tokenizer into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: weight.detach().bfloat16().contiguous() for name, weight in model.named_parameters()
    }
    (folder / "model.safetensors").write_bytes(save(weights, metadata={"format": "pt"}))
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, content in (
        ("config.json", config_json(model.config)),
        ("tokenizer_config.json", tokenizer_json(model.config)),
    ):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
