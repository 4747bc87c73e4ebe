"""Small lists of numbers on their way to the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def to_device(
    numbers: Sequence[int], device: torch.device, dtype: torch.dtype = torch.int64
) -> Tensor:
    """The numbers as a tensor. On CUDA by way of pinned memory: a copy from pageable memory makes
    the CPU wait for everything that the stream was given before."""
    cuda = device.type == "cuda"
    return torch.tensor(numbers, dtype=dtype, pin_memory=cuda).to(device, non_blocking=cuda)
