"""What a llama-family checkpoint says about its own shape (`config.json`).

The sources of the keys and of what holds where one is left out are the configuration classes of
transformers 5 (LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config) and, for files of older
releases, those of transformers 4.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kvlab.errors import BadInput

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},  # Llama 1, 2, 3, TinyLlama, SmolLM, SmolLM2
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4_096},
    "qwen2": {"num_key_value_heads": 32, "sliding_window": 4_096, "max_window_layers": 28},
    "qwen3": {
        "num_key_value_heads": 32,
        "head_dim": 128,
        "sliding_window": 4_096,
        "max_window_layers": 28,
    },
}
"""The model types that are computed here, with what their files may leave out."""

ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}

MOST = {
    "vocab_size": 10_000_000,
    "hidden_size": 1_000_000,
    "intermediate_size": 10_000_000,
    "num_hidden_layers": 1_000,
    "num_attention_heads": 10_000,
    "num_key_value_heads": 10_000,
    "head_dim": 10_000,
    "max_position_embeddings": 1 << 24,
}
"""A larger number is a broken file, and would be found out only by filling time or memory."""


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How rotary frequencies are lowered for a context longer than the one first trained.

    `linear` divides all by `factor` (Chen et al. 2023). `llama3` divides those whose wavelength is
    longer than original_positions / low_freq_factor, keeps those shorter than original_positions /
    high_freq_factor, and blends between (Llama 3.1).
    """

    kind: str
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_positions: int = 8_192


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
    family: str = "llama"
    rope_scaling: RopeScaling | None = None
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    window: int | None = None
    """A sliding attention window that is shorter than the trained context. `max_positions` is then
    this window: as far as that every token sees all before it, as full attention does, and nothing
    else is computed here."""

    @property
    def kv_values_per_token(self) -> int:
        """K and V numbers that one token position stores: 2 x layers x KV heads x head size."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim

    @classmethod
    def from_folder(cls, folder: Path) -> ModelConfig:
        """Read `config.json` in `folder`, and the end tokens of `generation_config.json`, which
        win, as they do in transformers.

        Raises BadInput, naming the file, when it is missing, is not JSON, lacks a key, or describes
        a model that this code does not compute.
        """
        raw = read_json(folder / "config.json")
        if raw is None:
            raise BadInput(
                f"{folder} is not a model folder: it has no readable config.json; name a folder "
                "with config.json and *.safetensors, or use the bundled model `story`."
            )
        config = cls.from_json(raw, str(folder / "config.json"))
        generation = folder / "generation_config.json"
        ends = _Fields(read_json(generation) or {}, str(generation)).ids("eos_token_id")
        return replace(config, eos_ids=ends) if ends else config

    @classmethod
    def from_json(cls, raw: dict[str, Any], where: str) -> ModelConfig:
        """Build from a parsed `config.json`, in the spelling of transformers 4 or 5."""
        family = refuse_what_we_do_not_compute(raw, where)
        fields = _Fields(FAMILIES[family] | raw, where)
        heads = fields.count("num_attention_heads")
        hidden = fields.count("hidden_size")
        trained = fields.count("max_position_embeddings")
        window = _window(family, fields)
        attention_bias = fields.flag("attention_bias") and family in ("llama", "qwen3")
        config = cls(
            vocab_size=fields.count("vocab_size"),
            hidden_size=hidden,
            intermediate_size=fields.count("intermediate_size"),
            num_layers=fields.count("num_hidden_layers"),
            num_heads=heads,
            num_kv_heads=fields.count("num_key_value_heads", heads),
            head_dim=fields.count("head_dim", max(1, hidden // heads)),
            max_positions=min(trained, window or trained),
            rope_theta=_theta(fields),
            rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
            tie_embeddings=fields.flag("tie_word_embeddings"),
            eos_ids=fields.ids("eos_token_id"),
            family=family,
            rope_scaling=_rope_scaling(fields),
            qkv_bias=attention_bias or family == "qwen2",
            output_bias=attention_bias,
            mlp_bias=fields.flag("mlp_bias") and family == "llama",
            qk_norm=family == "qwen3",
            window=window if window is not None and window < trained else None,
        )
        if config.num_heads % config.num_kv_heads:
            raise BadInput(
                f"{where}: num_attention_heads = {heads} is not a multiple of num_key_value_heads "
                f"= {config.num_kv_heads}."
            )
        if config.head_dim % 2:
            raise BadInput(f"{where}: RoPE turns pairs: head_dim even, not {config.head_dim}.")
        return config


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None where there is no readable file. Raises BadInput."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        return None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not valid JSON ({error}).") from None
    if not isinstance(raw, dict):
        raise BadInput(f"{path} must hold a JSON object.")
    return raw


def refuse_what_we_do_not_compute(raw: dict[str, Any], where: str) -> str:
    """The family. Raises BadInput for a checkpoint that would load and then answer wrongly."""
    named = raw.get("architectures") or ["LlamaForCausalLM"]
    architecture = str(named[0] if isinstance(named, list) else named)
    family = str(raw.get("model_type") or ARCHITECTURES.get(architecture, architecture))
    rope = _rope(raw, where)
    kind = rope.get("rope_type", rope.get("type", "default"))
    quantized = raw.get("quantization_config")
    method = quantized.get("quant_method", "?") if isinstance(quantized, dict) else quantized
    refused = {
        "model_type": family not in FAMILIES and family,
        "architectures": architecture not in ARCHITECTURES and architecture,
        "rope_type": kind not in ("default", "linear", "llama3") and kind,
        "hidden_act": raw.get("hidden_act", "silu") != "silu" and raw.get("hidden_act"),
        "quantization_config": quantized and f"a checkpoint quantized by {method}",
        "partial_rotary_factor": _partial(raw.get("partial_rotary_factor"))
        or _partial(rope.get("partial_rotary_factor")),
    }
    for key, value in refused.items():
        if value:
            raise BadInput(f"{where}: {key} = {value!r} is not supported yet.")
    return family


def _partial(factor: Any) -> Any:
    return factor is not None and factor != 1 and factor


def _rope(raw: Mapping[str, Any], where: str) -> dict[str, Any]:
    # transformers 5 writes rope_parameters; older releases rope_theta and rope_scaling.
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise BadInput(f"{where}: rope_parameters (or rope_scaling) must be an object.")
    if any(isinstance(value, dict) for value in rope.values()):
        raise BadInput(f"{where}: rope_parameters for each type of layer are not supported yet.")
    return rope


def _theta(fields: _Fields) -> float:
    rope = _Fields(_rope(fields.raw, fields.where), fields.where)
    return rope.number("rope_theta", fields.number("rope_theta", 10_000.0))


def _rope_scaling(fields: _Fields) -> RopeScaling | None:
    rope = _Fields(_rope(fields.raw, fields.where), f"{fields.where}: rope_parameters")
    kind = rope.raw.get("rope_type", rope.raw.get("type", "default"))
    if kind == "default":
        return None
    factor = rope.number("factor")
    if kind == "linear":
        return RopeScaling(kind, factor)
    scaling = RopeScaling(
        kind,
        factor,
        rope.number("low_freq_factor"),
        rope.number("high_freq_factor"),
        rope.count("original_max_position_embeddings"),
    )
    if scaling.high_freq_factor <= scaling.low_freq_factor:
        raise BadInput(f"{rope.where}: high_freq_factor must be greater than low_freq_factor.")
    return scaling


def _window(family: str, fields: _Fields) -> int | None:
    """The sliding window, where some layer has one."""
    if family == "llama" or fields.raw.get("sliding_window") is None:
        return None
    if family != "mistral":
        if not fields.flag("use_sliding_window"):
            return None
        full = fields.count("max_window_layers", 28, least=0)
        slides = full < fields.count("num_hidden_layers")
        layers = fields.raw.get("layer_types")
        if isinstance(layers, list):
            slides = "sliding_attention" in layers
        if not slides:
            return None
    return fields.count("sliding_window")


@dataclass(frozen=True, slots=True)
class _Fields:
    """Typed access to a JSON object; null counts as absent. Everything raises BadInput by key."""

    raw: Mapping[str, Any]
    where: str

    def count(self, key: str, default: int | None = None, least: int = 1) -> int:
        value = self._value(key, default)
        most = MOST.get(key, 2**40)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self._wrong(key, value, f"a whole number from {least} to {most:,}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._value(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._wrong(key, value, "a number")
        if not (0 < value < math.inf):
            raise self._wrong(key, value, "a positive number")
        return float(value)

    def flag(self, key: str) -> bool:
        value = self._value(key, False)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def ids(self, key: str) -> tuple[int, ...]:
        value = self.raw.get(key)
        many = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(one, int) and not isinstance(one, bool) for one in many):
            raise self._wrong(key, value, "a token id or a list of them")
        return tuple(many)

    def _value(self, key: str, default: Any) -> Any:
        value = self.raw.get(key)
        if value is not None:
            return value
        if default is None and key not in self.raw:
            raise BadInput(f"{self.where} lacks the key {key!r}.")
        return default

    def _wrong(self, key: str, value: Any, wanted: str) -> BadInput:
        return BadInput(
            f"{self.where} holds a value of the wrong type ({key} = {value!r} is not {wanted})."
        )
