"""The parts of `kvlab bench gpu`, most important first: what is right, then what is fast."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from kvlab.bench.gpu import checks, speed
from kvlab.bench.gpu.bench import Bench, Late
from kvlab.bench.gpu.shapes import LLAMA_1B, LLAMA_8B, TINY, random_weights
from kvlab.models.config import ModelConfig
from kvlab.models.loading import LoadedModel
from kvlab.runtime.attention import why_not_triton

ATTENTION_CASES: tuple[dict[str, Any], ...] = (
    {"head_dim": 128, "group": 4, "block_size": 16, "dtype": "bfloat16"},
    {"head_dim": 64, "group": 4, "block_size": 16, "dtype": "bfloat16"},
    {"head_dim": 32, "group": 3, "block_size": 4, "dtype": "float32"},
    {"head_dim": 64, "group": 8, "block_size": 1, "dtype": "float32"},
    {"head_dim": 128, "group": 1, "block_size": 32, "dtype": "float16"},
    {"head_dim": 80, "group": 5, "block_size": 7, "dtype": "float32"},
)
TOLERANCE = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3.2e-2}
MODEL_CASES: tuple[dict[str, Any], ...] = (
    {"lengths": [5, 9, 1]},
    {"lengths": [300, 3, 140, 7, 1, 1, 2, 2, 31], "steps": 4, "head_dim": 64},
    {"lengths": [33, 64], "qk_norm": True, "biases": True, "block_size": 3},
)
MODEL_TOLERANCE = 1e-4


def run_all(bench: Bench) -> None:
    """Every part within its time."""
    device, tiny = bench.device, bench.tiny
    bench.part("kernels", 50, lambda late: kernels(device, late, tiny=tiny))
    bench.part("engine_tokens", 40, lambda late: engine_tokens(device))
    bench.part("orderings", 10, lambda late: orderings(device))
    size = 1 << 16 if tiny else 1 << 30
    bench.part("ceilings", 15, lambda late: speed.ceilings(device, size))
    dtype = torch.bfloat16
    shapes = {"tiny": TINY} if tiny else {"1B": LLAMA_1B, "8B": LLAMA_8B}
    largest, blocks = (TINY, 12) if tiny else (LLAMA_8B, 256)
    bench.part("swap", 20, lambda late: speed.swap_speed(largest, dtype, device, blocks))
    for name, config in shapes.items():
        model_parts(bench, name, config, dtype)
    if tiny:
        return
    # At the end: where there is no tracing it may take the process along.
    for name, config in shapes.items():

        def trace(late: Late, name: str = name, config: ModelConfig = config) -> Any:
            return speed.slowest_kernels(random_weights(name, config, dtype, device), 512)

        bench.part(f"slowest_kernels_{name}", 15, trace)


def model_parts(bench: Bench, name: str, config: ModelConfig, dtype: torch.dtype) -> None:
    """What is measured on a model of this shape; it is made in the first part that uses it, so that
    one which does not fit fails there."""

    @cache
    def model() -> LoadedModel:
        return random_weights(name, config, dtype, bench.device)

    def decode(late: Late) -> list[dict[str, Any]]:
        prompt, steps = (20, 4) if bench.tiny else (512, 64)
        rate = bench.found["ceilings"]["device_copy_bytes_per_second"]
        return [
            speed.decode_speed(model(), batch, prompt, steps, rate)
            for batch in (1, 16)
            if not late()
        ]

    def against(late: Late) -> list[dict[str, Any]]:
        sizes = (1, 4) if bench.tiny else (1, 4, 16, 64, 256)
        return [
            speed.recompute_against_swap(model(), tokens, sizes, bench.found["ceilings"], late)
            for tokens in ((24,) if bench.tiny else (512, 2_048))
            if not late()
        ]

    bench.part(f"decode_{name}", 40, decode, needs=("ceilings",))
    bench.part(f"recompute_against_swap_{name}", 30, against, needs=("ceilings",))


def kernels(device: torch.device, late: Late, *, tiny: bool) -> dict[str, Any]:
    """The kernels against the torch reference and float64; the fused step against the model."""
    probe = checks.Pools.of(device, 1, 1).device
    starts, counts = ([0, 130, 5], [1, 1, 6]) if tiny else ([0, 700, 299, 21, 0], [1, 1, 1, 5, 9])
    why_not = why_not_triton(probe, 8)
    if why_not:
        return {"skipped": why_not}
    attention = []
    for case in ATTENTION_CASES:
        if late():
            break
        whole = checks.Case(starts=starts, counts=counts, **case)
        found = checks.attention(whole, device)
        largest = max(found["reference"], found["exact"])
        right = found["finite"] and not found["pool"] and largest <= TOLERANCE[whole.dtype]
        attention.append(case | found | {"right": right})
    steps = []
    for case in MODEL_CASES[:1] if tiny else MODEL_CASES:
        if late():
            break
        found = checks.decode_steps(checks.Model(**case), device)
        right = not (found["tokens"] or found["strays"] or found["refused"])
        right = right and max(found["logits"], found["kv"]) <= MODEL_TOLERANCE
        steps.append(case | found | {"right": right})
    return {
        "attention": attention,
        "decode_steps": steps,
        "right": all(case["right"] for case in attention + steps),
    }


def engine_tokens(device: torch.device) -> dict[str, Any]:
    """Figure 5 in float32 here and on the CPU: by both methods, with graphs and without; on CUDA
    through our kernels, a fallback would prove nothing."""
    cuda = device.type == "cuda"
    expected = checks.figure_5("recompute", "cpu", attention="torch")["tokens"]
    runs = [
        {"method": method, "graphs": graphs}
        | checks.figure_5(method, device.type, cuda_graphs=None if graphs else False)
        for method in ("recompute", "swap")
        for graphs in (True, False)
    ]
    right = all(r["tokens"] == expected and r["preemptions"] == 1 for r in runs)
    fast = all(r["attention"] == "triton" and not (r["graphs"] and r["no_graphs"]) for r in runs)
    return {"cpu": expected, "runs": runs, "right": right and (fast or not cuda)}


def orderings(device: torch.device) -> dict[str, Any]:
    """The three orderings of a swap, and that it is exact."""
    found = checks.orderings(device)
    return found | {"right": all(found.values())}


def targets(found: dict[str, Any], wanted: dict[str, float]) -> dict[str, Any]:
    """What was aimed at, what was reached, and whether that is enough; None: not measured."""

    def reached(value: float | None, target: float) -> dict[str, Any]:
        return {
            "reached": value,
            "target": target,
            "met": None if value is None else value >= target,
        }

    answers: dict[str, Any] = {
        "right": {
            part: found[part].get("right") for part in ("kernels", "engine_tokens", "orderings")
        }
    }
    for name, rows in found.items():
        if name.startswith("decode_") and isinstance(rows, list):
            for row in rows:
                key = f"decode {row['model']} batch {row['batch']}"
                answers[key] = reached(row["of_floor"], wanted["decode_of_floor"])
                answers[f"{key}, device alone"] = reached(
                    row["device_of_floor"], wanted["decode_of_floor"]
                )
    for way in ("out", "in"):
        value = found.get("swap", {}).get(f"{way}_of_plain")
        answers[f"swap {way}"] = reached(value, wanted["swap_of_plain"])
    return answers
