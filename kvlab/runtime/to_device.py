"""Small things on their way between the CPU and the device, and which device is meant."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Kernels and graphs that are launched inside go to this device. Otherwise they go to the
    thread's own, which in a new thread is the first one, wherever the model is."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def to_device(
    numbers: Sequence[int], device: torch.device, dtype: torch.dtype = torch.int64
) -> Tensor:
    """The numbers as a tensor. On CUDA by way of pinned memory: a copy from pageable memory makes
    the CPU wait for everything that the stream was given before."""
    cuda = device.type == "cuda"
    return torch.tensor(numbers, dtype=dtype, pin_memory=cuda).to(device, non_blocking=cuda)


def to_host(values: Tensor) -> Tensor:
    """The values on the CPU. On CUDA they are there once the stream has been waited for, not before:
    the copy is only queued, into pinned memory."""
    return values.to("cpu", non_blocking=True)
