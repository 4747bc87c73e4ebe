"""A GGUF file becomes a model folder with the same numbers and the tokenizer that it describes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small_gguf import HEADS, KV_HEADS, layout, metadata, small_gguf
from torch import Tensor

from kvlab.errors import BadInput, Console
from kvlab.models import smollm2
from kvlab.models.loading import LoadedModel, load_model


def convert(folder: Path, dtype: str = "float32", gguf: bytearray | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    if gguf is None:
        gguf, _ = small_gguf(metadata(), layout())
    file = folder.with_suffix(".gguf")
    file.write_bytes(gguf)
    smollm2.convert(file, folder, dtype, Console())
    return folder


def neighbours_from_halves(weight: Tensor, heads: int) -> Tensor:
    """What llama.cpp's converter does to q and k (LlamaModel.permute)."""
    return (
        weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
        .swapaxes(1, 2)
        .reshape(weight.shape)
    )


def test_every_number_is_the_files(tmp_path: Path) -> None:
    gguf, numbers = small_gguf(metadata(), layout())
    weights = load_file(convert(tmp_path / "m", gguf=gguf) / "model.safetensors")
    names = smollm2.tensor_names(smollm2.GGUF.open(tmp_path / "m.gguf"))[1]
    assert set(weights) == set(names)
    assert "lm_head.weight" not in weights  # tied
    for ours, theirs in names.items():
        heads = {"q_proj": HEADS, "k_proj": KV_HEADS}.get(ours.split(".")[-2])
        found = neighbours_from_halves(weights[ours], heads) if heads else weights[ours]
        assert torch.equal(found, numbers[theirs].float()), ours


def test_bfloat16_is_float32_rounded_once(tmp_path: Path) -> None:
    exact = load_file(convert(tmp_path / "exact") / "model.safetensors")
    rounded = load_file(convert(tmp_path / "rounded", "bfloat16") / "model.safetensors")
    for name, weight in exact.items():
        assert torch.equal(rounded[name], weight.bfloat16()), name
    for name in ("exact", "rounded"):
        size = (tmp_path / name / "model.safetensors").stat().st_size
        assert size > sum(w.numel() for w in exact.values()) * (4 if name == "exact" else 2)


def test_what_is_read_together_lies_together(tmp_path: Path) -> None:
    """q, k, v and gate, up are neighbours, and everything starts at a multiple of 64 bytes."""
    file = convert(tmp_path / "m") / "model.safetensors"
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert (8 + length) % 64 == 0
    order = list(json.loads(data[8 : 8 + length]))
    layer = "model.layers.0."
    place = order.index(layer + "self_attn.q_proj.weight")
    assert order[place : place + 3] == [layer + f"self_attn.{x}_proj.weight" for x in "qkv"]
    place = order.index(layer + "mlp.gate_proj.weight")
    assert order[place + 1] == layer + "mlp.up_proj.weight"


def test_the_model_loads_and_transformers_agrees(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = convert(tmp_path / "m")
    loaded = load_model(str(folder), device="cpu")
    config = loaded.config
    assert (config.rope_theta, config.rms_norm_eps, config.eos_ids) == (100_000.0, 1e-5, (2,))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for name, weight in loaded.model.state_dict().items():
        assert torch.equal(weight, theirs.state_dict()[name]), name
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for words in TEXTS:
        assert loaded.encode(words) == tokenizer(words)["input_ids"]
    talk = [{"role": "user", "content": "hello"}]
    assert loaded.chat(talk) == tokenizer.apply_chat_template(talk)["input_ids"]


TEXTS = (
    "hello world",
    "  hello   world  \n\n\n",
    "a 12,345 b\n\n67. c    8",
    "Größe 10 µm, 25 €; 你好, мир 😀 e\u0301 \u200d",
    "<|im_start|>user\nhello<|im_end|>\n",
    "\x00\x07\x7f tab\tcr\r\nend",
    "",
)


def round_trips(loaded: LoadedModel, words: tuple[str, ...]) -> None:
    assert loaded.tokenizer is not None
    for word in words:
        stream = loaded.text_stream([])
        ids = loaded.encode(word)
        assert "".join(map(stream.push, ids)) + stream.flush() == loaded.tokenizer.decode(ids)
        # Special tokens are left out of a text; all else comes back.
        plain = word
        for special in ("<|im_start|>", "<|im_end|>"):
            plain = plain.replace(special, "")
        assert loaded.tokenizer.decode(ids) == plain


def test_the_tokenizer_round_trips(tmp_path: Path) -> None:
    loaded = load_model(str(convert(tmp_path / "m")), device="cpu")
    round_trips(loaded, TEXTS)
    special = [loaded.token_text(number) for number in range(3)]
    assert special == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def test_digits_are_taken_one_by_one_before_spaces_are_joined(tmp_path: Path) -> None:
    """Two spaces before a digit are the token of two spaces, as SmolLM2 was trained."""
    loaded = load_model(str(convert(tmp_path / "m")), device="cpu")
    words = [loaded.token_text(token) for token in loaded.encode("a  12\n\n3")]
    assert words == ["a", "  ", "1", "2", "\n\n", "3"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"general.architecture": "gemma"}, "does not hold a SmolLM2"),
        ({"tokenizer.ggml.pre": "qwen2"}, "does not hold a SmolLM2"),
        ({"llama.block_count": 3}, "as expected"),
        ({"llama.block_count": 1}, "has no place"),
        ({"tokenizer.ggml.eos_token_id": 10**6}, "as expected"),
    ],
)
def test_another_gguf_file(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    gguf, _ = small_gguf(metadata(**changes), layout())
    with pytest.raises(BadInput, match=named):
        convert(tmp_path / "m", gguf=gguf)


def test_a_gguf_file_that_lacks_something(tmp_path: Path) -> None:
    about = metadata()
    del about["llama.rope.freq_base"]
    with pytest.raises(BadInput, match=r"lacks llama\.rope\.freq_base"):
        convert(tmp_path / "m", gguf=small_gguf(about, layout())[0])


@pytest.mark.parametrize("keep", [0, 3, 12, 40, 400, 9_000, -100])
def test_a_gguf_file_that_was_cut_off(tmp_path: Path, keep: int) -> None:
    gguf, _ = small_gguf(metadata(), layout())
    with pytest.raises(BadInput):
        convert(tmp_path / "m", gguf=gguf[:keep])
