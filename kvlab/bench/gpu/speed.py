"""How fast the GPU path is, each time beside what the hardware could do at best."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch

from kvlab.bench.gpu.shapes import weight_bytes_read
from kvlab.engine.config import EngineConfig
from kvlab.engine.cost_model import CostModel, Machine
from kvlab.engine.engine import Engine
from kvlab.engine.request import Request, Sampling, ScheduledRequest
from kvlab.models.config import ModelConfig
from kvlab.models.loading import LoadedModel
from kvlab.runtime.calibrate import shape_of
from kvlab.runtime.host_blocks import HostBlocks
from kvlab.runtime.kv_cache import KVCache
from kvlab.runtime.model_runner import ModelRunner
from kvlab.runtime.transfer import STAGING_BYTES, Transfer

BLOCK_SIZE = 16
REPEATS = 7


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds of work on one device."""

    device: torch.device

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def seconds(self, work: Callable[[], object], repeats: int = REPEATS) -> float:
        """Median over the repeats, after one to warm up, from the call until the device is done."""
        taken = []
        for _ in range(repeats + 1):
            self.wait()
            started = time.perf_counter()
            work()
            self.wait()
            taken.append(time.perf_counter() - started)
        return median(taken[1:])

    def seconds_each(self, work: Callable[[], object], count: int) -> float:
        """Of many in a row, as the device runs them back to back."""
        work()
        self.wait()
        started = time.perf_counter()
        for _ in range(count):
            work()
        self.wait()
        return (time.perf_counter() - started) / count


def ceilings(device: torch.device, size: int) -> dict[str, float]:
    """Bytes a second of plain copies of `size` bytes (on the device: read and written), and the
    rate of a large matrix product, all on random data."""
    clock = Clock(device)
    cuda = device.type == "cuda"
    here = torch.randint(0, 255, (size,), dtype=torch.uint8, device=device)
    there = torch.empty_like(here)
    host = torch.empty(size, dtype=torch.uint8, pin_memory=cuda)
    side = 8_192 if cuda else 64
    a, b = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
    return {
        "device_copy_bytes_per_second": 2 * size / clock.seconds(lambda: there.copy_(here)),
        "pinned_out_bytes_per_second": size
        / clock.seconds(lambda: host.copy_(here, non_blocking=True)),
        "pinned_in_bytes_per_second": size
        / clock.seconds(lambda: here.copy_(host, non_blocking=True)),
        "bfloat16_flop_per_second": 2 * side**3 / clock.seconds(lambda: a @ b),
    }


# Decoding.


