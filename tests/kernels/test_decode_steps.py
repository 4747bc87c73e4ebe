"""The fused decode step over padded buffers, against the plain model over the torch reference.

Uncaptured under the interpreter; on a GPU the same cases run as captured graphs.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kvlab.bench.gpu.checks import figure_5

TOLERANCE = 1e-4
"""float32; logits are up to about 20 in size here. Measured under the interpreter: 4e-6."""


@pytest.mark.parametrize(
    "case",
    [
        {"lengths": [5, 9, 1]},
        {"lengths": [12], "steps": 1, "block_size": 16, "heads": 3, "kv_heads": 1, "head_dim": 32},
        {"lengths": [5, 9, 1], "qk_norm": True, "biases": True, "block_size": 3},
        pytest.param(
            {"lengths": [200, 3, 140, 7, 1, 1, 2, 2, 31], "steps": 4, "head_dim": 64},
            marks=pytest.mark.long,
        ),
    ],
    ids=["padded", "one", "norms-and-biases", "many"],
)
def test_equals_the_plain_model(ask: Any, case: dict[str, Any]) -> None:
    found = ask("decode_steps", **case)
    assert found["refused"] == 0
    assert found["logits"] <= TOLERANCE
    assert found["kv"] <= TOLERANCE
    assert found["tokens"] == 0
    assert found["strays"] == 0, "a padding row or a wrong slot was written"


@pytest.mark.parametrize("method", ["swap", pytest.param("recompute", marks=pytest.mark.long)])
def test_figure_5_on_the_kernels_gives_the_tokens_of_the_reference(ask: Any, method: str) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = ask("figure_5", method=method, device=device, attention="triton", cuda_graphs=True)
    assert found["tokens"] == figure_5(method, "cpu", attention="torch")["tokens"]
    assert found["preemptions"] == 1
    assert (found["attention"], found["no_graphs"]) == ("triton", "")
