"""How many KV blocks fit: a pool sized from the memory that is there.

    bytes per token = 2 x layers x KV heads x head size x bytes of a value      (K and V)
    bytes per block = block size x bytes per token
    blocks          = budget // bytes per block

The budget is
    on the CPU   share x (free memory - weights) - host pool: weights may lie in a mapped file, whose
                 pages the system counts as free although every step reads them
    on CUDA      share x all of the device's memory - what is in use - the most that a pass of the
                 model takes beside the weights, which a profiling pass finds out - graphs and the
                 memory that copies go through (kvlab.runtime.cuda.budget). The share is what vLLM
                 calls gpu_memory_utilization. The host pool is main memory, to the byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from kvlab.engine.config import MOST_BLOCKS
from kvlab.errors import BadInput, size
from kvlab.models.config import ModelConfig
from kvlab.models.memory import available_memory, device_memory
from kvlab.runtime.cuda.budget import graph_bytes, staging_bytes
from kvlab.runtime.largest_step import LargestStep, pass_bytes

if TYPE_CHECKING:
    from kvlab.models.loading import LoadedModel

CPU_SHARE = 0.5
CUDA_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes for a pool, and how they were come by."""

    bytes: int
    formula: str


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What fits into a budget. Without a model's tensors: the config and a dtype say it all."""

    config: ModelConfig
    dtype: torch.dtype
    block_size: int
    budget: Budget

    @property
    def bytes_per_token(self) -> int:
        return self.config.kv_values_per_token * self.dtype.itemsize

    @property
    def bytes_per_block(self) -> int:
        return self.block_size * self.bytes_per_token

    @property
    def blocks(self) -> int:
        """Whole blocks, at most as many as an engine takes."""
        return min(max(0, self.budget.bytes) // self.bytes_per_block, MOST_BLOCKS)

    @property
    def tokens(self) -> int:
        return self.blocks * self.block_size

    def requests(self, length: int) -> int:
        """Requests of `length` tokens whose KV fits at once, each in whole blocks."""
        return self.blocks // -(-length // self.block_size)

    def lines(self, length: int) -> Iterator[tuple[str, str]]:
        """(what, how) in the order of the calculation."""
        c, value = self.config, self.dtype.itemsize
        each = -(-length // self.block_size)
        most = f" (the most that an engine takes: {MOST_BLOCKS:,})"
        yield (
            "per token",
            f"2 x {c.num_layers} layers x {c.num_kv_heads} KV heads x {c.head_dim} x {value} bytes "
            f"= {self.bytes_per_token:,} bytes",
        )
        yield (
            "per block",
            f"{self.block_size:,} tokens x {self.bytes_per_token:,} = {self.bytes_per_block:,} bytes",
        )
        yield "pool", f"{self.budget.formula} = {size(max(0, self.budget.bytes))}"
        yield (
            "blocks",
            f"{max(0, self.budget.bytes):,} // {self.bytes_per_block:,} = {self.blocks:,}"
            + (most if self.blocks == MOST_BLOCKS else ""),
        )
        yield "tokens", f"{self.blocks:,} x {self.block_size:,} = {self.tokens:,}"
        yield (
            "requests",
            f"of {length:,} tokens, {each:,} blocks each: {self.blocks:,} // {each:,} = "
            f"{self.requests(length):,}",
        )

    def as_json(self) -> dict[str, Any]:
        """For a run's summary."""
        return {
            "budget_bytes": self.budget.bytes,
            "bytes_per_token": self.bytes_per_token,
            "bytes_per_block": self.bytes_per_block,
            "blocks_that_fit": self.blocks,
            "formula": self.budget.formula,
        }


# Budgets.


def cpu_budget(free: int, weights: int, host_pool: int = 0, share: float = CPU_SHARE) -> Budget:
    """A share of what is free once the weights are in memory, less the host pool, which lies in the
    same memory. All in bytes."""
    left = int(share * max(0, free - weights)) - host_pool
    text = f"{share:g} x ({size(free)} free - {size(weights)} of weights)"
    return Budget(left, text + (f" - {size(host_pool)} of host pool" if host_pool else ""))


def cuda_budget(
    total: int, free: int, a_pass: int, tokens: int, fixed: int, share: float = CUDA_SHARE
) -> Budget:
    """A share of the device, less what is in use (weights, other programs), less what a pass of the
    model over so many `tokens` takes beside the weights, less what is `fixed`: graphs and staging
    memory. All in bytes."""
    used = total - free
    text = (
        f"{share:g} x {size(total)} - {size(used)} in use - {size(a_pass)} for a pass of "
        f"{tokens:,} tokens - {size(fixed)} for graphs and copies"
    )
    return Budget(int(share * total) - used - a_pass - fixed, text)


def budget_of(
    loaded: LoadedModel,
    block_size: int,
    step: LargestStep,
    *,
    requests: int = 1,
    host_blocks: int = 0,
    share: float | None = None,
) -> Budget:
    """The budget beside a loaded model, for steps as large as `step` and decode steps of up to so many
    `requests`. Raises BadInput where the system does not say how much memory is free."""
    config, device = loaded.config, loaded.device
    block = block_size * config.kv_values_per_token * loaded.dtype.itemsize
    if device.type == "cuda":
        a_pass = pass_bytes(loaded, block_size, step)
        fixed = staging_bytes(block, host_blocks) + graph_bytes(config, loaded.dtype, requests)
        free, total = torch.cuda.mem_get_info(device)
        return cuda_budget(total, free, a_pass, step.tokens, fixed, share or CUDA_SHARE)
    weights = sum(values.nbytes for values in loaded.model.parameters())
    return cpu_budget(free_memory(), weights, host_blocks * block, share or CPU_SHARE)


def free_memory() -> int:
    """Free bytes of main memory. Raises BadInput where the system does not say."""
    free = available_memory()
    if free is None:
        raise BadInput(
            "num_blocks: auto needs to know how much memory is free, which this system does not "
            "say; give a number of blocks."
        )
    return free


# A scenario's pool.


def settle_blocks(plan: MemoryPlan, needed: int) -> int:
    """`num_blocks: auto`: what fits, but no more than the requests could ever hold. Raises BadInput
    when not one block fits."""
    if plan.blocks < 1:
        left = size(plan.budget.bytes) if plan.budget.bytes > 0 else "nothing"
        raise BadInput(
            f"engine.num_blocks = auto: one block needs {size(plan.bytes_per_block)}, but "
            f"{left} is left for the pool ({plan.budget.formula}); use a smaller block_size or "
            "give a number of blocks."
        )
    return max(1, min(plan.blocks, needed))


def refuse_large_pools(
    config: ModelConfig,
    dtype: torch.dtype,
    device: torch.device,
    *,
    num_blocks: int,
    block_size: int,
    host_blocks: int,
) -> None:
    """Raise BadInput for pools that need more than is free, before memory is filled. Where a system
    hands out memory that it does not have, they would be found out only in the middle of a run."""
    block = block_size * config.kv_values_per_token * dtype.itemsize
    pool, host = num_blocks * block, host_blocks * block
    if device.type == "cuda":
        _refuse(f"a KV pool of {num_blocks:,} blocks", pool, device_memory(device), f" on {device}")
        _refuse(f"a host pool of {host_blocks:,} blocks", host, available_memory(), "")
        return
    both = f"a KV pool of {num_blocks:,} blocks" + (
        f" and a host pool of {host_blocks:,}" if host_blocks else ""
    )
    _refuse(both, pool + host, available_memory(), "")


def _refuse(what: str, needed: int, free: int | None, where: str) -> None:
    if free is not None and needed > free:
        raise BadInput(
            f"{what} needs {size(needed)}, but {size(free)} of memory{where} are free; give fewer "
            "or smaller blocks."
        )


# `kvlab memory`.


def report(
    name: str,
    *,
    block_size: int,
    length: int | None,
    share: float | None,
    dtype: str,
    device: str,
) -> Iterator[tuple[str, str]]:
    """What `kvlab memory` prints. On the CPU only the headers of the weight files are read; on CUDA
    the model is loaded for the profiling pass. Raises BadInput."""
    from kvlab.models.describe import Description
    from kvlab.models.loading import choose_device, choose_dtype, load_model
    from kvlab.models.places import find_model

    where = choose_device(device)
    kind = choose_dtype(dtype, where)
    about = Description.of(find_model(name, dtype=dtype))
    config, weights = about.config, about.values * kind.itemsize
    most = config.max_positions
    if length is not None and (not isinstance(length, int) or length < 1):
        raise BadInput(f"--length {length!r:.60}: give a number of tokens from 1 on")
    if length is not None and length > most:
        raise BadInput(f"--length {length:,}: {name} has a context of {most:,} tokens")
    if where.type == "cuda":
        loaded = load_model(name, device=device, dtype=dtype)
        budget = budget_of(loaded, block_size, LargestStep.of([most]), share=share)
    else:
        budget = cpu_budget(free_memory(), weights, share=share or CPU_SHARE)
    yield "model", f"{name} in {dtype} on {where.type}"
    yield "weights", size(weights)
    plan = MemoryPlan(config, kind, block_size, budget)
    yield from plan.lines(length or min(2_048, most))
