"""Models of random weights: speed depends on shapes alone."""

from __future__ import annotations

import torch

from kvlab.models.config import ModelConfig
from kvlab.models.llama import Llama, Rotary
from kvlab.models.loading import LoadedModel

CONTEXT = 8_192
LLAMA_1B = ModelConfig(
    vocab_size=128_256,
    hidden_size=2_048,
    intermediate_size=8_192,
    num_layers=16,
    num_heads=32,
    num_kv_heads=8,
    head_dim=64,
    max_positions=CONTEXT,
    rope_theta=500_000.0,
    tie_embeddings=True,
)
LLAMA_8B = ModelConfig(
    vocab_size=128_256,
    hidden_size=4_096,
    intermediate_size=14_336,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    max_positions=CONTEXT,
    rope_theta=500_000.0,
)
"""The shapes of Llama 3.2 1B and Llama 3.1 8B, from their config.json."""

TINY = ModelConfig(
    vocab_size=97,
    hidden_size=32,
    intermediate_size=48,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    max_positions=CONTEXT,
)


def random_weights(
    name: str, config: ModelConfig, dtype: torch.dtype, device: torch.device
) -> LoadedModel:
    """A seeded model, its weights drawn on the device: nothing of it passes through the CPU."""
    torch.manual_seed(1)
    with torch.device("meta"):
        model = Llama(config)
    model = model.to(dtype).to_empty(device=device)
    for values in model.parameters():
        if values.dim() == 1:
            torch.nn.init.ones_(values)
        else:
            torch.nn.init.normal_(values, std=0.02)
    model.tie()
    model.rotary = Rotary(config, dtype).to(device)
    model.requires_grad_(False).eval()
    return LoadedModel(name, config, model, None, device, dtype)


def weight_bytes_read(loaded: LoadedModel) -> int:
    """Bytes of weights that a decode step must read: all but an embedding of its own, of which it
    takes a row for each token."""
    embedding = loaded.model.model.embed_tokens.weight
    total = sum(values.nbytes for values in loaded.model.parameters())
    return total - (0 if loaded.config.tie_embeddings else embedding.nbytes)
