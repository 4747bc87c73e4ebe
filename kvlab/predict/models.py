"""What a model's shape costs: weights, KV, work. From a name that we know, or its config.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvlab.errors import BadInput

BYTES = 2
"""Of a value in bf16 or fp16, in which weights and KV are held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder of llama's form. Sizes are numbers of values."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool = False
    qk_norm: bool = False
    qkv_bias: bool = False

    @property
    def layer_weights(self) -> int:
        """Values in one layer's four matrices."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return self.hidden * (q + 2 * kv + q) + 3 * self.hidden * self.intermediate

    @property
    def weight_bytes(self) -> int:
        """Of all weights: layers, norms, embedding, and a head of its own unless tied."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        small = 2 * self.hidden + 2 * self.head_dim * self.qk_norm + (q + 2 * kv) * self.qkv_bias
        ends = self.vocab * self.hidden * (1 if self.tied else 2) + self.hidden
        return BYTES * (self.layers * (self.layer_weights + small) + ends)

    @property
    def kv_bytes(self) -> int:
        """Of one position: K and V of all layers."""
        return 2 * BYTES * self.layers * self.kv_heads * self.head_dim


# From the models' published config.json.
MODELS = {
    shape.name: shape
    for shape in (
        ModelShape(
            name="llama-3.1-8b",
            layers=32,
            hidden=4096,
            heads=32,
            kv_heads=8,
            head_dim=128,
            intermediate=14336,
            vocab=128256,
        ),
        ModelShape(
            name="llama-3.1-70b",
            layers=80,
            hidden=8192,
            heads=64,
            kv_heads=8,
            head_dim=128,
            intermediate=28672,
            vocab=128256,
        ),
        ModelShape(
            name="qwen2.5-7b",
            layers=28,
            hidden=3584,
            heads=28,
            kv_heads=4,
            head_dim=128,
            intermediate=18944,
            vocab=152064,
            qkv_bias=True,
        ),
        ModelShape(
            name="qwen3-32b",
            layers=64,
            hidden=5120,
            heads=64,
            kv_heads=8,
            head_dim=128,
            intermediate=25600,
            vocab=151936,
            qk_norm=True,
        ),
    )
}


def load_model(name: str) -> ModelShape:
    """A known model, or the shape in a config.json (or in a folder that has one). Raises BadInput."""
    if name.lower() in MODELS:
        return MODELS[name.lower()]
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if not path.is_file():
        known = ", ".join(sorted(MODELS))
        raise BadInput(f"--model {name}: known are {known}; else give the path of a config.json.")
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        raise BadInput(f"--model {name}: not a JSON file that can be read.") from None
    if not isinstance(config, dict):
        raise BadInput(f"--model {name}: must be a JSON object, as models' config.json are.")
    return _from_config(config, name)


def _from_config(config: dict[str, Any], name: str) -> ModelShape:
    if any(key in config for key in ("num_experts", "num_local_experts", "n_routed_experts")):
        raise BadInput(f"--model {name}: a mixture of experts is not predicted; dense models are.")

    def size(key: str, default: int | None = None) -> int:
        value = config.get(key, default)
        if type(value) is not int or not 1 <= value <= 10_000_000:
            raise BadInput(f"--model {name}: {key} = {value!r} must be a whole number above 0.")
        return value

    heads, hidden = size("num_attention_heads"), size("hidden_size")
    return ModelShape(
        name=name,
        layers=size("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=size("num_key_value_heads", heads),
        head_dim=size("head_dim", hidden // heads or None),
        intermediate=size("intermediate_size"),
        vocab=size("vocab_size"),
        tied=config.get("tie_word_embeddings") is True,
        qk_norm=config.get("model_type") == "qwen3",
        qkv_bias=config.get("model_type") == "qwen2",
    )
