"""Measures what the cost model needs, on the model that will run and pools like those in use.

About a second for a model of 100 million parameters on two CPU cores. The rates are kept in the
user's cache, so that the next run starts at once.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import torch

import kvlab
from kvlab.engine.cost_model import CostModel, Machine, ModelShape
from kvlab.engine.request import ScheduledRequest
from kvlab.engine.runner import Runner
from kvlab.errors import BadInput
from kvlab.files.write import write_whole
from kvlab.models.cache import cache_folder
from kvlab.models.loading import LoadedModel
from kvlab.runtime.kv_cache import KVCache

REPEATS = 5
SHORT, LONG = 128, 2_048
"""Tokens of the shortest prefill, and at most of the longest."""
SECONDS = 0.5
"""What one pass of the longest prefill may take, and a measurement's repeats together."""
BUSY = 1.25
"""A pass that takes so many times as long as one row's is bound by computing."""
SLOWEST = 1e-9  # seconds; keeps a rate finite where the clock did not move


class TensorRunner(Runner, Protocol):
    """A runner with a model in memory, which can be measured."""

    loaded: LoadedModel
    cache: KVCache

    def scratch(self, *, num_blocks: int, host_blocks: int) -> TensorRunner:
        """One of the same model with pools of its own. Raises BadInput where memory is short."""
        ...


@dataclass(frozen=True, slots=True)
class Rates:
    """What was measured. Per second; `seconds_per_copy` is the start of one copy; `how` in words."""

    operations: float
    attention_operations: float
    weight_bytes: float
    out_bytes: float
    in_bytes: float
    seconds_per_copy: float
    how: str

    @classmethod
    def from_json(cls, raw: Any) -> Rates:
        """Raises ValueError for what is not a set of rates."""
        if not isinstance(raw, dict) or set(raw) != {field.name for field in fields(cls)}:
            raise ValueError("other keys")
        numbers = {key: value for key, value in raw.items() if key != "how"}
        for key, value in numbers.items():
            least = 0.0 if key == "seconds_per_copy" else math.ulp(0.0)
            if type(value) not in (int, float) or not least <= value < math.inf:
                raise ValueError(f"{key} = {value!r}")
        return cls(**numbers, how=str(raw["how"]))


def measure_costs(runner: TensorRunner) -> CostModel:
    """The rates of this model, device, dtype and block size: from the cache, else measured now and
    put there. A cache that cannot be read or written changes nothing but the time this takes."""
    kept = read_rates(runner)
    if kept is not None:
        return cost_model(runner, kept, "measured earlier")
    return calibrate(runner)


def calibrate(runner: TensorRunner) -> CostModel:
    """Measure now, whatever the cache holds, and keep what was found."""
    return keep(runner, [measure(runner)])


def keep(runner: TensorRunner, measured: Sequence[Rates]) -> CostModel:
    """The medians of what was measured, written to the cache, as a cost model."""
    names = [field.name for field in fields(Rates) if field.name != "how"]
    medians = {name: median(getattr(rates, name) for rates in measured) for name in names}
    rates = Rates(**medians, how=measured[-1].how)
    write_rates(runner, rates)
    return cost_model(runner, rates, "measured just now")


def cost_model(runner: TensorRunner, rates: Rates, when: str) -> CostModel:
    """The cost model at these rates. Our copies move whole blocks in one copy each way."""
    device = runner.loaded.device.type
    return CostModel(
        shape_of(runner.loaded),
        Machine(
            device,
            operations=rates.operations,
            memory=rates.weight_bytes,
            out_link=rates.out_bytes,
            in_link=rates.in_bytes,
            copy_seconds=rates.seconds_per_copy,
            source=rates.how,
            attention_reached=rates.attention_operations / rates.operations,
        ),
        block_size=runner.cache.block_size,
        source=f"{when} on {device}: {rates.how}",
    )


