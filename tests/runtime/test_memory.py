"""A pool sized from memory: the arithmetic with made-up numbers, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kvlab.cli import main
from kvlab.engine.config import MOST_BLOCKS
from kvlab.engine.request import Batch
from kvlab.errors import BadInput
from kvlab.models.config import ModelConfig
from kvlab.models.loading import STORY, load_model
from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import Scenario, load_scenario, scenario_from
from kvlab.runtime import memory
from kvlab.runtime.cuda.budget import graph_bytes, staging_bytes
from kvlab.runtime.largest_step import LargestStep, pass_bytes
from kvlab.runtime.memory import Budget, MemoryPlan, cpu_budget, cuda_budget, settle_blocks
from kvlab.runtime.model_runner import ModelRunner
from kvlab.runtime.transfer import STAGING_BYTES, Staged

CONFIG = ModelConfig.from_folder(STORY)
TOKEN = 2 * 5 * 2 * 32 * 4
GB = 10**9


def plan(size: int, block_size: int = 16) -> MemoryPlan:
    return MemoryPlan(CONFIG, torch.float32, block_size, Budget(size, "by hand"))


def auto(*settings: str) -> Scenario:
    return load_scenario("figure-5", ["engine.num_blocks=auto", "device=cpu", *settings])


def test_a_plan_on_paper() -> None:
    made = plan(1_000_000)
    assert made.bytes_per_token == TOKEN == 2_560
    assert made.bytes_per_block == 40_960
    assert made.blocks == 24  # 983,040 bytes; a 25th would make 1,024,000
    assert made.tokens == 384
    assert made.requests(100) == 3  # 7 blocks each
    assert made.requests(385) == 0
    assert dict(made.lines(100))["requests"] == "of 100 tokens, 7 blocks each: 24 // 7 = 3"


def test_a_plan_never_gives_more_than_an_engine_takes_nor_less_than_nothing() -> None:
    assert plan(10**15).blocks == MOST_BLOCKS
    assert plan(-5).blocks == 0


def test_the_budget_on_the_cpu() -> None:
    made = cpu_budget(10 * GB, 2 * GB, host_pool=GB, share=0.5)
    assert made.bytes == 3 * GB
    assert made.formula == "0.5 x (10.0 GB free - 2.0 GB of weights) - 1.0 GB of host pool"
    assert cpu_budget(GB, 2 * GB).bytes == 0


def test_the_budget_on_cuda() -> None:
    """Of 80 GB 72 may be used: 20 are (weights, others), a pass takes 2 beside them, graphs and
    staging memory 1."""
    made = cuda_budget(80 * GB, 60 * GB, 2 * GB, 4_096, GB, share=0.9)
    assert made.bytes == 49 * GB
    assert made.formula.endswith(
        "80.0 GB - 20.0 GB in use - 2.0 GB for a pass of 4,096 tokens - 1.0 GB for graphs and copies"
    )


def test_cuda_asks_the_device_after_the_profiling_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Loaded:
        config, dtype, device = CONFIG, torch.float32, torch.device("cuda")

    def profile(loaded: object, block_size: int, step: LargestStep) -> int:
        asked.append(f"pass of {step.tokens}")
        return 2 * GB

    def info(device: torch.device) -> tuple[int, int]:
        asked.append("free")
        return 60 * GB, 80 * GB

    monkeypatch.setattr(memory, "pass_bytes", profile)
    monkeypatch.setattr(torch.cuda, "mem_get_info", info)
    loaded: Any = Loaded()
    graphs = graph_bytes(CONFIG, torch.float32, 3)
    block = 16 * TOKEN
    step = LargestStep.of([512, 512])
    made = memory.budget_of(loaded, 16, step, requests=3, host_blocks=5)
    assert made.bytes == 50 * GB - graphs - 2 * 5 * block
    assert asked == ["pass of 1024", "free"]


@pytest.mark.parametrize(
    ("lengths", "limits", "largest"),
    [
        # No limit: every request may be computed from its first token on in one step.
        ([100, 2_000, 300], {}, LargestStep(2, 2_000, 0)),
        ([100] * 30, {}, LargestStep(30, 100, 0)),
        ([5_000], {}, LargestStep(1, 5_000, 0)),
        # After a hit in the prefix cache the rest is computed beside what is there.
        ([100] * 30, {"prefix_cache": True}, LargestStep(30, 99, 1)),
        ([1], {"prefix_cache": True}, LargestStep(1, 1, 0)),
        # A step's limit holds for all requests together, a chunk's for each.
        ([100] * 30, {"step_tokens": 250}, LargestStep(3, 100, 0)),
        ([2_000] * 30, {"step_tokens": 250}, LargestStep(1, 250, 1_750)),
        ([2_000] * 30, {"chunk_tokens": 64}, LargestStep(30, 64, 1_936)),
        ([2_000] * 30, {"chunk_tokens": 64, "step_tokens": 250}, LargestStep(4, 64, 1_936)),
    ],
)
def test_the_largest_step_that_the_settings_allow(
    lengths: list[int], limits: dict[str, Any], largest: LargestStep
) -> None:
    assert LargestStep.of(lengths, **limits) == largest


def test_no_run_has_a_step_with_more_tokens_than_the_largest() -> None:
    """Stand-in tokens; the pool is far too small, so that whole histories are computed again."""
    lengths = [(3 + 5 * number % 17, 4 + number % 5) for number in range(12)]
    for limits in ({}, {"step_tokens": 9}, {"chunk_tokens": 4}, {"prefix_cache": True}):
        raw = {
            "name": "ids",
            "model": None,
            "engine": {"num_blocks": 14, "block_size": 2, **limits},
            "requests": [
                {"id": f"R{number}", "prompt": list(range(1, prompt + 1)), "max_tokens": outputs}
                for number, (prompt, outputs) in enumerate(lengths)
            ],
        }
        made = run_scenario(scenario_from(raw, Path(), "a test"))
        largest = LargestStep.of([sum(one) for one in lengths], **limits)
        for step in made.summary["per_step"]:
            assert sum(step["scheduled"].values()) <= largest.tokens
            assert len(step["scheduled"]) <= len(lengths)
        assert made.summary["preemptions"] > 0


class Device:
    """torch.cuda's accounts: a pass takes `fixed` bytes and `each` for every request."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fixed: int, each: int) -> None:
        self.passes: list[tuple[int, int]] = []
        self.peak = 0

        def execute(runner: ModelRunner, batch: Batch) -> list[Any]:
            self.passes += [(len(batch), sum(len(one.tokens) for one in batch))]
            self.peak = 1_000 + fixed + each * len(batch)
            return []

        monkeypatch.setattr(ModelRunner, "execute", execute)
        fakes = {
            "synchronize": lambda device: None,
            "reset_peak_memory_stats": lambda device: None,
            "memory_allocated": lambda device: 1_000,
            "max_memory_allocated": lambda device: self.peak,
            "empty_cache": lambda: None,
        }
        for name, fake in fakes.items():
            monkeypatch.setattr(torch.cuda, name, fake)


