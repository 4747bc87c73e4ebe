"""What a llama-family checkpoint says about its own shape (`config.json`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvlab.errors import BadInput


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shape of a llama-family decoder. Lengths are counts; nothing here is a tensor."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_positions: int
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-5
    tie_embeddings: bool = False
    eos_ids: tuple[int, ...] = ()

    @property
    def kv_values_per_token(self) -> int:
        """K and V numbers that one token position stores: 2 x layers x KV heads x head size."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim

    @classmethod
    def from_folder(cls, folder: Path) -> ModelConfig:
        """Read `config.json` in `folder`.

        Raises BadInput, naming the file, when it is missing, is not JSON, lacks a key, or describes
        a model that this code does not compute (another activation, scaled RoPE, biases).
        """
        path = folder / "config.json"
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except OSError:
            raise BadInput(
                f"{folder} is not a model folder: it has no readable config.json; name a folder "
                "with config.json and *.safetensors, or use the bundled model `story`."
            ) from None
        except ValueError as error:
            raise BadInput(f"{path} is not valid JSON ({error}).") from None
        if not isinstance(raw, dict):
            raise BadInput(f"{path} must hold a JSON object.")
        return cls.from_json(raw, str(path))

    @classmethod
    def from_json(cls, raw: dict[str, Any], where: str) -> ModelConfig:
        """Build from a parsed `config.json`; transformers 4's and 5's spelling of RoPE are both read."""
        refuse_what_we_do_not_compute(raw, where)
        # transformers 5 writes rope_parameters; older releases rope_theta and rope_scaling.
        rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
        theta = rope.get("rope_theta", raw.get("rope_theta", 10_000.0))
        eos = raw.get("eos_token_id")
        try:
            heads = int(raw["num_attention_heads"])
            return cls(
                vocab_size=int(raw["vocab_size"]),
                hidden_size=int(raw["hidden_size"]),
                intermediate_size=int(raw["intermediate_size"]),
                num_layers=int(raw["num_hidden_layers"]),
                num_heads=heads,
                num_kv_heads=int(raw.get("num_key_value_heads") or heads),
                head_dim=int(raw.get("head_dim") or int(raw["hidden_size"]) // heads),
                max_positions=int(raw["max_position_embeddings"]),
                rope_theta=float(theta),
                rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
                tie_embeddings=bool(raw.get("tie_word_embeddings", False)),
                eos_ids=tuple(eos) if isinstance(eos, list) else () if eos is None else (int(eos),),
            )
        except KeyError as error:
            raise BadInput(f"{where} lacks the key {error.args[0]!r}.") from None
        except (TypeError, ValueError) as error:
            raise BadInput(f"{where} holds a value of the wrong type ({error}).") from None


def refuse_what_we_do_not_compute(raw: dict[str, Any], where: str) -> None:
    """Raise BadInput for a checkpoint that would load and then answer wrongly."""
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    refused = {
        "model_type": raw.get("model_type", "llama") != "llama" and raw.get("model_type"),
        "rope_type": kind != "default" and kind,
        "hidden_act": raw.get("hidden_act", "silu") != "silu" and raw.get("hidden_act"),
        "attention_bias": raw.get("attention_bias", False),
        "mlp_bias": raw.get("mlp_bias", False),
    }
    for key, value in refused.items():
        if value:
            raise BadInput(f"{where}: {key} = {value!r} is not supported yet.")
