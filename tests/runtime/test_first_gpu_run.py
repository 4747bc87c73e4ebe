"""What a run on a GPU asks of torch.cuda, with torch.cuda played by stand-ins: bytes that are locked,
the device that is current, how often a step waits. No GPU has run this; tests/cuda does where one is.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from kvlab.engine.request import Sampling, ScheduledRequest
from kvlab.errors import BadInput
from kvlab.models.loading import LoadedModel, load_model
from kvlab.runtime import model_runner
from kvlab.runtime.host_blocks import HostBlocks
from kvlab.runtime.kv_cache import KVCache
from kvlab.runtime.model_runner import ModelRunner
from kvlab.runtime.sampler import logprob, select
from kvlab.runtime.to_device import on_device

SHAPE: dict[str, Any] = {
    "layers": 3,
    "block_size": 4,
    "kv_heads": 2,
    "head_dim": 8,
    "dtype": torch.bfloat16,
}
BLOCK_BYTES = 3 * 2 * 4 * 2 * 8 * 2


class Cudart:
    """Notes what is locked and unlocked; `status` is what locking answers."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.locked: dict[int, int] = {}
        self.unlocked: list[int] = []

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802
        assert flags == 1
        if not self.status:
            self.locked[address] = size
        return self.status

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        self.unlocked.append(address)
        return 0


@pytest.fixture
def cudart(monkeypatch: pytest.MonkeyPatch) -> Cudart:
    cudart = Cudart()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: cudart)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    return cudart


@pytest.mark.parametrize("blocks", [1, 5, 40, 1_000])
def test_a_pinned_pool_locks_its_own_bytes_and_no_more(blocks: int, cudart: Cudart) -> None:
    pool = HostBlocks(num_blocks=blocks, pinned=True, **SHAPE)
    address = pool.data.data_ptr()
    assert cudart.locked == {address: blocks * BLOCK_BYTES}
    assert pool.data.shape == (3, 2, blocks, 4, 2, 8)
    assert not pool.data.any()
    pool.data.fill_(1)  # it may be written
    assert cudart.unlocked == []
    del pool
    gc.collect()
    assert cudart.unlocked == [address]


def test_a_pool_without_blocks_locks_nothing(cudart: Cudart) -> None:
    assert HostBlocks(num_blocks=0, pinned=True, **SHAPE).num_blocks == 0
    assert cudart.locked == {}


def test_memory_that_cannot_be_locked_is_a_sentence(cudart: Cudart) -> None:
    cudart.status = 2
    with pytest.raises(BadInput, match=r"host pool of 5 blocks .* give fewer host blocks"):
        HostBlocks(num_blocks=5, pinned=True, **SHAPE)
    gc.collect()
    assert cudart.unlocked == []


# The device.


@pytest.fixture(scope="module")
def story() -> LoadedModel:
    return load_model("story", device="cpu")


def test_a_device_is_made_current_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "device", seen.append)
    on_device(torch.device("cuda", 1))
    on_device(torch.device("cpu"))
    assert seen == [torch.device("cuda", 1)]


