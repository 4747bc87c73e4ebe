"""The five figures and the safety of a swap on a GPU. Needs torch, safetensors and tokenizers.

Expected values are the story's table, worked out on paper (a pool of 4 blocks of 4 slots; A has 7
prompt tokens and 6 outputs, B 7 and 4), bytes that the test itself has read or written before, and
the CPU's logits. Requests are built here, so that no scenario file has to be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from kvlab.engine.config import EngineConfig
from kvlab.engine.engine import Action, Engine
from kvlab.engine.events import Event, KvWritten, TokenDelivered
from kvlab.engine.request import Request, Sampling, ScheduledRequest
from kvlab.models.loading import LoadedModel, load_model
from kvlab.runtime.model_runner import ModelRunner
from kvlab.runtime.transfer import Transfer
from tests.engine.harness import Record, Snapshot, Told, snapshot

pytestmark = pytest.mark.cuda

DEVICE = "cuda"
PROMPTS = {"A": "Ana and Ben share a small room", "B": "Mia keeps her books on one shelf"}
OUTPUTS = {"A": 6, "B": 4}

# After each step: A's KV and blocks, B's KV and blocks, free blocks, what was delivered.
TABLE: list[tuple[int, list[int], int, list[int], int, list[str]]] = [
    (7, [0, 1], 7, [2, 3], 0, ["A x0", "B x0"]),
    (8, [0, 1], 8, [2, 3], 0, ["A x1", "B x1"]),
    (9, [0, 1, 2], 0, [], 1, ["A x2"]),
    (10, [0, 1, 2], 0, [], 1, ["A x3"]),
    (11, [0, 1, 2], 0, [], 1, ["A x4"]),
    (0, [], 0, [], 4, ["A x5"]),
    (0, [], 9, [3, 0, 1], 1, ["B x2"]),
    (0, [], 0, [], 4, ["B x3"]),
]


@cache
def model(device: str = DEVICE) -> LoadedModel:
    return load_model("story", device=device)


def wait() -> None:
    """Until the GPU has done all that it was given, on every stream."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def sleep(milliseconds: int = 100) -> None:
    """Keep the model's stream busy, so that whoever does not wait for it is found out."""
    if DEVICE == "cuda":
        torch.cuda._sleep(milliseconds * 1_000_000)  # clock cycles, of some 1.5 GHz


def story(
    method: str, *, num_blocks: int = 4, sampling: Sampling | None = None
) -> tuple[Engine, ModelRunner]:
    runner = ModelRunner(model(), num_blocks=num_blocks, block_size=4, host_blocks=4)
    engine = Engine(EngineConfig(num_blocks=num_blocks, block_size=4, method=method), runner)
    for id, prompt in PROMPTS.items():
        tokens = tuple(model().encode(prompt))
        assert len(tokens) == 7
        engine.add_request(
            Request(id=id, prompt=tokens, max_tokens=OUTPUTS[id], sampling=sampling or Sampling())
        )
    return engine, runner


def steps(engine: Engine) -> Iterator[tuple[Told, Snapshot]]:
    while engine.has_work:
        report = Told(engine.step())
        engine.check_integrity()
        yield report, snapshot(engine)


def kinds(events: tuple[Event, ...]) -> list[str]:
    return [event.kind for event in events]


def outputs(engine: Engine) -> dict[str, list[int]]:
    return {id: request.outputs for id, request in engine.requests.items()}


def roomy_outputs(sampling: Sampling | None = None) -> dict[str, list[int]]:
    engine, _ = story("recompute", num_blocks=64, sampling=sampling)
    assert not any(report.preempted for report in engine.run())
    return outputs(engine)


# The figures.