def decode_speed(
    loaded: LoadedModel, batch: int, prompt: int, steps: int, bytes_per_second: float
) -> dict[str, Any]:
    """Tokens a second of the engine with `batch` requests, against the floor: the bytes that a step
    must read (weights and KV) over the bandwidth measured for a copy.

    `seconds_per_step` is the engine's whole step on the wall clock; `device_seconds_per_step` the
    model's pass alone, one after another.
    """
    blocks = batch * -(-(prompt + steps) // BLOCK_SIZE)
    started = time.perf_counter()
    runner = ModelRunner(loaded, num_blocks=blocks, block_size=BLOCK_SIZE, host_blocks=0)
    engine = Engine(EngineConfig(num_blocks=blocks, block_size=BLOCK_SIZE, host_blocks=0), runner)
    for number in range(batch):
        tokens = tuple((number + 7 * place) % loaded.config.vocab_size for place in range(prompt))
        engine.add_request(Request(id=f"r{number}", prompt=tokens, max_tokens=steps))
    clock = Clock(loaded.device)
    engine.step()  # prefill
    engine.step()  # a first decode: kernels are compiled, the graph is captured
    clock.wait()
    prepared = time.perf_counter() - started
    last = last_batch(engine)
    taken = []
    while engine.has_work:
        started = time.perf_counter()
        engine.step()
        taken.append(time.perf_counter() - started)
    alone = None
    if runner.decode_steps.run(last) is not None:
        alone = clock.seconds_each(lambda: runner.decode_steps.run(last), 20)
    step = median(taken)
    kv = batch * (prompt + steps / 2) * loaded.config.kv_values_per_token * loaded.dtype.itemsize
    floor = (weight_bytes_read(loaded) + kv) / bytes_per_second
    return {
        "model": loaded.name,
        "batch": batch,
        "prompt_tokens": prompt,
        "steps": len(taken),
        "tokens_per_second": batch / step,
        "seconds_per_step": step,
        "device_seconds_per_step": alone,
        "floor_seconds_per_step": floor,
        "of_floor": floor / step,
        "device_of_floor": floor / alone if alone else None,
        "attention": runner.attention.name,
        "attention_why": runner.attention.why,
        "no_graphs": runner.decode_steps.why_not,
        "seconds_to_prepare": prepared,
    }


def last_batch(engine: Engine) -> list[ScheduledRequest]:
    """The requests of an engine as a batch that would process each one's newest token."""
    return [
        ScheduledRequest(
            request.id,
            (request.history[-1],),
            request.computed,
            tuple(request.table),
            (Sampling(),),
        )
        for request in engine.requests.values()
        if len(request.table) * BLOCK_SIZE > request.computed
    ]


def slowest_kernels(loaded: LoadedModel, prompt: int) -> list[dict[str, Any]]:
    """Where the time of a decode step of one request goes on the device, for whoever is to make it
    faster."""
    from torch.profiler import ProfilerActivity, profile

    blocks = -(-prompt // BLOCK_SIZE) + 1
    runner = ModelRunner(loaded, num_blocks=blocks, block_size=BLOCK_SIZE, host_blocks=0)
    batch = [ScheduledRequest("r", (1,), prompt, tuple(range(blocks)), (Sampling(),))]
    runner.execute(batch)
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        runner.execute(batch)
        Clock(loaded.device).wait()
    found = sorted(trace.key_averages(), key=lambda kernel: -kernel.device_time_total)
    return [
        {"kernel": kernel.key[:80], "count": kernel.count, "us": kernel.device_time_total}
        for kernel in found[:12]
    ]


# Swapping.


def pools(
    config: ModelConfig, dtype: torch.dtype, device: torch.device, blocks: int, block_size: int
) -> tuple[KVCache, HostBlocks]:
    """A device pool of random numbers and a host pool, for so many blocks of a model's KV."""
    shape: dict[str, Any] = {
        "layers": config.num_layers,
        "num_blocks": blocks,
        "block_size": block_size,
        "kv_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "dtype": dtype,
    }
    pool = KVCache(**shape, device=device)
    pool.data.normal_()
    return pool, HostBlocks(**shape, pinned=device.type == "cuda")


def swap_speed(
    config: ModelConfig, dtype: torch.dtype, device: torch.device, blocks: int
) -> dict[str, Any]:
    """Blocks in random order out and back, against one plain pinned copy of the same bytes, and
    against the same blocks in copies of one block each and of one layer's K or V each."""
    clock = Clock(device)
    pool, host = pools(config, dtype, device, blocks, BLOCK_SIZE)
    transfer = Transfer(pool, host, staging_bytes=STAGING_BYTES)
    size = blocks * pool.bytes_per_block
    order = torch.randperm(blocks).tolist()
    there = [(block, stored) for stored, block in enumerate(order)]
    back = [(stored, block) for block, stored in there]
    plain = torch.empty(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
    on_device = torch.empty(size, dtype=torch.uint8, device=device)

    def one_by_one() -> None:
        for pair in there:
            transfer.copy_out([pair])

    seconds = {
        "plain_out": clock.seconds(lambda: plain.copy_(on_device, non_blocking=True)),
        "plain_in": clock.seconds(lambda: on_device.copy_(plain, non_blocking=True)),
        "out": clock.seconds(lambda: transfer.copy_out(there)),
        "in": clock.seconds(lambda: transfer.copy_in(back)),
        "out_block_by_block": clock.seconds(one_by_one, 3),
        "out_piece_by_piece": clock.seconds(lambda: copy_pieces(pool, host, there), 3),
    }
    return {
        "blocks": blocks,
        "block_size": BLOCK_SIZE,
        "bytes": size,
        "seconds": seconds,
        "out_of_plain": seconds["plain_out"] / seconds["out"],
        "in_of_plain": seconds["plain_in"] / seconds["in"],
        "cost_per_block_copy_seconds": (seconds["out_block_by_block"] - seconds["out"]) / blocks,
    }


def copy_pieces(pool: KVCache, host: KVCache, pairs: Sequence[tuple[int, int]]) -> None:
    """Each layer's K and V of each block in a copy of its own, as engines first did."""
    for layer_from, layer_to in zip(pool.data, host.data, strict=True):
        for half in (0, 1):
            for block, stored in pairs:
                layer_to[half, stored].copy_(layer_from[half, block], non_blocking=True)


# Recompute against swap.


def recompute_against_swap(
    loaded: LoadedModel,
    tokens: int,
    block_sizes: Sequence[int],
    rates: dict[str, float],
    out_of_time: Callable[[], bool],
) -> dict[str, Any]:
    """Seconds to bring back `tokens` positions of one request, by either method and block size, and
    what the formulas predict.

    Swap counts both ways. `swap_pieces` is the way out and back in copies of one layer's K or V of
    one block, whose number grows as blocks shrink.
    """
    clock = Clock(loaded.device)
    rows = []
    for block_size in block_sizes:
        if out_of_time():
            break
        blocks = -(-tokens // block_size)
        runner = ModelRunner(loaded, num_blocks=blocks, block_size=block_size, host_blocks=0)
        prompt = tuple(place % loaded.config.vocab_size for place in range(tokens))
        batch = [ScheduledRequest("r", prompt, 0, tuple(range(blocks)), (Sampling(),))]
        recompute = clock.seconds(partial(runner.execute, batch), 3)
        del runner
        pool, host = pools(loaded.config, loaded.dtype, loaded.device, blocks, block_size)
        transfer = Transfer(pool, host, staging_bytes=STAGING_BYTES)
        order = torch.randperm(blocks).tolist()
        there = list(zip(order, range(blocks), strict=True))
        back = [(stored, block) for block, stored in there]
        out = clock.seconds(partial(transfer.copy_out, there), 3)
        into = clock.seconds(partial(transfer.copy_in, back), 3)
        rows.append(
            {
                "block_size": block_size,
                "recompute_seconds": recompute,
                "swap_seconds": out + into,
                "swap_pieces_seconds": pieces_both_ways(clock, pool, host, there),
                "bytes_each_way": blocks * pool.bytes_per_block,
            }
        )
        del pool, host, transfer
    return {
        "model": loaded.name,
        "tokens": tokens,
        "predicted": predicted(loaded, tokens, rates),
        "by_block_size": rows,
    }


def pieces_both_ways(
    clock: Clock, pool: KVCache, host: KVCache, there: Sequence[tuple[int, int]]
) -> float:
    """Timed on some of the blocks where there are very many, and scaled up."""
    some = there[: max(1, 8_192 // (2 * len(pool.data)))]
    back = [(stored, block) for block, stored in some]
    out = clock.seconds(lambda: copy_pieces(pool, host, some), 1)
    into = clock.seconds(lambda: copy_pieces(host, pool, back), 1)
    return (out + into) * len(there) / len(some)


def predicted(loaded: LoadedModel, tokens: int, rates: dict[str, float]) -> dict[str, float]:
    """Seconds from bytes and arithmetic alone, at the rates measured for plain copies and products:
    the formulas of `kvlab.engine.cost_model`, with nothing for the start of a copy."""
    costs = CostModel(
        shape_of(loaded),
        Machine(
            loaded.device.type,
            operations=rates["bfloat16_flop_per_second"],
            memory=rates["device_copy_bytes_per_second"],
            out_link=rates["pinned_out_bytes_per_second"],
            in_link=rates["pinned_in_bytes_per_second"],
            copy_seconds=0.0,
            source="plain copies and one large product",
        ),
        block_size=1,  # the KV's own bytes
        source="measured just now",
    )
    return {
        "recompute_seconds": costs.recompute_seconds(tokens),
        "swap_seconds": costs.swap_seconds(tokens),
    }
