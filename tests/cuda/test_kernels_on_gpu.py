"""The GPU path where there is a GPU: compiled kernels, captured graphs, copies on streams.

Needs torch, Triton and pytest alone. The checks are those of `kvlab bench gpu`; their expected
values come from plain torch, from float64, or are bytes that the check put there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
import torch

from kvlab.bench.gpu import checks, parts
from kvlab.engine.config import EngineConfig
from kvlab.engine.engine import Engine
from kvlab.engine.request import Request, Sampling
from kvlab.models.llama import DecoderLayer
from kvlab.models.loading import load_model
from kvlab.runtime.model_runner import ModelRunner

pytestmark = pytest.mark.cuda
CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def _no_switches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("KVLAB_ATTENTION", "KVLAB_CUDA_GRAPHS", "TRITON_INTERPRET"):
        monkeypatch.delenv(name, raising=False)
    yield
    torch.cuda.synchronize()


@pytest.mark.parametrize("case", parts.ATTENTION_CASES, ids=str)
def test_attention_equals_the_reference(case: dict[str, Any]) -> None:
    whole = checks.Case(starts=[0, 700, 299, 21, 0], counts=[1, 1, 1, 5, 9], **case)
    found = checks.attention(whole, CUDA)
    assert found["finite"]
    assert found["pool"] == 0
    assert found["splits"] > 1
    assert max(found["reference"], found["exact"]) <= parts.TOLERANCE[whole.dtype]


@pytest.mark.parametrize("case", parts.MODEL_CASES, ids=str)
def test_a_captured_step_equals_the_plain_model(case: dict[str, Any]) -> None:
    found = checks.decode_steps(checks.Model(**case), CUDA)
    assert found["captured"] > 0
    assert (found["tokens"], found["strays"], found["refused"]) == (0, 0, 0)
    assert max(found["logits"], found["kv"]) <= parts.MODEL_TOLERANCE


@pytest.mark.parametrize("graphs", [True, False], ids=["graphs", "launches"])
@pytest.mark.parametrize("method", ["recompute", "swap"])
def test_figure_5_gives_the_tokens_of_the_cpu(method: str, graphs: bool) -> None:
    found = checks.figure_5(method, "cuda", cuda_graphs=None if graphs else False)
    assert found["tokens"] == checks.figure_5(method, "cpu")["tokens"]
    assert found["preemptions"] == 1
    assert found["attention"] == "triton", found["attention_why"]
    assert found["no_graphs"] == ("" if graphs else "switched off")


@pytest.mark.parametrize("staged_blocks", [1, 5, 100])
def test_the_three_orderings_hold_while_the_model_is_busy(staged_blocks: int) -> None:
    found = checks.orderings(CUDA, staged_blocks=staged_blocks)
    assert found == dict.fromkeys(found, True)


def story_engine(runner: ModelRunner, blocks: int, requests: int, **sampling: Any) -> Engine:
    config = EngineConfig(num_blocks=blocks, block_size=4, method="swap", host_blocks=64)
    engine = Engine(config, runner)
    for number in range(requests):
        prompt = tuple((37 * number + 5 * place + 3) % 1024 for place in range(5 + 3 * number))
        request = Request(
            id=f"r{number}",
            prompt=prompt,
            max_tokens=12,
            sampling=Sampling(seed=number, **sampling),
        )
        engine.add_request(request)
    return engine


def outputs(device: str, blocks: int, sampling: dict[str, Any], **options: Any) -> Any:
    loaded = load_model("story", device=device)
    runner = ModelRunner(loaded, num_blocks=blocks, block_size=4, host_blocks=64, **options)
    engine = story_engine(runner, blocks, 7, **sampling)
    preemptions = sum(len(report.preempted) for report in engine.run())
    engine.check_integrity()
    return {id: request.outputs for id, request in engine.requests.items()}, preemptions, runner


@pytest.mark.parametrize(
    "sampling", [{}, {"temperature": 0.7, "top_p": 0.9}], ids=["greedy", "drawn"]
)
def test_batches_that_shrink_and_grow_give_the_tokens_of_the_cpu(sampling: dict[str, Any]) -> None:
    """Padding, swaps in both directions and several captured sizes in one run."""
    expected, _, _ = outputs("cpu", 200, sampling)
    tokens, preemptions, runner = outputs("cuda", 28, sampling)
    assert preemptions > 0
    assert len(runner.decode_steps.captured) > 1
    assert tokens == expected


def test_a_capture_that_fails_is_said_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(torch.cuda, "graph", fail)
    tokens, _, runner = outputs("cuda", 200, {})
    monkeypatch.undo()
    assert runner.decode_steps.why_not.endswith("operation not permitted when stream is capturing")
    assert tokens == outputs("cpu", 200, {})[0]


def test_a_hook_on_the_model_sees_every_pass() -> None:
    loaded = load_model("story", device="cuda")
    runner = ModelRunner(loaded, num_blocks=64, block_size=4, host_blocks=4)
    rows: list[int] = []
    handle = loaded.model.register_forward_pre_hook(
        lambda module, inputs: rows.append(len(inputs[0]))
    )
    reports = story_engine(runner, 64, 3).run()
    handle.remove()
    assert rows == [report.tokens for report in reports]


def test_two_runners_of_one_model_do_not_take_its_weights_twice() -> None:
    loaded = load_model("story", device="cuda")
    for _ in range(2):
        runner = ModelRunner(loaded, num_blocks=64, block_size=4, host_blocks=4)
        story_engine(runner, 64, 2).run()
    attention = cast(DecoderLayer, loaded.model.model.layers[0]).self_attn
    q, k = attention.q_proj.weight, attention.k_proj.weight
    assert q.data_ptr() + q.nbytes == k.data_ptr()
    copies = runner.decode_steps._fused._qkv[0].weight  # type: ignore[attr-defined]
    assert copies.data_ptr() == q.data_ptr()
