"""Random workloads on random pools: whatever comes, the invariants hold and every request ends.

`Lab` looks after every step: counted-again references, the free list, host blocks, slot contents,
the fold of the events, outputs that are prefixes of the oracle's. Here the ends are judged too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvlab.engine.actions import SettingChange
from kvlab.engine.config import FREE_ORDERS, METHODS, UNSAFE, VICTIMS, EngineConfig
from kvlab.engine.engine import Action
from kvlab.engine.request import Request
from tests.engine.harness import (
    CellRunner,
    Lab,
    Record,
    act,
    ask,
    fresh_like,
    model_runner,
    oracle_outputs,
)

QUIET = 300
"""Steps without a delivery or an end, after which a run counts as one that never ends."""


@dataclass(frozen=True)
class Workload:
    """What one random run is made of; failures number the calls that break off."""

    config: EngineConfig
    requests: tuple[Request, ...]
    actions: tuple[Action | SettingChange, ...] = ()
    fail_out: tuple[int, ...] = ()
    fail_in: tuple[int, ...] = ()
    fail_block: tuple[int, ...] = ()
    fail_execute: tuple[int, ...] = ()


def limits(least: int, most: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(least, most)


@st.composite
def configs(draw: st.DrawFn) -> EngineConfig:
    num_blocks = draw(st.integers(2, 10))
    return EngineConfig(
        num_blocks=num_blocks,
        block_size=draw(st.integers(1, 4)),
        host_blocks=draw(st.integers(0, 8)),
        method=draw(st.sampled_from(["recompute", "swap", "auto", "pause_only"])),
        victim=draw(st.sampled_from(VICTIMS)),
        victim_seed=draw(st.integers(0, 3)),
        free_order=draw(st.sampled_from([*FREE_ORDERS, "vllm_v1"])),
        prefix_cache=draw(st.booleans()),
        allocation=draw(st.sampled_from(["on_demand", "on_demand", "reserve_max"])),
        step_tokens=draw(limits(1, 12)),
        chunk_tokens=draw(limits(1, 6)),
        max_running=draw(limits(1, 4)),
        watermark_blocks=draw(st.integers(0, min(2, num_blocks - 1))),
        admission=draw(st.sampled_from(["whole_sequence", "first_chunk"])),
        copy_blocks_per_step=draw(limits(1, 3)),
    )


@st.composite
def requests_of(draw: st.DrawFn, config: EngineConfig) -> tuple[Request, ...]:
    """Up to five requests, whose prompts often start alike."""
    made = []
    forks = 1 if config.allocation == "reserve_max" else 3
    for number in range(draw(st.integers(1, 5))):
        alike = draw(st.integers(0, 12))
        own = draw(st.integers(0 if alike else 1, 6))
        made.append(
            ask(
                "ABCDE"[number],
                [*range(alike), *(100 + number * 10 + at for at in range(own))],
                draw(st.integers(1, 8)),
                priority=draw(st.integers(0, 2)),
                arrival_step=draw(st.integers(0, 6)),
                n=draw(st.integers(1, forks)),
                stop=draw(st.sampled_from([(), (), tuple(range(0, 256, 7))])),
                seed=draw(st.integers(0, 2)),
                logprobs=draw(st.booleans()),
            )
        )
    return tuple(made)


def changes() -> st.SearchStrategy[SettingChange]:
    """A setting that has another value from some step on."""
    values = {"method": METHODS, "victim": VICTIMS, "free_order": FREE_ORDERS}
    return st.sampled_from([(name, value) for name in values for value in values[name]]).flatmap(
        lambda pair: st.builds(
            SettingChange, step=st.integers(1, 14), setting=st.just(pair[0]), value=st.just(pair[1])
        )
    )


@st.composite
def workloads(draw: st.DrawFn, failures: bool = True) -> Workload:
    config = draw(configs())
    requests = draw(requests_of(config))
    action = st.builds(
        act,
        st.integers(1, 14),
        st.sampled_from(["abort", "preempt", "preempt", "pause", "resume", "next_victim"]),
        st.sampled_from([request.id for request in requests]),
        st.sampled_from([None, "recompute", "swap", "auto"]),
    )
    calls = st.lists(st.integers(0, 6), max_size=2).map(tuple)
    actions = tuple(draw(st.lists(action | changes(), max_size=6)))
    if not failures:
        return Workload(config, requests, actions)
    return Workload(
        config,
        requests,
        actions,
        draw(calls),
        draw(calls),
        draw(st.sampled_from([(), (), (), (0,), (1,)])),
        draw(st.sampled_from([(), (), (), (), (2,), (5,)])),
    )


def failing_cells(work: Workload) -> CellRunner:
    return CellRunner(
        work.config.block_size,
        fail_out=work.fail_out,
        fail_in=work.fail_in,
        fail_block=work.fail_block,
        fail_execute=work.fail_execute,
    )


def run_workload(work: Workload, runner: Any = None) -> tuple[Record, dict[str, list[int]]]:
    """Run to the end, looking after every step; also what a pool that never runs out gives."""
    runner = runner or failing_cells(work)
    expected = oracle_outputs(work.config, work.requests, fresh_like(runner, work.config))
    return run_to_the_end(work, runner, expected), expected


def run_to_the_end(
    work: Workload, runner: Any, expected: dict[str, list[int]] | None = None
) -> Record:
    lab = Lab(work.config, work.requests, work.actions, runner, expected=expected)
    last_action = max([action.step for action in work.actions], default=0)
    quiet_since = 0
    while lab.engine.has_work or not lab.record.reports:
        report = lab.step()
        if report.emitted or report.finished or report.step <= last_action + 7:
            quiet_since = report.step
        assert report.step - quiet_since < QUIET, "the run does not end"
    return lab.record


def judge_ends(work: Workload, record: Record, expected: dict[str, list[int]]) -> None:
    """Every request ended, for a reason that there was, with the oracle's tokens."""
    stalls = {stall.why for report in record.reports for stall in report.stalled}
    held_up = work.config.method == "pause_only" or any(
        action.value == "pause_only"
        if isinstance(action, SettingChange)
        else action.action == "pause"
        for action in work.actions
    )
    for id, request in record.engine.requests.items():
        reason = request.finish_reason
        assert reason is not None, f"{id} never ended"
        if reason in ("length", "stop"):
            assert request.outputs == expected[id]
            assert len(request.logprobs) == request.sampling.logprobs * len(request.outputs)
        elif reason == "rejected":
            assert not request.outputs
            assert request.message
            assert "needs" in request.message
        elif reason == "kv_capacity":
            needs = work.config.blocks_for(len(request.history))
            alone = needs > work.config.num_blocks
            assert alone or held_up or "none_reclaimable" in stalls, f"{id}: {request.message}"
        elif reason == "error":
            assert work.fail_block or work.fail_execute
        else:
            assert reason == "aborted"
            assert any(
                isinstance(action, Action) and action.action == "abort" for action in work.actions
            )
    state = record.states[-1]
    assert (state.free, state.host_free) == (work.config.num_blocks, work.config.host_blocks)


