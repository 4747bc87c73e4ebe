"""A folder's safetensors files: what they hold, from their headers alone, then the tensors, mapped.

Format: https://github.com/huggingface/safetensors#format. A header is read and checked before any
tensor is touched, so that a model that does not fit is refused while memory is still empty.
Tensors on the CPU are copy-on-write views of the mapped file: sessions that load the same file
share its pages, and nothing that one does to a weight reaches the file or another session.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kvlab.errors import BadInput
from kvlab.models.config import read_json

WEIGHTS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
"""How weights may be stored. Anything else is a quantized checkpoint."""

INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.pickle")
ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor as its file's header describes it."""

    file: Path
    dtype: str
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The tensors of a model folder by name, none of them read yet."""

    folder: Path
    tensors: Mapping[str, Stored]

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Read the headers. Raises BadInput for a folder without safetensors files, for one that is
        damaged or absent, and for a name that two files claim."""
        tensors: dict[str, Stored] = {}
        for file in weight_files(folder):
            for name, stored in read_header(file).items():
                if name in tensors:
                    both = f"{tensors[name].file.name} and {file.name}"
                    raise BadInput(f"{folder}: {both} hold the tensor {name}.")
                tensors[name] = stored
        return cls(folder, tensors)

    def read(self, names: Iterable[str]) -> dict[str, Tensor]:
        """The tensors of these names as they are stored, mapped on the CPU. Raises BadInput."""
        from safetensors import SafetensorError, safe_open

        found: dict[str, Tensor] = {}
        with ExitStack() as stack:
            opened: dict[Path, Any] = {}
            for name in names:
                file = self.tensors[name].file
                try:
                    if file not in opened:
                        opened[file] = stack.enter_context(safe_open(file, "pt", device="cpu"))
                    found[name] = opened[file].get_tensor(name)
                except (SafetensorError, OSError) as error:
                    raise unreadable(file, str(error)) from None
        return found


def weight_files(folder: Path) -> list[Path]:
    """The files that an index names; without one `model.safetensors`, else all `*.safetensors`."""
    index = read_json(folder / INDEX)
    if index is not None:
        named = index.get("weight_map")
        if not isinstance(named, dict) or not all(isinstance(x, str) for x in named.values()):
            raise BadInput(f"{folder / INDEX} has no weight_map.")
        files = sorted(set(named.values()))
        for name in files:
            if Path(name).name != name or not name.endswith(".safetensors"):
                raise BadInput(f"{folder / INDEX} names {name!r}, which is no file of this folder.")
            if not (folder / name).is_file():
                raise BadInput(f"{folder}: {name} is missing; {INDEX} names {len(files)} files.")
        return [folder / name for name in files]
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    found = sorted(folder.glob("*.safetensors"))
    if found:
        return found
    pickles = sorted(file.name for pattern in PICKLES for file in folder.glob(pattern))
    there = f" (it has {pickles[0]})" if pickles else ""
    raise BadInput(
        f"{folder} has no *.safetensors file{there}; other formats are not read, because they can "
        "run code when they are opened."
    )


def read_header(file: Path) -> dict[str, Stored]:
    """Names, dtypes, shapes. Raises BadInput unless they describe exactly the bytes that follow."""
    from safetensors import SafetensorError, safe_open  # late: a random model needs none

    try:
        with file.open("rb") as stream:
            if stream.read(8) == b"version ":
                raise unreadable(file, "it is a Git LFS pointer: fetch the weights, `git lfs pull`")
        # As numpy: torch would map all of it to be written to, as if it were read already.
        with safe_open(file, "np") as opened:
            tensors = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            return {
                name: Stored(file, tensor.get_dtype(), tuple(tensor.get_shape()))
                for name, tensor in tensors.items()
            }
    except (SafetensorError, OSError) as error:
        raise unreadable(file, str(error)) from None


def unreadable(file: Path, why: str) -> BadInput:
    return BadInput(f"{file} is not a readable safetensors file ({why}).")


def write_tensors(
    file: Path,
    shapes: Mapping[str, tuple[int, ...]],
    dtype: torch.dtype,
    tensors: Iterable[Tensor],
) -> None:
    """Write a safetensors file, one tensor at a time and in the order of `shapes`.

    Unlike the library's own writer it holds one tensor in memory, keeps that order (projections
    that read the same input lie side by side) and starts the data at a multiple of 64 bytes.
    """
    name_of = {kind: name for name, kind in WEIGHTS.items()}[dtype]
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        first, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": name_of, "shape": list(shape), "data_offsets": [first, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    with file.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little"))
        stream.write(text)
        for (name, shape), tensor in zip(shapes.items(), tensors, strict=True):
            if tuple(tensor.shape) != tuple(shape):
                raise ValueError(f"{name} has the shape {tuple(tensor.shape)}, not {shape}")
            flat = tensor.to(dtype).contiguous().view(-1).view(torch.uint8)
            stream.write(flat.numpy().data)
        stream.flush()
        os.fsync(stream.fileno())