@pytest.mark.parametrize("method", ["recompute", "swap"])
def test_figures_1_3_4_and_5_follow_the_table(method: str) -> None:
    engine, _ = story(method)
    told = list(steps(engine))
    assert len(told) == len(TABLE)
    rebuilt: list[int] = []
    for (report, state), row in zip(told, TABLE, strict=True):
        a_kv, a_blocks, b_kv, b_blocks, free, delivered = row
        held = {"A": tuple(a_blocks), "B": tuple(b_blocks)}
        assert dict(state.blocks) == {id: blocks for id, blocks in held.items() if blocks}
        assert dict(state.kv) == {id: kv for id, kv in (("A", a_kv), ("B", b_kv)) if kv}
        assert state.free == free
        sent = [f"{e.id} x{e.index}" for e in report.events if isinstance(e, TokenDelivered)]
        assert sent == delivered
        for event in report.events:
            if isinstance(event, KvWritten) and event.why == "rebuilt":
                rebuilt += range(event.first, event.last + 1)
    order = kinds(told[2][0].events)
    assert order.index("block_needed") < order.index("preempted") < order.index("block_released")
    if method == "swap":
        assert order.index("swap_out_finished") < order.index("block_released")
        assert order.index("block_released") < order.index("block_allocated")
    assert rebuilt == (list(range(8)) if method == "recompute" else [])
    processed, again, moved = (30, 8, (0, 0)) if method == "recompute" else (22, 0, (2, 2))
    assert sum(report.tokens for report, _ in told) == processed
    assert sum(report.tokens_again for report, _ in told) == again
    record = Record(engine, engine.runner, [report for report, _ in told])
    assert record.swapped == moved
    assert [gap.steps for gap in record.gaps("B")] == [1, 5, 1]
    assert record.waited("B") == (4, 1)
    assert outputs(engine) == roomy_outputs()


def test_figure_2_skips_first_and_releases_then() -> None:
    engine, runner = story("pause_only")
    engine.add_action(Action(step=4, action="preempt", id="B", method="recompute"))
    free, of_b = [], Tensor()
    for report, state in steps(engine):
        free.append(state.free)
        if report.step == 3:
            assert dict(state.blocks) == {"A": (0, 1), "B": (2, 3)}
            assert (state.paused, [stall.id for stall in report.stalled]) == (("B",), ["A"])
            of_b = runner.cache.data[:, :, 2:4].clone()
        if report.step == 4:
            assert dict(state.blocks) == {"A": (0, 1, 2)}
            # The ghosts: only slot 0 of P2 has been written since.
            assert torch.equal(runner.cache.block(2)[:, :, 1:], of_b[:, :, 0, 1:])
            assert torch.equal(runner.cache.block(3), of_b[:, :, 1])
            assert not torch.equal(runner.cache.block(2)[:, :, 0], of_b[:, :, 0, 0])
    assert free == [0, 0, 0, 1, 1, 1, 4, 1, 4]
    assert outputs(engine) == roomy_outputs()


@pytest.mark.parametrize("method", ["recompute", "swap"])
def test_a_preemption_does_not_move_the_random_stream(method: str) -> None:
    sampling = Sampling(temperature=1.0, seed=3)
    engine, _ = story(method, sampling=sampling)
    assert [id for report in engine.run() for id in report.preempted] == ["B"]
    assert outputs(engine) == roomy_outputs(sampling)


# Bytes.


def test_swapped_kv_is_equal_byte_for_byte_in_the_host_pool_and_back() -> None:
    engine, runner = story("swap")
    of_b = Tensor()
    for report, state in steps(engine):
        wait()
        if report.step == 2:
            of_b = runner.cache.data[:, :, [2, 3]].cpu()
            assert of_b.abs().amin() > 0
        elif report.step in (3, 4, 5, 6):
            stored = list(state.host_blocks["B"])
            assert torch.equal(runner.host.data[:, :, stored], of_b)
            if report.step < 6:
                assert not torch.equal(runner.cache.block(2).cpu(), of_b[:, :, 0])
        elif report.step == 7:
            back = runner.cache.data[:, :, list(state.blocks["B"][:2])].cpu()
            assert torch.equal(back, of_b)


def test_the_host_pool_is_pinned_memory_of_its_own() -> None:
    _, runner = story("swap")
    assert runner.host.data.is_pinned() is (DEVICE == "cuda")
    assert runner.host.data.device.type == "cpu"
    assert runner.cache.data.device.type == DEVICE
    assert runner.host.bytes_per_block == runner.cache.bytes_per_block


def test_rebuilt_kv_is_near_what_was_computed_first() -> None:
    engine, runner = story("recompute")
    before = after = Tensor()
    for report, state in steps(engine):
        if report.step == 2:
            before = runner.cache.data[:, :, [2, 3]].flatten(2, 3).clone()
        elif report.step == 7:
            after = runner.cache.data[:, :, list(state.blocks["B"][:2])].flatten(2, 3)
            assert float((after - before).abs().max()) <= 1e-2


