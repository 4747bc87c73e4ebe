"""A small SmolLM2 as a GGUF file, made number by number after the format's description.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; blocks: ggml-common.h beside it.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD = 64, 96, 2, 4, 2, 16


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key: str, value: Any) -> bytes:
    """One metadata entry: its type follows from Python's."""
    head = text(key)
    if isinstance(value, bool):
        return head + struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return head + struct.pack("<II", 4, value)
    if isinstance(value, float):
        return head + struct.pack("<If", 6, value)
    if isinstance(value, str):
        return head + struct.pack("<I", 8) + text(value)
    if isinstance(value[0], str):
        items = b"".join(map(text, value))
        return head + struct.pack("<IIQ", 9, 8, len(value)) + items
    return head + struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)


def half(rng: random.Random) -> float:
    (value,) = struct.unpack("<e", struct.pack("<e", rng.uniform(-0.1, 0.1)))
    return float(value)


def q4_1(rng: random.Random, count: int) -> tuple[bytes, list[float]]:
    """Random blocks of 32: the bytes, and the numbers that they stand for."""
    data, numbers = b"", []
    for _ in range(count // 32):
        scale, least = half(rng), half(rng)
        quants = [rng.randrange(16) for _ in range(32)]
        packed = bytes(quants[i] | quants[i + 16] << 4 for i in range(16))
        data += struct.pack("<ee", scale, least) + packed
        numbers += [quant * scale + least for quant in quants]
    return data, numbers


def q8_0(rng: random.Random, count: int) -> tuple[bytes, list[float]]:
    data, numbers = b"", []
    for _ in range(count // 32):
        scale = half(rng)
        quants = [rng.randrange(-128, 128) for _ in range(32)]
        data += struct.pack("<e32b", scale, *quants)
        numbers += [quant * scale for quant in quants]
    return data, numbers


def f32(rng: random.Random, count: int) -> tuple[bytes, list[float]]:
    numbers = [struct.unpack("<f", struct.pack("<f", rng.gauss(1, 0.1)))[0] for _ in range(count)]
    return struct.pack(f"<{count}f", *numbers), numbers


KINDS = {0: f32, 3: q4_1, 8: q8_0}


def vocabulary() -> tuple[list[str], list[str]]:
    """Special tokens, the byte alphabet, and a few merges."""
    from tokenizers.pre_tokenizers import ByteLevel

    merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġ Ġ", "Ċ Ċ"]
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    joined = [merge.replace(" ", "") for merge in merges]
    return [*special, *sorted(ByteLevel.alphabet()), *joined], merges


def metadata(**changes: Any) -> dict[str, Any]:
    tokens, merges = vocabulary()
    return {
        "general.architecture": "llama",
        "llama.block_count": LAYERS,
        "llama.context_length": 256,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": INNER,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.rope.freq_base": 100_000.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * 3 + [1] * (len(tokens) - 3),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.chat_template": "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}",
    } | changes


def layout() -> dict[str, tuple[int, tuple[int, ...]]]:
    """(type, shape as Hugging Face writes it) by llama.cpp's names."""
    queries, keys = HEADS * HEAD, KV_HEADS * HEAD
    tensors: dict[str, tuple[int, tuple[int, ...]]] = {
        "token_embd.weight": (8, (len(vocabulary()[0]), HIDDEN)),
        "output_norm.weight": (0, (HIDDEN,)),
    }
    for layer in range(LAYERS):
        tensors |= {
            f"blk.{layer}.attn_norm.weight": (0, (HIDDEN,)),
            f"blk.{layer}.ffn_norm.weight": (0, (HIDDEN,)),
            f"blk.{layer}.attn_q.weight": (3, (queries, HIDDEN)),
            f"blk.{layer}.attn_k.weight": (3, (keys, HIDDEN)),
            f"blk.{layer}.attn_v.weight": (3, (keys, HIDDEN)),
            f"blk.{layer}.attn_output.weight": (3, (HIDDEN, queries)),
            f"blk.{layer}.ffn_gate.weight": (3, (INNER, HIDDEN)),
            f"blk.{layer}.ffn_up.weight": (3, (INNER, HIDDEN)),
            f"blk.{layer}.ffn_down.weight": (3, (HIDDEN, INNER)),
        }
    return tensors


def small_gguf(
    about: Mapping[str, Any], tensors: Mapping[str, tuple[int, tuple[int, ...]]]
) -> tuple[bytearray, dict[str, Tensor]]:
    """A file, and the numbers in it by llama.cpp's names."""
    rng = random.Random(5)
    table, data = b"", b""
    numbers: dict[str, Tensor] = {}
    for name, (kind, shape) in tensors.items():
        count = torch.Size(shape).numel()
        packed, values = KINDS[kind](rng, count)
        numbers[name] = torch.tensor(values, dtype=torch.float64).view(shape)
        data += b"\x00" * (-len(data) % 32)
        dims = shape[::-1]
        table += text(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        table += struct.pack("<IQ", kind, len(data))
        data += packed
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(about))
    head += b"".join(entry(key, value) for key, value in about.items()) + table
    return bytearray(head + b"\x00" * (-len(head) % 32) + data), numbers