@pytest.mark.parametrize(
    ("step", "passes", "found"),
    [
        (LargestStep(1, 50, 0), [(1, 50)], 70 + 7),
        (LargestStep(9, 50, 6), [(1, 50), (2, 100)], 70 + 9 * 7),
    ],
)
def test_a_pass_of_many_requests_is_measured_on_two(
    step: LargestStep,
    passes: list[tuple[int, int]],
    found: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = Device(monkeypatch, fixed=70, each=7)
    assert pass_bytes(load_model("story", device="cpu"), 16, step) == found
    assert device.passes == passes


def test_a_step_for_which_there_is_no_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    Device(monkeypatch, 0, 0)

    def execute(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.")

    monkeypatch.setattr(ModelRunner, "execute", execute)
    with pytest.raises(BadInput, match=r"may compute 90 tokens at once, .*give engine.step_tokens"):
        pass_bytes(load_model("story", device="cpu"), 16, LargestStep(3, 30, 0))


def test_graphs_are_budgeted_up_to_the_size_that_holds_the_requests() -> None:
    """Of a model of 8 billion parameters in bfloat16: 128 rows of 128,256 logits are 33 MB."""
    config = replace(
        CONFIG,
        vocab_size=128_256,
        hidden_size=4_096,
        intermediate_size=14_336,
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
    )
    taken = [graph_bytes(config, torch.bfloat16, rows) for rows in (1, 16, 17, 24, 128, 500)]
    assert taken[2] == taken[3]
    assert taken[4] == taken[5]
    assert sorted(taken) == taken
    logits = sum((1, 2, 4, 8, 16)) * 128_256 * 2
    joined = 4_096 * (32 + 2 * 8) * 128 * 2 + 4_096 * 2 * 14_336 * 2
    assert taken[1] > logits + joined
    assert taken[4] < 1.5 * GB


def test_staging_memory_is_what_a_transfer_takes() -> None:
    runner = ModelRunner(
        load_model("story", device="cpu"), num_blocks=9, block_size=4, host_blocks=5
    )
    staged = Staged(runner.cache, runner.host, STAGING_BYTES)
    taken = sum(lane.staging.nbytes for lane in staged._lanes)
    assert staging_bytes(runner.cache.bytes_per_block, 5) == taken > 0
    assert staging_bytes(1 << 20, 1_000) == 2 * STAGING_BYTES
    assert staging_bytes(1 << 30, 1_000) == 2 << 30  # never less than a block
    assert staging_bytes(1 << 20, 0) == 0


def test_auto_takes_what_is_needed_or_what_fits() -> None:
    assert settle_blocks(plan(1_000_000), 7) == 7
    assert settle_blocks(plan(1_000_000), 700) == 24
    with pytest.raises(BadInput, match=r"one block needs 40 kB, but 39 kB is left"):
        settle_blocks(plan(39_999), 7)
    with pytest.raises(BadInput, match="but nothing is left"):
        settle_blocks(plan(0), 7)


def test_a_scenario_with_auto_runs_in_what_its_requests_need() -> None:
    """A: 7 + 6 tokens in 4 blocks of 4; B: 8 + 4 in 3."""
    made = run_scenario(auto())
    needed = sum(
        -(-(len(r["prompt"]) + r["max_tokens"]) // 4) for r in made.trace.document["requests"]
    )
    assert made.trace.document["pool"]["num_blocks"] == needed
    assert made.trace.document["scenario"]["engine"]["num_blocks"] == needed
    assert made.summary["memory"]["blocks_needed"] == needed
    assert made.summary["memory"]["bytes_per_block"] == 4 * TOKEN
    assert made.summary["preemptions"] == 0
    assert "memory" not in run_scenario(load_scenario("figure-5", ["device=cpu"])).summary


def test_auto_runs_short_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for four blocks beside weights and host pool: the article's story, in a pool of its size."""
    monkeypatch.setattr(memory, "cpu_budget", lambda *_: Budget(4 * 4 * TOKEN + 5, "four blocks"))
    made = run_scenario(auto())
    assert made.trace.document["pool"]["num_blocks"] == 4
    assert made.summary["preemptions"] == 1
    assert made.summary["memory"]["blocks_that_fit"] == 4


def test_auto_without_a_model_has_what_the_requests_need() -> None:
    """5 + 6 tokens twice (two samples) and 3 + 1: 3 + 3 + 1 blocks of 4, and 2 that stay free."""
    document = {
        "name": "ids",
        "model": None,
        "engine": {"num_blocks": "auto", "block_size": 4, "watermark_blocks": 2},
        "requests": [
            {"id": "A", "prompt": [1, 2, 3, 4, 5], "max_tokens": 6, "n": 2},
            {"id": "B", "prompt": [1, 2, 3], "max_tokens": 1},
        ],
    }
    made = run_scenario(scenario_from(document, Path(), "a test"))
    assert made.trace.document["pool"]["num_blocks"] == 3 + 3 + 1 + 2
    assert made.summary["memory"]["blocks_needed"] == 9
    assert made.summary["preemptions"] == 0


def test_a_watermark_above_what_fits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "cpu_budget", lambda *_: Budget(4 * 4 * TOKEN, "four blocks"))
    with pytest.raises(BadInput, match="watermark_blocks = 4"):
        run_scenario(auto("engine.watermark_blocks=4"))


def test_a_pool_that_does_not_fit_is_refused_before_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 100_000)
    with pytest.raises(BadInput) as caught:
        run_scenario(load_scenario("figure-5", ["device=cpu", "engine.num_blocks=64"]))
    assert str(caught.value) == (
        "a KV pool of 64 blocks and a host pool of 4 needs 696 kB, but 100 kB of memory are free; "
        "give fewer or smaller blocks."
    )


def test_where_the_system_says_nothing_auto_asks_for_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    with pytest.raises(BadInput, match="give a number of blocks"):
        run_scenario(auto())
    run_scenario(load_scenario("figure-5", ["device=cpu"]))


def test_the_command_prints_the_calculation(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: GB)
    options = ["--block-size", "8", "--length", "100", "--share", "0.25", "--dtype", "bfloat16"]
    assert main(["memory", "story", "--device", "cpu", *options]) == 0
    out = capsys.readouterr().out
    assert "2 x 5 layers x 2 KV heads x 32 x 2 bytes = 1,280 bytes" in out
    assert "8 tokens x 1,280 = 10,240 bytes" in out
    assert "0.25 x (1.0 GB free - 4 MB of weights)" in out
    assert "of 100 tokens, 13 blocks each" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such-folder"], "not a folder"),
        (["story", "--length", "2049"], "context of 2,048"),
        (["story", "--dtype", "int4"], "int4"),
    ],
)
def test_what_the_command_refuses(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["memory", *arguments, "--device", "cpu"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