def test_logits_are_near_the_cpus() -> None:
    seen: dict[str, Tensor] = {}
    tokens = tuple(model().encode(PROMPTS["A"] + " behind the kitchen. " + PROMPTS["B"]))
    blocks = len(tokens) // 4 + 1
    for device in ("cpu", DEVICE):
        loaded = model(device)
        runner = ModelRunner(loaded, num_blocks=blocks, block_size=4, host_blocks=0)

        def keep(module: Any, inputs: Any, output: Tensor, device: str = device) -> None:
            seen[device] = output.float().cpu()

        handle = loaded.model.lm_head.register_forward_hook(keep)
        table = tuple(reversed(range(blocks)))
        runner.execute([ScheduledRequest("r", tokens, 0, table, (Sampling(),))])
        handle.remove()
    assert float((seen[DEVICE] - seen["cpu"]).abs().max()) <= 1e-2


# The three orderings. `sleep` holds the model's stream up; a copy that does not wait is too early.


@pytest.fixture
def pools() -> tuple[ModelRunner, Transfer]:
    runner = ModelRunner(model(), num_blocks=8, block_size=4, host_blocks=8)
    runner.cache.data.fill_(1.0)
    wait()
    return runner, runner._transfer


def test_what_was_written_before_a_copy_out_is_in_the_copy(
    pools: tuple[ModelRunner, Transfer],
) -> None:
    runner, transfer = pools
    sleep()
    runner.cache.data[:, :, 3] = 2.0
    transfer.copy_out([(3, 0), (4, 5)])
    wait()
    assert (runner.host.data[:, :, 0] == 2.0).all()
    assert (runner.host.data[:, :, 5] == 1.0).all()
    assert not runner.host.data[:, :, [1, 2, 3, 4, 6, 7]].any()


def test_what_is_written_after_a_copy_out_is_not(pools: tuple[ModelRunner, Transfer]) -> None:
    runner, transfer = pools
    sleep()
    transfer.copy_out([(block, block) for block in range(8)])
    runner.cache.data.fill_(3.0)  # the blocks are given away at once
    wait()
    assert (runner.host.data == 1.0).all()
    assert (runner.cache.data == 3.0).all()


def test_a_copy_in_waits_for_the_last_read_and_later_reads_wait_for_it(
    pools: tuple[ModelRunner, Transfer],
) -> None:
    runner, transfer = pools
    runner.host.data.fill_(7.0)
    sleep()
    last_read = runner.cache.data[:, :, 2:4].clone()
    transfer.copy_in([(0, 2), (1, 3)])
    transfer.settle((2, 3))  # what the runner does for the blocks of a batch
    next_read = runner.cache.data[:, :, 2:4].clone()
    wait()
    assert (last_read == 1.0).all()
    assert (next_read == 7.0).all()
    assert (runner.cache.data[:, :, [0, 1, 4, 5, 6, 7]] == 1.0).all()


def test_a_copy_out_follows_a_copy_into_the_same_host_block(
    pools: tuple[ModelRunner, Transfer],
) -> None:
    """Host block 0 is read by a copy in and written by a copy out right behind it."""
    runner, transfer = pools
    runner.host.data.fill_(7.0)
    sleep()
    transfer.copy_in([(0, 6)])
    transfer.copy_out([(1, 0)])
    transfer.settle((6,))
    wait()
    assert (runner.cache.data[:, :, 6] == 7.0).all()
    assert (runner.host.data[:, :, 0] == 1.0).all()


def test_a_batch_reads_what_was_copied_in_just_before() -> None:
    """The runner's own order: swap in, then one token whose logits depend on all that came back."""
    tokens = tuple(model().encode(PROMPTS["A"]))
    runner = ModelRunner(model(), num_blocks=6, block_size=4, host_blocks=2)
    runner.execute([ScheduledRequest("A", tokens, 0, (0, 1), ())])
    here = runner.execute([ScheduledRequest("A", (17,), 7, (0, 1), (Sampling(logprobs=True),))])
    runner.copy_out([(0, 0), (1, 1)])
    runner.cache.data.fill_(0.5)
    sleep()
    runner.copy_in([(0, 5), (1, 3)])
    there = runner.execute([ScheduledRequest("A", (17,), 7, (5, 3), (Sampling(logprobs=True),))])
    assert there[0].token == here[0].token
    assert there[0].logprob == pytest.approx(here[0].logprob, abs=1e-4)
