"""Measures what the cost model needs, on the pools and the model that will run."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING

import torch

from kvlab.engine.cost_model import CostModel
from kvlab.engine.request import ScheduledRequest

if TYPE_CHECKING:
    from kvlab.runtime.model_runner import ModelRunner

REPEATS = 5
MOST_TOKENS = 256
MOST_BLOCKS = 16
SLOWEST = 1e-9  # seconds; keeps a rate finite where the clock did not move


def measure_costs(runner: ModelRunner) -> CostModel:
    """Time a prefill and copies both ways, medians of 5, on pools beside the ones in use.

    The requests' own KV is not touched: a scratch runner with the same model has its own pools.
    """
    block_size = runner.cache.block_size
    blocks = max(1, min(MOST_BLOCKS, MOST_TOKENS // block_size))
    tokens = min(blocks * block_size, MOST_TOKENS, runner.context)
    scratch = runner.scratch(num_blocks=blocks, host_blocks=blocks)
    prompt = tuple(place % runner.vocab_size for place in range(tokens))
    batch = [ScheduledRequest("calibration", prompt, 0, tuple(range(blocks)), ())]
    pairs = [(block, block) for block in range(blocks)]
    size = blocks * scratch.cache.bytes_per_block
    device = runner.loaded.device
    prefill = timed(lambda: scratch.execute(batch), device)
    out = timed(lambda: scratch.copy_out(pairs), device)
    back = timed(lambda: scratch.copy_in(pairs), device)
    return CostModel(
        tokens_per_second=tokens / prefill,
        bytes_per_block=scratch.cache.bytes_per_block,
        out_bytes_per_second=size / out,
        in_bytes_per_second=size / back,
        source=f"measured on {device.type}: prefill of {tokens} tokens, copies of {blocks} blocks, "
        f"medians of {REPEATS}",
    )


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Median seconds of `work`, after one warm-up; waits for the device."""
    seconds = []
    for _ in range(REPEATS + 1):
        started = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(max(time.perf_counter() - started, SLOWEST))
    return median(seconds[1:])
