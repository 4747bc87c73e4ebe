"""From a folder with `config.json` and `*.safetensors` to a model that can run.

Nothing in a model folder is ever executed, and pickle files are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from kvlab.errors import BadInput
from kvlab.models.config import ModelConfig
from kvlab.models.llama import Llama, Rotary
from kvlab.models.tokenizer import Tokenizer, TokenText

STORY = Path(__file__).resolve().parents[2] / "assets" / "models" / "story"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory. `tokenizer` is None for a folder without one: prompts are then token ids."""

    name: str
    config: ModelConfig
    model: Llama
    tokenizer: Tokenizer | None
    device: torch.device
    dtype: torch.dtype

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt. Raises BadInput without a tokenizer."""
        if self.tokenizer is None:
            raise BadInput(
                f"model {self.name} has no tokenizer.json: give the prompt as a list of token ids."
            )
        return self.tokenizer.encode(text)

    def token_text(self, token: int) -> str:
        """The token's text as a label; its number in brackets without a tokenizer."""
        return self.tokenizer.text_of(token) if self.tokenizer else f"[{token}]"

    def text_stream(self, stop: Sequence[str]) -> TokenText:
        """A fresh stream of one request's output text."""
        if self.tokenizer is None:
            return TokenText(lambda tokens: "".join(f"[{token}]" for token in tokens), stop)
        return TokenText(self.tokenizer.decode, stop)


def choose_device(wanted: str) -> torch.device:
    """auto | cpu | cuda. Raises BadInput for `cuda` where there is none."""
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise BadInput("device: cuda was asked for, but torch sees no CUDA device; use auto or cpu.")
    return torch.device("cuda", torch.cuda.current_device())


def load_model(
    name: str, *, device: str = "auto", dtype: str = "float32", base: Path | None = None
) -> LoadedModel:
    """Load `story` or a model folder (relative ones from `base`).

    Raises BadInput, by name, for what cannot be loaded: not a folder, a missing or unreadable file,
    a missing tensor or one of the wrong shape, an architecture that is not computed here.
    """
    folder = STORY if name == "story" else (base or Path()) / Path(name).expanduser()
    if not folder.is_dir():
        raise BadInput(
            f"model: {name} is not a folder; name one with config.json and *.safetensors, "
            "or use `story`."
        )
    config = ModelConfig.from_folder(folder)
    where = choose_device(device)
    weights = read_weights(folder)
    model = build(config, weights, DTYPES[dtype], folder).to(where)
    path = folder / "tokenizer.json"
    tokenizer = Tokenizer(path) if path.is_file() else None
    return LoadedModel(name, config, model, tokenizer, where, DTYPES[dtype])


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of the folder's safetensors files by name."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise BadInput(
            f"{folder} has no *.safetensors file; other formats are not read, because they can "
            "run code when they are opened."
        )
    weights: dict[str, torch.Tensor] = {}
    for file in files:
        try:
            weights |= load_file(file)
        except (SafetensorError, OSError) as error:
            raise BadInput(f"{file} is not a readable safetensors file ({error}).") from None
    return weights


def build(
    config: ModelConfig, weights: dict[str, torch.Tensor], dtype: torch.dtype, folder: Path
) -> Llama:
    """A model with these weights; every tensor must be there in its shape, and none besides."""
    if config.tie_embeddings:
        weights = {"lm_head.weight": weights.get("model.embed_tokens.weight")} | weights
    with torch.device("meta"):
        model = Llama(config)
    for key, wanted in model.state_dict().items():
        tensor = weights.get(key)
        if tensor is None:
            raise BadInput(f"{folder}: the tensor {key} is missing.")
        if tensor.shape != wanted.shape:
            raise BadInput(
                f"{folder}: the tensor {key} has the shape {tuple(tensor.shape)}, config.json asks "
                f"for {tuple(wanted.shape)}."
            )
    unknown = sorted(set(weights) - set(model.state_dict()))
    unknown = [key for key in unknown if not key.endswith("rotary_emb.inv_freq")]
    if unknown:
        raise BadInput(f"{folder}: the tensor {unknown[0]} has no place in a llama model.")
    state = {key: weights[key].to(dtype) for key in model.state_dict()}
    model.load_state_dict(state, assign=True)
    model.rotary = Rotary(config)  # its tables are computed, not loaded
    return model.requires_grad_(False).eval()
