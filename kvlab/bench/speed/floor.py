"""What no engine can be faster than, on this machine at this moment."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from kvlab.models.loading import LoadedModel
from kvlab.runtime.calibrate import timed

READ = 1 << 28
"""Bytes that are read to see how fast memory is: more than any cache holds."""
CPU = torch.device("cpu")
BUDGET = 30.0
"""Seconds for the repeats of one measurement: as good as no limit."""


@torch.inference_mode()
def read_bytes_per_second() -> float:
    """How fast memory is read: a product of a matrix and a vector, which uses every byte once."""
    matrix = torch.ones(READ // 4 // 4_096, 4_096)
    vector = torch.ones(4_096)
    return READ / timed(lambda: matrix.mv(vector), CPU, BUDGET)


def weight_bytes(loaded: LoadedModel) -> int:
    """Bytes of all weights that a decode step reads; of an embedding apart only some rows."""
    return sum(layer.weight.nbytes for layer in linear_layers(loaded))


@torch.inference_mode()
def linear_seconds(loaded: LoadedModel, rows: int) -> float:
    """All linear layers, the head included, on `rows` rows: torch's own products, weight by weight."""
    layers = linear_layers(loaded)
    inputs = {n: torch.randn(rows, n).to(loaded.dtype) for n in {x.in_features for x in layers}}
    return timed(
        lambda: [F.linear(inputs[one.in_features], one.weight) for one in layers], CPU, BUDGET
    )


def linear_layers(loaded: LoadedModel) -> list[torch.nn.Linear]:
    return [one for one in loaded.model.modules() if isinstance(one, torch.nn.Linear)]
