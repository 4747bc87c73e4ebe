"""Is what the GPU computes right? Each check compares with plain torch, or with bytes put there.

The tests run the same checks: interpreted on the CPU, and on a GPU where there is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kvlab.engine.config import EngineConfig
from kvlab.engine.engine import Engine
from kvlab.engine.request import Request, Sampling, ScheduledRequest
from kvlab.models.config import ModelConfig
from kvlab.models.llama import Llama
from kvlab.models.loading import DTYPES, LoadedModel
from kvlab.runtime.attention import choose_attention
from kvlab.runtime.attention.paged import Attention, slots_of
from kvlab.runtime.host_blocks import HostBlocks
from kvlab.runtime.kv_cache import KVCache
from kvlab.runtime.model_runner import ModelRunner
from kvlab.runtime.transfer import Transfer

FIGURE_5 = {"A": ((40, 65, 52, 64, 59, 60, 32), 6), "B": ((50, 3, 45, 8, 77, 6, 76), 4)}
"""Requests as long as the figures': prompt, and how many outputs, in 4 blocks of 4. Token ids for a
model of random weights: reading text takes a package more."""


@dataclass
class Case:
    """`starts` and `counts` say, for each request, how much has KV and how many rows come."""

    starts: list[int]
    counts: list[int]
    block_size: int = 4
    kv_heads: int = 2
    group: int = 2
    head_dim: int = 64
    dtype: str = "float32"
    seed: int = 0


def attention(case: Case, device: torch.device) -> dict[str, Any]:
    """The largest differences of one step over random KV, every unwritten slot NaN.

    `reference`: from the torch reference on the same tensors. `exact`: from softmax(q k / sqrt d) v
    in float64, position by position. `pool`: differing numbers in the pools after the step.
    """
    torch.manual_seed(case.seed)
    dtype = DTYPES[case.dtype]
    heads = case.kv_heads * case.group
    batch, num_blocks = shuffled_tables(case)
    pools = [
        KVCache(
            layers=2,
            num_blocks=num_blocks,
            block_size=case.block_size,
            kv_heads=case.kv_heads,
            head_dim=case.head_dim,
            dtype=dtype,
            device=device,
        )
        for _ in range(2)
    ]
    random = torch.randn(pools[0].data.shape).to(dtype)
    written = torch.zeros(num_blocks * case.block_size, dtype=torch.bool)
    for scheduled in batch:
        written[slots_of(scheduled, case.block_size)[: scheduled.start]] = True
    random.flatten(2, 3)[:, :, ~written] = torch.nan
    for pool in pools:
        pool.data.copy_(random)
    rows = sum(case.counts)
    q, k, v = (
        torch.randn(rows, count, case.head_dim).to(dtype).to(device)
        for count in (heads, case.kv_heads, case.kv_heads)
    )
    kernels = choose_attention(pools[0], heads, "triton").layout(batch)
    got = kernels.attend(pools[0], 1, q, k, v)
    reference = Attention.layout(batch, pools[1]).attend(pools[1], 1, q, k, v)
    exact = by_hand(case, batch, pools[1], q)
    same = (pools[0].data == pools[1].data) | (pools[0].data.isnan() & pools[1].data.isnan())
    return {
        "splits": kernels.decoding.splits,  # type: ignore[attr-defined]
        "finite": bool(got.isfinite().all()),
        "reference": float((got.double() - reference.double()).abs().max()),
        "exact": float((got.double().cpu() - exact).abs().max()),
        "pool": int((~same).sum()),
    }


def shuffled_tables(case: Case) -> tuple[list[ScheduledRequest], int]:
    """Requests whose blocks lie about a pool in no order, with some free blocks between."""
    needed = [
        -(-(start + count) // case.block_size)
        for start, count in zip(case.starts, case.counts, strict=True)
    ]
    num_blocks = sum(needed) + 3
    order = torch.randperm(num_blocks).tolist()
    batch = []
    for number, blocks in enumerate(needed):
        table, order = order[:blocks], order[blocks:]
        tokens = tuple(range(case.counts[number]))
        batch.append(ScheduledRequest(f"r{number}", tokens, case.starts[number], tuple(table), ()))
    return batch, num_blocks


def by_hand(case: Case, batch: list[ScheduledRequest], pool: KVCache, q: Tensor) -> Tensor:
    keys, values = (x.double().cpu() for x in pool.slots(1))
    out, row = [], 0
    for scheduled in batch:
        held = slots_of(scheduled, case.block_size)
        for position in range(scheduled.start, scheduled.end):
            seen = held[: position + 1]
            k = keys[seen].repeat_interleave(case.group, dim=1)
            v = values[seen].repeat_interleave(case.group, dim=1)
            scores = torch.einsum("hd,phd->hp", q[row].double().cpu(), k) / case.head_dim**0.5
            out.append(torch.einsum("hp,phd->hd", scores.softmax(-1), v))
            row += 1
    return torch.stack(out)


@dataclass
class Model:
    """A seeded random model of one to a few layers, and the lengths of the requests that decode."""

    lengths: list[int]
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    hidden: int = 40  # no power of two, like the story model's
    inner: int = 72
    layers: int = 2
    qk_norm: bool = False
    biases: bool = False
    dtype: str = "float32"
    block_size: int = 4
    steps: int = 2
    seed: int = 0


def decode_steps(case: Model, device: torch.device) -> dict[str, Any]:
    """The fused pass over padded buffers against the plain model over the torch reference, for a
    few steps in which one request after the other ends.

    `logits`, `kv`: largest differences; `tokens`: greedy tokens that differ; `strays`: numbers
    outside the requests' slots that changed; `refused`: steps that did not run fused; `captured`:
    sizes that run as CUDA graphs.
    """
    runners = [ModelRunner(random_model(case, device), **pools_for(case), attention="torch")]
    runners.append(
        ModelRunner(runners[0].loaded, **pools_for(case), attention="triton", cuda_graphs=True)
    )
    batch, _ = shuffled_tables(
        Case(case.lengths, [case.steps] * len(case.lengths), block_size=case.block_size)
    )
    held = torch.zeros(runners[0].cache.data.shape[2:4], dtype=torch.bool).flatten()
    for scheduled in batch:
        held[slots_of(scheduled, case.block_size)] = True
    random = torch.randn(runners[0].cache.data.shape).to(runners[0].loaded.dtype)
    random.flatten(2, 3)[:, :, ~held] = torch.nan
    for runner in runners:
        runner.cache.data.copy_(random)
    worst = {"logits": 0.0, "kv": 0.0, "tokens": 0, "strays": 0, "refused": 0}
    for step in range(case.steps):
        now = [
            ScheduledRequest(s.id, (7 * step + n,), s.start + step, s.table, (Sampling(),))
            for n, s in enumerate(batch[step:])
        ]
        seen: list[Tensor] = []
        hook = runners[0].loaded.model.lm_head.register_forward_hook(
            lambda module, inputs, output, seen=seen: seen.append(output)
        )
        plain = runners[0].execute(now)
        hook.remove()
        decoded = runners[1].decode_steps.run(now)
        fused = runners[1].execute(now)
        if decoded is None:
            worst["refused"] += 1
            continue
        difference = (decoded.logits.double() - seen[0].double()).abs().max()
        worst["logits"] = max(worst["logits"], float(difference))
        worst["tokens"] += sum(a != b for a, b in zip(plain, fused, strict=True))
    a, b = (runner.cache.data.flatten(2, 3).double().cpu() for runner in runners)
    worst["captured"] = len(getattr(runners[1].decode_steps, "captured", ()))
    worst["kv"] = float((a[:, :, held] - b[:, :, held]).abs().max())
    worst["strays"] = int((~b[:, :, ~held].isnan()).sum())
    return worst


def pools_for(case: Model) -> dict[str, Any]:
    blocks = sum(-(-(length + case.steps) // case.block_size) for length in case.lengths) + 3
    return {"num_blocks": blocks, "block_size": case.block_size, "host_blocks": 0}


def random_model(case: Model, device: torch.device) -> LoadedModel:
    torch.manual_seed(case.seed)
    config = ModelConfig(
        vocab_size=101,
        hidden_size=case.hidden,
        intermediate_size=case.inner,
        num_layers=case.layers,
        num_heads=case.heads,
        num_kv_heads=case.kv_heads,
        head_dim=case.head_dim,
        max_positions=512,
        qkv_bias=case.biases,
        output_bias=case.biases,
        mlp_bias=case.biases,
        qk_norm=case.qk_norm,
    )
    model = Llama(config)
    for name, values in model.named_parameters():
        torch.nn.init.normal_(values, mean=float("norm" in name), std=0.2)
    dtype = DTYPES[case.dtype]
    model = model.to(dtype).to(device).requires_grad_(False)
    return LoadedModel("random", config, model, None, device, dtype)


def figure_5(
    method: str, device: str, *, attention: str | None = None, cuda_graphs: bool | None = None
) -> dict[str, Any]:
    """The run of figure 5 in float32: its greedy tokens, and what it ran on."""
    loaded = random_model(Model([], layers=5, head_dim=32), torch.device(device))
    settings = EngineConfig(num_blocks=4, block_size=4, host_blocks=4, method=method)
    runner = ModelRunner(
        loaded,
        num_blocks=settings.num_blocks,
        block_size=settings.block_size,
        host_blocks=settings.host_blocks,
        attention=attention,
        cuda_graphs=cuda_graphs,
    )
    engine = Engine(settings, runner)
    for id, (prompt, outputs) in FIGURE_5.items():
        engine.add_request(Request(id=id, prompt=prompt, max_tokens=outputs))
    reports = engine.run()
    return {
        "tokens": {id: request.outputs for id, request in engine.requests.items()},
        "preemptions": sum(len(report.preempted) for report in reports),
        "attention": runner.attention.name,
        "attention_why": runner.attention.why,
        "no_graphs": runner.decode_steps.why_not,
    }


@dataclass
class Pools:
    """A device pool full of random numbers, an empty host pool, and the way between."""

    device: KVCache
    host: HostBlocks
    transfer: Transfer

    @classmethod
    def of(cls, device: torch.device, blocks: int, staged_blocks: int, layers: int = 4) -> Pools:
        shape: dict[str, Any] = {
            "layers": layers,
            "num_blocks": blocks,
            "block_size": 16,
            "kv_heads": 8,
            "head_dim": 64,
            "dtype": torch.float16,
        }
        pool = KVCache(**shape, device=device)
        pool.data.normal_()
        host = HostBlocks(**shape, pinned=device.type == "cuda")
        staging = staged_blocks * pool.bytes_per_block
        return cls(pool, host, Transfer(pool, host, staging_bytes=staging))


def orderings(device: torch.device, blocks: int = 24, staged_blocks: int = 5) -> dict[str, bool]:
    """The three orderings of a swap, each tried while the model's stream is kept busy.

    Small staging memory makes many pieces, so that both lanes are used again and again.
    """
    pools = Pools.of(device, blocks, staged_blocks)
    data, host, transfer = pools.device.data, pools.host.data, pools.transfer
    there = [(block, blocks - 1 - block) for block in range(blocks)]
    back = [(stored, block) for block, stored in there]
    mirrored = list(range(blocks - 1, -1, -1))

    busy(device)
    data.fill_(1.5)  # a write that is still to come when the copy is asked for
    transfer.copy_out(there)
    data.fill_(2.5)  # the block is given to somebody else at once
    transfer.finish()
    written_first = bool((host == 1.5).all())

    data.normal_()
    before = data.clone()
    transfer.copy_out(there)
    data.zero_()
    transfer.finish()
    complete = torch.equal(host[:, :, mirrored], before.cpu())

    data.fill_(3.5)
    busy(device)
    last_read = data.clone()
    transfer.copy_in(back)
    transfer.settle(range(blocks))
    restored = data.clone()
    return {
        "write_before_copy_out": written_first,
        "copied_before_reuse": complete,
        "last_read_before_copy_in": bool((last_read == 3.5).all()),
        "restored_byte_for_byte": torch.equal(restored.view(torch.int16), before.view(torch.int16)),
    }


def busy(device: torch.device) -> None:
    """Keep the model's stream at work for some ten milliseconds."""
    if device.type == "cuda":
        torch.cuda._sleep(20_000_000)
