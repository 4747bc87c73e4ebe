"""The tab's runner beside torch: the same scenario gives the same run.

Torch's own run is the expected value: its tokens, events and summary to the last key, its logits
within 1e-3, the norms of what it stores within 1e-4. The engine between the two is the same.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from kvlab.engine.cost_model import MODELLED, CostModel
from kvlab.engine.request import Sampling, ScheduledRequest
from kvlab.export.tab.ground import ground_in_tab
from kvlab.export.tab.runner import TabRunner
from kvlab.models.loading import LoadedModel, load_model
from kvlab.runs.run import RunInSteps, run_scenario
from kvlab.runs.scenario import Scenario, load_scenario, scenario_from, scenario_names
from kvlab.runtime.model_runner import ModelRunner
from kvlab.trace.document import Trace
from tests.tab.tabs import Tab

LOGITS, NORMS = 1e-3, 1e-4
MEASURED = (
    *("seconds", "scheduling_seconds", "goodput_per_second", "logprobs", "costs", "memory"),
    "device",
)
"""Keys of a summary that differ from machine to machine, or are compared apart."""


@pytest.fixture(scope="module")
def story() -> LoadedModel:
    return load_model("story", device="cpu")


def trace_in_tab(scenario: Scenario, tab: Tab) -> Trace:
    going = RunInSteps(ground_in_tab(scenario, tab.call))
    for _ in going:
        pass
    tab.call("end", "[]")
    return going.run().trace


def without_measured(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_measured(of) for key, of in value.items() if key not in MEASURED}
    return [without_measured(of) for of in value] if isinstance(value, list) else value


def assert_same_run(scenario: Scenario, tab: Tab, story: LoadedModel) -> Trace:
    theirs = run_scenario(scenario, model=story).trace
    ours = trace_in_tab(scenario, tab)
    assert ours.events == theirs.events
    assert without_measured(ours.summary) == without_measured(theirs.summary)
    for id, request in theirs.summary["requests"].items():
        got = ours.summary["requests"][id]["logprobs"]
        assert got == pytest.approx(request["logprobs"], abs=LOGITS)
    assert len(ours.document["measurements"]) == len(theirs.document["measurements"])
    for got, wanted in zip(
        ours.document["measurements"], theirs.document["measurements"], strict=True
    ):
        assert got.keys() == wanted.keys()
        assert (got["event"], got["block"]) == (wanted["event"], wanted["block"])
        for key in ("k_norm", "v_norm"):
            assert got.get(key) == pytest.approx(wanted.get(key), abs=NORMS)
        for largest in got.get("max_diff", {}).values():
            assert largest < 2e-5
    return ours


@pytest.fixture
def modelled_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Method auto decides by the same rates on both: what is measured differs by nature."""

    def costs(self: object) -> CostModel:
        return MODELLED

    monkeypatch.setattr(TabRunner, "costs", costs)
    monkeypatch.setattr(ModelRunner, "costs", costs)


METHODS = ("as shipped", "recompute", "swap", "auto")


def shipped(name: str, method: str) -> Scenario:
    return load_scenario(name, [] if method == "as shipped" else [f"engine.method={method}"])


@pytest.mark.usefixtures("modelled_costs")
@pytest.mark.parametrize("tab", ["plain"], indirect=True)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", scenario_names())
def test_shipped_scenarios(name: str, method: str, tab: Tab, story: LoadedModel) -> None:
    assert_same_run(shipped(name, method), tab, story)


@pytest.mark.browser
@pytest.mark.usefixtures("modelled_costs")
@pytest.mark.parametrize("tab", ["card"], indirect=True)
@pytest.mark.parametrize("name", ["figure-4", "figure-5", "shared-stays", "unsafe-reuse"])
def test_shipped_scenarios_on_a_card(name: str, tab: Tab, story: LoadedModel) -> None:
    assert_same_run(shipped(name, "as shipped"), tab, story)


@pytest.mark.full
@pytest.mark.browser
@pytest.mark.usefixtures("modelled_costs")
@pytest.mark.parametrize("tab", ["card"], indirect=True)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", scenario_names())
def test_all_shipped_scenarios_on_a_card(
    name: str, method: str, tab: Tab, story: LoadedModel
) -> None:
    assert_same_run(shipped(name, method), tab, story)


def random_scenario(seed: int) -> Scenario:
    """A small workload under pressure, with whatever goes together."""
    draw = random.Random(seed)
    size = draw.choice([1, 2, 3, 4, 8])
    requests: list[dict[str, Any]] = []
    reserved = draw.random() < 0.1
    alike = [draw.randrange(1, 1024) for _ in range(12)]
    for at in range(draw.randint(1, 5)):
        prompt: Any = alike[: draw.randint(0, 12)]
        prompt += [draw.randrange(1, 1024) for _ in range(draw.randint(1, 8))]
        if draw.random() < 0.3:
            prompt = draw.choice(["Ana and Ben", "Leo waits in the hall, 12 days!", "Émile’s 日"])
        request: dict[str, Any] = {"id": "ABCDE"[at], "prompt": prompt}
        request["max_tokens"] = draw.randint(1, 12)
        request["arrival_step"] = draw.choice([0, 0, 1, 4])
        request["priority"] = draw.randint(-1, 1)
        request["logprobs"] = draw.random() < 0.5
        request["ignore_eos"] = draw.random() < 0.5
        if draw.random() < 0.5:
            request["temperature"] = draw.choice([0.3, 0.8, 1.5])
            request["top_p"] = draw.choice([1.0, 0.9, 0.5])
            request["top_k"] = draw.choice([0, 5, 40])
            request["seed"] = draw.randrange(1000)
        if draw.random() < 0.3:
            request["stop"] = draw.choice([["e"], [" the", "."], [14, "and"]])
        if draw.random() < 0.2 and not reserved:
            request["n"] = draw.randint(2, 3)
        requests.append(request)
    longest = max(
        (len(r["prompt"]) + r["max_tokens"]) * r.get("n", 1) // size + 2 for r in requests
    )
    engine = {
        "num_blocks": longest + draw.randint(0, longest),
        "block_size": size,
        "host_blocks": draw.choice([0, 4, 40]),
        "method": draw.choice(["recompute", "swap", "auto"]),
        "victim": draw.choice(["newest", "oldest", "least_computed", "most_reclaimable"]),
        "prefix_cache": draw.random() < 0.4,
        "allocation": "reserve_max" if reserved else "on_demand",
        "step_tokens": draw.choice([None, None, 4, 16]),
        "chunk_tokens": draw.choice([None, None, 3, 8]),
        "copy_blocks_per_step": draw.choice([None, None, 1, 2]),
    }
    raw = {"name": f"random-{seed}", "device": "cpu", "engine": engine, "requests": requests}
    return scenario_from(raw, Path(), "random")