def profile(examples: int) -> settings:
    """The same examples in every run."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@profile(150)
@given(workloads())
def test_random_workloads_end_with_the_oracles_tokens(work: Workload) -> None:
    judge_ends(work, *run_workload(work))


@profile(10)
@given(workloads(failures=False))
def test_random_workloads_on_the_model(work: Workload) -> None:
    """The same with bytes and tokens: fewer, since each takes longer."""
    judge_ends(work, *run_workload(work, model_runner(work.config)))


def with_broken_orderings(work: Workload, unsafe: tuple[str, ...]) -> Workload:
    config = replace(work.config, method="swap", host_blocks=8, unsafe=unsafe)
    return replace(work, config=config)


@profile(150)
@given(
    st.builds(
        with_broken_orderings,
        workloads(),
        st.lists(st.sampled_from(UNSAFE), min_size=1, unique=True).map(tuple),
    )
)
def test_broken_orderings_damage_values_and_nothing_else(work: Workload) -> None:
    """Whatever the unsafe switches break: the accounts, the copies' rate and the folded events do
    not; every request ends and every block comes back."""
    record = run_to_the_end(work, failing_cells(work))
    assert all(request.finish_reason for request in record.engine.requests.values())
    state = record.states[-1]
    assert (state.free, state.host_free) == (work.config.num_blocks, work.config.host_blocks)


@pytest.mark.long
@profile(2_000)
@given(workloads())
def test_many_random_workloads(work: Workload) -> None:
    judge_ends(work, *run_workload(work))
