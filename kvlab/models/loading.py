"""From a name or a folder to a model that can run.

Everything that can be wrong is looked for before memory is filled: the config, the tokenizer, the
headers of the weight files, the memory that is free. Nothing in a model folder is ever executed:
pickle files are not opened, Python files not imported, chat templates rendered in a sandbox.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from kvlab.errors import BadInput
from kvlab.models.chat import ChatTemplate, Messages
from kvlab.models.checkpoint import WEIGHTS, Checkpoint
from kvlab.models.config import ModelConfig
from kvlab.models.llama import Llama, Rotary
from kvlab.models.memory import refuse_too_large
from kvlab.models.places import STORY as STORY
from kvlab.models.places import find_model
from kvlab.models.tokenizer import Tokenizer, TokenText

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory. `tokenizer` is None for a folder without one: prompts are then token ids.
    `chat_template` is None for a model that is not tuned for conversation."""

    name: str
    config: ModelConfig
    model: Llama
    tokenizer: Tokenizer | None
    device: torch.device
    dtype: torch.dtype
    chat_template: ChatTemplate | None = None

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt as plain text. Raises BadInput without a tokenizer."""
        return self._tokenizer("give the prompt as a list of token ids").encode(text, opening=True)

    def chat(self, messages: Messages) -> list[int]:
        """Token ids of a conversation in the model's own format, up to where it is to answer.

        A scenario's request takes them as its `prompt`. Raises BadInput for a model without a chat
        template, and for messages that the template refuses.
        """
        if self.chat_template is None:
            raise BadInput(f"model {self.name} has no chat template: it continues plain text.")
        tokenizer = self._tokenizer("a conversation cannot be encoded")
        return tokenizer.encode(self.chat_template.render(messages))

    def _tokenizer(self, instead: str) -> Tokenizer:
        if self.tokenizer is None:
            raise BadInput(f"model {self.name} has no tokenizer.json: {instead}.")
        return self.tokenizer

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
        raise BadInput(
            "device: cuda was asked for, but torch sees no CUDA device; use auto or cpu."
        )
    return torch.device("cuda", torch.cuda.current_device())


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """float32 | bfloat16 | float16. Raises BadInput for another, and for one the device lacks."""
    if name not in DTYPES:
        raise BadInput(f"dtype: {name} is not known; use {', '.join(DTYPES)}.")
    if (
        name == "bfloat16"
        and device.type == "cuda"
        and not torch.cuda.is_bf16_supported(including_emulation=False)
    ):
        raise BadInput(
            f"dtype: {torch.cuda.get_device_name(device)} has no bfloat16; use float16 or float32."
        )
    return DTYPES[name]


def load_model(
    name: str, *, device: str = "auto", dtype: str = "float32", base: Path | None = None
) -> LoadedModel:
    """Load `story`, `smollm2`, a model folder (relative ones from `base`) or a cached Hub model.

    Raises BadInput, by name, for what cannot be loaded: not a folder, a missing or unreadable file,
    a missing tensor, an unknown one or one of the wrong shape, an architecture that is not computed
    here, weights that do not fit in memory.
    """
    where = choose_device(device)
    kind = choose_dtype(dtype, where)
    folder = find_model(name, dtype=dtype, base=base)
    config = ModelConfig.from_folder(folder)
    path = folder / "tokenizer.json"
    tokenizer = Tokenizer(path) if path.is_file() else None
    template = ChatTemplate.from_folder(folder)
    checkpoint = Checkpoint.open(folder)
    config = settle_head(config, checkpoint)
    names = check_tensors(config, checkpoint)
    refuse_too_large(f"model {name}", count_values(config, checkpoint, names), kind, where)
    model = build(config, checkpoint, names, kind, where)
    return LoadedModel(name, config, model, tokenizer, where, kind, template)


def settle_head(config: ModelConfig, checkpoint: Checkpoint) -> ModelConfig:
    """Whether the head is the embedding: as the config says, but a head of its own that the files
    hold all the same counts where its values differ (as in transformers 5)."""
    head, embedding = (checkpoint.tensors.get(name) for name in (HEAD, EMBEDDING))
    if not config.tie_embeddings or head is None or embedding is None:
        return config
    if (head.shape, head.dtype) == (embedding.shape, embedding.dtype):
        both = checkpoint.read((HEAD, EMBEDDING))
        if torch.equal(both[HEAD], both[EMBEDDING]):
            return config
    return replace(config, tie_embeddings=False)


class NoInit(TorchFunctionMode):
    """New weights stay as they are. They will be read from files, and on the device `meta` torch
    would import its compiler, which takes seconds, to draw numbers that nobody can see."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else given["tensor"]
        return func(*args, **given)


def check_tensors(config: ModelConfig, checkpoint: Checkpoint) -> list[str]:
    """The names to read. Every tensor of the model must be there in its shape, and none besides.

    Only headers are compared: BadInput is raised before any weight is read.
    """
    with torch.device("meta"), NoInit():
        wanted = {name: tuple(weight.shape) for name, weight in Llama(config).state_dict().items()}
    if config.tie_embeddings:
        del wanted[HEAD]
    folder = checkpoint.folder
    for name, shape in wanted.items():
        stored = checkpoint.tensors.get(name)
        if stored is None:
            raise BadInput(f"{folder}: the tensor {name} is missing.")
        if stored.dtype not in WEIGHTS:
            raise BadInput(
                f"{folder}: the tensor {name} is stored as {stored.dtype}: quantized checkpoints "
                "are not supported yet."
            )
        if stored.shape != shape:
            raise BadInput(
                f"{folder}: the tensor {name} has the shape {stored.shape}, config.json asks for "
                f"{shape}."
            )
    for name in sorted(set(checkpoint.tensors) - set(wanted)):
        computed = name.endswith("rotary_emb.inv_freq")  # some releases stored these frequencies
        if not computed and not (name == HEAD and config.tie_embeddings):
            raise BadInput(
                f"{folder}: the tensor {name} has no place in a {config.family} model with this "
                "config.json."
            )
    return list(wanted)


def count_values(config: ModelConfig, checkpoint: Checkpoint, names: Sequence[str]) -> int:
    """Numbers that the model keeps: its weights and the rotary tables."""
    weights = sum(checkpoint.tensors[name].count for name in names)
    return weights + config.max_positions * config.head_dim


def build(
    config: ModelConfig,
    checkpoint: Checkpoint,
    names: Sequence[str],
    dtype: torch.dtype,
    device: torch.device,
) -> Llama:
    """A model with these weights, one tensor converted at a time.

    On the CPU a tensor that is stored in `dtype` stays what it is: a view of the mapped file.
    """
    with torch.device("meta"), NoInit():
        model = Llama(config)
    mapped = checkpoint.read(names)
    state: dict[str, Tensor] = {}
    while mapped:
        name, weight = mapped.popitem()
        state[name] = weight.to(device=device, dtype=dtype)
    if config.tie_embeddings:
        state[HEAD] = state[EMBEDDING]
    model.load_state_dict(state, assign=True)
    model.tie()
    model.rotary = Rotary(config, dtype).to(device)  # its tables are computed, not loaded
    return model.requires_grad_(False).eval()