@pytest.mark.browser
@pytest.mark.usefixtures("modelled_costs")
@pytest.mark.parametrize("tab", ["card"], indirect=True)
def test_some_random_scenarios_on_a_card(tab: Tab, story: LoadedModel) -> None:
    """A card in software takes seconds for one; the hundred are under `full`."""
    for seed in range(4):
        assert_same_run(random_scenario(seed), tab, story)


@pytest.mark.full
@pytest.mark.browser
@pytest.mark.usefixtures("modelled_costs")
@pytest.mark.parametrize("tab", ["card"], indirect=True)
def test_a_hundred_random_scenarios_on_a_card(tab: Tab, story: LoadedModel) -> None:
    for seed in range(100):
        assert_same_run(random_scenario(seed), tab, story)


@pytest.mark.long
@pytest.mark.usefixtures("modelled_costs")
@pytest.mark.parametrize("tab", ["plain"], indirect=True)
def test_a_hundred_random_scenarios(tab: Tab, story: LoadedModel) -> None:
    traces = [assert_same_run(random_scenario(seed), tab, story) for seed in range(100)]
    kinds = {event["kind"] for trace in traces for event in trace.events}
    assert {"preempted", "swap_in_finished", "block_shared"} <= kinds


def test_logits_and_stored_values_of_a_packed_batch(tab: Tab, story: LoadedModel) -> None:
    """Two requests, one of them in two chunks, in scattered blocks; then one token each."""
    draw = random.Random(1)
    a = [draw.randrange(1024) for _ in range(100)]
    b = [draw.randrange(1024) for _ in range(7)]
    table = [*range(1, 53, 2)]
    steps = [
        [share("A", a[:30], 0, table), share("B", b, 0, [0, 2])],
        [share("A", a[30:], 30, table), share("B", [5], 7, [0, 2])],
        [share("A", [9], 100, table), share("B", [6], 8, [0, 2, 4])],
    ]
    ours = TabRunner(tab.call)
    ours.begin(num_blocks=60, block_size=4, host_blocks=0)
    theirs = ModelRunner(story, num_blocks=60, block_size=4, host_blocks=0)
    for batch in steps:
        wanted = torch_logits(theirs, batch)
        got = ours.ask(
            "logits", [{"tokens": s.tokens, "start": s.start, "table": s.table} for s in batch]
        )
        assert float((torch.tensor(got) - wanted).abs().max()) < LOGITS
    for block, slot in ((1, 0), (49, 3), (51, 0), (2, 3), (4, 0)):
        wanted = theirs.cache.block(block)[:, :, slot].flatten()
        stored = torch.tensor(ours.ask("read", block, slot))
        assert float(stored.abs().max()) > 0.1
        assert float((stored - wanted).abs().max()) < NORMS


def share(id: str, tokens: Sequence[int], start: int, table: Sequence[int]) -> ScheduledRequest:
    return ScheduledRequest(id, tuple(tokens), start, tuple(table), (Sampling(),))


def torch_logits(runner: ModelRunner, batch: list[ScheduledRequest]) -> torch.Tensor:
    seen: list[torch.Tensor] = []
    handle = runner.loaded.model.lm_head.register_forward_hook(
        lambda module, inputs, output: seen.append(output.clone())
    )
    try:
        runner.execute(batch)
    finally:
        handle.remove()
    return seen[0]


@pytest.mark.parametrize("tab", ["plain"], indirect=True)
def test_texts_and_tokens(tab: Tab, story: LoadedModel) -> None:
    """The tokenizer beside the `tokenizers` library's, on what a page may be given."""
    draw = random.Random(2)
    runner = TabRunner(tab.call)
    signs = [
        *("a", "e", " ", "  ", "\n", "\t", "é", "日", "1", "'s", "'ll", "'S", "!", "the ", "Ana"),
        *("\x00", "\x85", "\ufeff", "\xa0", "\u0300", "\u200b", "\u2028", "<|end|>", "<|", "😀"),
    ]
    for _ in range(400):
        text = "".join(draw.choice(signs) for _ in range(draw.randrange(30)))
        assert runner.encode(text) == story.encode(text), ascii(text)
        tokens = [draw.randrange(1024) for _ in range(draw.randrange(12))]
        assert story.tokenizer is not None
        assert runner.decode(tokens) == story.tokenizer.decode(tokens)
        for token in tokens:
            assert runner.token_text(token) == story.token_text(token)


def test_rates_are_of_this_machine(tab: Tab) -> None:
    runner = TabRunner(tab.call)
    runner.begin(num_blocks=2, block_size=4, host_blocks=0)
    costs = runner.costs()
    assert 0 < costs.recompute_seconds(100) < 60
    assert json.dumps(costs.as_json())