def test_passes_and_what_prepares_them_run_on_the_models_device_in_any_thread(
    story: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is current belongs to a thread, so it is noted for each."""
    here = threading.local()
    seen: list[str] = []

    @contextmanager
    def current(device: torch.device) -> Iterator[None]:
        here.device, before = device, getattr(here, "device", None)
        yield
        here.device = before

    def noting(name: str, work: Any) -> Any:
        def noted(*arguments: Any, **named: Any) -> Any:
            assert getattr(here, "device", None) == story.device, name
            seen.append(name)
            return work(*arguments, **named)

        return noted

    monkeypatch.setattr(model_runner, "on_device", current)
    for name in ("choose_attention", "choose_decode_steps"):
        monkeypatch.setattr(model_runner, name, noting(name, getattr(model_runner, name)))
    runner = ModelRunner(story, num_blocks=4, block_size=4, host_blocks=2)
    monkeypatch.setattr(runner.attention, "layout", noting("layout", runner.attention.layout))
    steps = SimpleNamespace(run=lambda batch: None, prepare=lambda rows: None)
    steps.run, steps.prepare = noting("run", steps.run), noting("prepare", steps.prepare)
    monkeypatch.setattr(runner, "decode_steps", steps)
    batch = [ScheduledRequest("A", (1, 2, 3), 0, (0,), (Sampling(),))]
    thread = threading.Thread(target=lambda: (runner.warm_up(1), runner.execute(batch)))
    thread.start()
    thread.join()
    assert set(seen) == {"choose_attention", "choose_decode_steps", "layout", "run", "prepare"}


# Waiting.


def test_a_step_fetches_the_rows_that_the_cpu_looks_at_in_one_piece(
    story: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Greedy rows come as tokens alone; what is drawn equals what is drawn from each row by itself."""
    runner = ModelRunner(story, num_blocks=8, block_size=4, host_blocks=0)
    fetched: list[Tensor] = []

    def fetch(rows: Tensor) -> Tensor:
        fetched.append(rows)
        return rows

    monkeypatch.setattr(model_runner, "to_host", fetch)
    logits: list[Tensor] = []
    head = story.model.lm_head.register_forward_hook(lambda *call: logits.append(call[2]))
    drawn = (Sampling(temperature=1.0, seed=1), Sampling(temperature=0.7, top_k=9, seed=2))
    asked: list[tuple[Sampling, ...]] = [
        (Sampling(),),
        drawn,
        (Sampling(logprobs=True),),
        (Sampling(),),
        (Sampling(temperature=1.5, seed=3, logprobs=True),),
    ]
    batch = [
        ScheduledRequest(f"R{at}", (5 + at, 9), 0, (at,), sampling)
        for at, sampling in enumerate(asked)
    ]
    found = runner.execute(batch)
    head.remove()
    [rows] = fetched
    assert rows.equal(logits[0][[1, 2, 4]])
    expected = [
        (f"R{at}", select(logits[0][at], one, 2)) for at, many in enumerate(asked) for one in many
    ]
    assert [(one.id, one.token) for one in found] == expected
    scores = [one.logprob for one in found if one.logprob is not None]
    assert scores == [
        logprob(logits[0][at], token) for at, token in ((2, expected[3][1]), (4, expected[5][1]))
    ]
    fetched.clear()
    runner.execute([ScheduledRequest("R", (5, 9), 0, (0,), (Sampling(),))])
    assert fetched == []


# Kernels that fail.


@pytest.mark.parametrize(
    ("broken", "used", "said"),
    [
        ((), {1: 1, 2: 2, 4: 4}, "on CUDA"),
        ((4,), {1: 1, 2: 2, 4: 2}, "on CUDA, not in 4 splits: no compiler"),
        ((2,), {1: 1, 2: 1, 4: 4}, "on CUDA, not in 2 splits: no compiler"),
        ((2, 4), {1: 1, 2: 1, 4: 1}, "on CUDA, not in 2, 4 splits: no compiler"),
    ],
)
def test_splits_whose_kernels_fail_are_done_with_fewer(
    broken: tuple[int, ...],
    used: dict[int, int],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two KV heads on a device of four processors: one request takes up to four splits."""
    pytest.importorskip("triton")
    from kvlab.runtime.attention.triton_paged import TritonAttention

    cache = KVCache(num_blocks=64, device=torch.device("cpu"), **SHAPE)
    attention = TritonAttention(cache, 4, "on CUDA")
    tried: list[int] = []

    def trial(self: TritonAttention, splits: int) -> str:
        tried.append(splits)
        return "no compiler" if splits in broken else ""

    monkeypatch.setattr(TritonAttention, "_trial", trial)
    assert attention.why_it_fails() == ""
    assert tried == [1, 2, 4]
    assert attention.why == said
    one = torch.zeros(1, dtype=torch.int64)
    for wanted, splits in used.items():
        made = attention.decoding(one, one.int(), one, one, longest=64 * wanted)
        assert made.splits == splits


def test_without_the_plain_kernels_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from kvlab.runtime.attention.triton_paged import TritonAttention

    monkeypatch.setattr(
        TritonAttention, "_trial", lambda self, splits: "no compiler" if splits == 1 else ""
    )
    cache = KVCache(num_blocks=64, device=torch.device("cpu"), **SHAPE)
    assert TritonAttention(cache, 4, "on CUDA").why_it_fails() == "no compiler"