def shape_of(loaded: LoadedModel) -> ModelShape:
    """A loaded model as the formulas see it."""
    config = loaded.config
    return ModelShape.of_llama(
        loaded.name,
        layers=config.num_layers,
        width=config.hidden_size,
        inner=config.intermediate_size,
        heads=config.num_heads,
        kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        bytes=loaded.dtype.itemsize,
        source="the loaded model",
    )


# Measuring.


def measure(runner: TensorRunner) -> Rates:
    """Time prefill at two or three lengths, one row, and copies of three sizes both ways.

    The requests' own KV is not touched: a scratch runner with the same model has its own pools.
    """
    shape, device = shape_of(runner.loaded), runner.loaded.device
    scratch, room = scratch_runner(runner)
    # Two rows on CUDA: a single one would replay a decode step's graph, which no recompute does.
    row = pass_seconds(scratch, min(room, 1 if device.type == "cpu" else 2))
    short = min(SHORT, room)
    prefill = {short: pass_seconds(scratch, short)}
    longest = long_enough(short, prefill[short], room)
    for length in (longest // 4, longest):
        if length > short:
            prefill[length] = pass_seconds(scratch, length)
    linear, attention = operations_per_second(shape, prefill, row)
    blocks = scratch.cache.num_blocks
    out = copy_line(scratch.copy_out, blocks, scratch.cache.bytes_per_block, device)
    back = copy_line(scratch.copy_in, blocks, scratch.cache.bytes_per_block, device)
    lengths = ", ".join(f"{length:,}" for length in prefill)
    return Rates(
        operations=linear,
        attention_operations=attention,
        weight_bytes=shape.weight_bytes / row,
        out_bytes=out.bytes_per_second,
        in_bytes=back.bytes_per_second,
        seconds_per_copy=(out.start + back.start) / 2,
        how=f"prefill of {lengths} tokens, one row, copies of up to {blocks:,} blocks both ways; "
        f"medians of up to {REPEATS}",
    )


def scratch_runner(runner: TensorRunner) -> tuple[TensorRunner, int]:
    """A runner with pools for a long prefill, or for a shorter one where memory is short, and the
    tokens that it has room for."""
    size = runner.cache.block_size
    blocks = max(1, min(LONG, runner.context) // size)
    while True:
        try:
            scratch = runner.scratch(num_blocks=blocks, host_blocks=blocks)
            return scratch, min(blocks * size, runner.context)
        except BadInput:
            if blocks == 1:
                raise
            blocks //= 2


def pass_seconds(runner: TensorRunner, tokens: int, budget: float = SECONDS) -> float:
    """Median seconds of one pass over `tokens` positions of one request, from the first block on."""
    prompt = tuple(place % runner.vocab_size for place in range(tokens))
    blocks = -(-tokens // runner.cache.block_size)
    batch = [ScheduledRequest("calibration", prompt, 0, tuple(range(blocks)), ())]
    return timed(lambda: runner.execute(batch), runner.loaded.device, budget)


def long_enough(short: int, seconds: float, room: int) -> int:
    """The longest doubling of `short` tokens, which took `seconds`, that stays within SECONDS if time
    grows a little faster than length."""
    longer = short
    while longer * 2 <= room and seconds * (longer * 2 / short) * 1.1 <= SECONDS:
        longer *= 2
    return longer


def operations_per_second(
    shape: ModelShape, prefill: dict[int, float], row: float
) -> tuple[float, float]:
    """Operations a second that products with weights reach, and attention, from prefill's seconds by
    length.

    Lengths that computing bounds tell the two apart, as 2 P N grows with N and 2 L H D N^2 with its
    square. Otherwise, and where noise would make one of the two negative, the longest pass gives one
    rate for both.
    """
    longest = max(prefill)
    both = shape.linear_operations(longest) + shape.attention_operations(longest)
    one_rate = both / prefill[longest]
    bound = {n: seconds for n, seconds in prefill.items() if seconds > BUSY * row}
    terms = [(shape.linear_operations(n), shape.attention_operations(n), bound[n]) for n in bound]
    linear, attention = fit(terms)
    if linear <= 0 or attention <= 0:
        return one_rate, one_rate
    return 1 / linear, 1 / attention


def fit(points: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """x and y with u x + v y nearest to w for the points (u, v, w), each error as a share of w: least
    squares. Through two points exactly; (0, 0) where the points do not tell x from y."""
    rows = [(u / w, v / w) for u, v, w in points]
    uu, uv, vv = (sum(r[i] * r[j] for r in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    u1, v1 = sum(u for u, _ in rows), sum(v for _, v in rows)
    determinant = uu * vv - uv * uv
    if determinant <= 1e-12 * uu * vv:
        return 0.0, 0.0
    return (u1 * vv - v1 * uv) / determinant, (v1 * uu - u1 * uv) / determinant


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds of a copy of b bytes: start + b / bytes_per_second."""

    start: float
    bytes_per_second: float

    @classmethod
    def through(cls, *points: tuple[float, float]) -> Line:
        """The line nearest to (bytes, seconds); from the origin through the last one where noise
        would make the start or the slope negative."""
        slope, start = fit([(size, 1.0, seconds) for size, seconds in points])
        if slope <= 0 or start < 0:
            size, seconds = points[-1]
            return cls(0.0, size / seconds)
        return cls(start, 1 / slope)


def copy_line(
    copy: Callable[[Sequence[tuple[int, int]]], None],
    blocks: int,
    bytes_per_block: int,
    device: torch.device,
) -> Line:
    """Copies of a sixteenth, a quarter and all of the pool."""
    points = [
        (float(count * bytes_per_block), timed(partial(copy, reversed_pairs(count)), device))
        for count in sorted({max(1, blocks // 16), max(1, blocks // 4), blocks})
    ]
    return Line.through(*points)


def reversed_pairs(count: int) -> list[tuple[int, int]]:
    """Blocks 0 … count - 1 and where they go: scattered, as after a while in use."""
    return [(block, count - 1 - block) for block in range(count)]


def timed(work: Callable[[], object], device: torch.device, budget: float = SECONDS) -> float:
    """Median seconds of up to REPEATS runs, after one warm-up; waits for the device. Once `budget`
    seconds are spent no further run starts, but one is always timed."""
    taken: list[float] = []
    began = time.perf_counter()
    while len(taken) < 2 or (len(taken) <= REPEATS and time.perf_counter() - began < budget):
        started = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(max(time.perf_counter() - started, SLOWEST))
    return median(taken[1:])


# Keeping.


def key_of(runner: TensorRunner) -> dict[str, Any]:
    """What the rates hold for. The shape stands beside the name: a folder may come to hold another
    model."""
    loaded = runner.loaded
    device = loaded.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    return {
        "model": loaded.name,
        "shape": {key: value for key, value in asdict(shape_of(loaded)).items() if key != "source"},
        "device": name,
        "threads": torch.get_num_threads(),
        "dtype": str(loaded.dtype).removeprefix("torch."),
        "block_size": runner.cache.block_size,
        "torch": torch.__version__,
        "kvlab": kvlab.__version__,
    }


def processor() -> str:
    """This machine's processor, as exactly as the system says."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return f"{line.partition(':')[2].strip()}, {os.cpu_count()} CPUs"
    return f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs"


def rates_file(key: dict[str, Any]) -> Path:
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return cache_folder() / "costs" / f"{name}.json"


def read_rates(runner: TensorRunner) -> Rates | None:
    """What was kept for this key; None where nothing was, or nothing that can be used."""
    key = key_of(runner)
    try:
        kept = json.loads(rates_file(key).read_text(encoding="utf-8"))
        if kept["key"] != key:
            return None
        return Rates.from_json(kept["rates"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def write_rates(runner: TensorRunner, rates: Rates) -> None:
    """Keep the rates, whole or not at all. A cache that cannot be written is passed over."""
    key = key_of(runner)
    file = rates_file(key)
    with suppress(OSError, BadInput):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps({"key": key, "rates": asdict(rates)}, indent=1) + "\n")
