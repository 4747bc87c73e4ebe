"""Reads a GGUF file: its metadata, and its tensors turned back into numbers.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; blocks: ggml-common.h of the same
project. Only what the model that we convert holds: F32, F16, Q8_0 and Q4_1.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kvlab.errors import BadInput

SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
STRING, ARRAY = 8, 9

GROUP = 32
"""Weights in a block of Q4_1 and of Q8_0."""


def _floats(kind: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda raw: raw.view(-1).view(kind).float()


def _q8_0(blocks: Tensor) -> Tensor:
    """scale (float16), 32 signed bytes: weight = byte x scale."""
    scale = blocks[:, :2].contiguous().view(torch.float16).float()
    return blocks[:, 2:].view(torch.int8).float() * scale


def _q4_1(blocks: Tensor) -> Tensor:
    """scale, least (float16), 16 bytes: low halves are weights 0 … 15, high halves 16 … 31;
    weight = half x scale + least."""
    scale = blocks[:, 0:2].contiguous().view(torch.float16).float()
    least = blocks[:, 2:4].contiguous().view(torch.float16).float()
    halves = torch.cat((blocks[:, 4:] & 0x0F, blocks[:, 4:] >> 4), dim=1)
    return halves.float() * scale + least


KINDS: Mapping[int, tuple[str, int, int, Callable[[Tensor], Tensor]]] = {
    0: ("F32", 1, 4, _floats(torch.float32)),
    1: ("F16", 1, 2, _floats(torch.float16)),
    3: ("Q4_1", GROUP, 20, _q4_1),
    8: ("Q8_0", GROUP, 34, _q8_0),
}
"""Number of a type: its name, weights and bytes of a block, blocks [n, bytes] -> float32."""


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """A tensor of a file: where its blocks are and how they are read."""

    name: str
    shape: tuple[int, ...]
    kind: int
    start: int


class GGUF:
    """A file's content. `metadata` by key; `tensors` by name; `read` gives one as float32.

    Raises BadInput for what is not a whole GGUF file of version 2 or 3, and for other tensor types.
    """

    def __init__(self, content: bytes | bytearray) -> None:
        self._content = content
        self._at = 4
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, GGUFTensor] = {}
        if content[:4] != b"GGUF":
            raise BadInput("the file is not a GGUF file.")
        try:
            self._read_header()
        except (struct.error, UnicodeDecodeError, KeyError, IndexError) as error:
            raise BadInput(f"the GGUF file is damaged ({error}).") from None

    def _read_header(self) -> None:
        version = self._scalar("I")
        if version not in (2, 3):
            raise BadInput(f"GGUF version {version} is not read here.")
        tensors, entries = self._scalar("Q"), self._scalar("Q")
        for _ in range(entries):
            key = self._string()
            self.metadata[key] = self._value(self._scalar("I"))
        found = [self._tensor() for _ in range(tensors)]
        step = int(self.metadata.get("general.alignment", 32))
        data = -(-self._at // step) * step
        for name, shape, kind, offset in found:
            if kind not in KINDS:
                raise BadInput(f"the GGUF tensor {name} has the type {kind}: not read here.")
            self.tensors[name] = GGUFTensor(name, shape, kind, data + offset)

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        shape = tuple(self._scalar("Q") for _ in range(self._scalar("I")))
        return name, shape[::-1], self._scalar("I"), self._scalar("Q")

    def _scalar(self, form: str) -> Any:
        (value,) = struct.unpack_from(f"<{form}", self._content, self._at)
        self._at += struct.calcsize(f"<{form}")
        return value

    def _string(self) -> str:
        length = self._scalar("Q")
        if self._at + length > len(self._content):
            raise IndexError("a text ends after the file")
        text = self._content[self._at : self._at + length].decode("utf-8")
        self._at += length
        return text

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind != ARRAY:
            return self._scalar(SCALARS[kind])
        inner, count = self._scalar("I"), self._scalar("Q")
        if count > len(self._content):
            raise IndexError("a list is longer than the file")
        if inner in (STRING, ARRAY):
            return [self._value(inner) for _ in range(count)]
        form = f"<{count}{SCALARS[inner]}"
        values = struct.unpack_from(form, self._content, self._at)
        self._at += struct.calcsize(form)
        return list(values)

    def read(self, name: str) -> Tensor:
        """The tensor of this name, float32. Raises BadInput when its blocks are not all there."""
        tensor = self.tensors[name]
        _, weights, size, turn = KINDS[tensor.kind]
        count = math.prod(tensor.shape) // weights
        if tensor.start + count * size > len(self._content):
            raise BadInput(f"the GGUF file ends before the tensor {name}.")
        raw = torch.frombuffer(
            self._content, dtype=torch.uint8, count=count * size, offset=tensor.start
        )
        return turn(raw.view(count, size)).reshape(tensor.shape)
