"""One scenario, run to its end on a real engine, recorded."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kvlab.engine.config import MOST_BLOCKS, MOST_SLOTS
from kvlab.engine.engine import Engine
from kvlab.engine.report import StepReport
from kvlab.engine.runner import Runner
from kvlab.engine.stand_in import StandInRunner
from kvlab.errors import BadInput
from kvlab.runs.scenario import Scenario, load_scenario
from kvlab.runtime.clock import StepClock, StepSeconds
from kvlab.trace.document import Trace
from kvlab.trace.recorder import Recorder, ValueProbe

if TYPE_CHECKING:
    from kvlab.models.loading import LoadedModel

MOST_PROBED_SLOTS = 4_096
"""Values are looked at in pools of up to so many slots: each look reads a block back."""


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A finished run. `runner` still has the pools as the run left them."""

    scenario: Scenario
    trace: Trace
    engine: Engine
    runner: Runner

    @property
    def summary(self) -> dict[str, Any]:
        return self.trace.summary

    def __repr__(self) -> str:
        return repr(self.trace).replace("Trace", "Run", 1)


@dataclass(frozen=True, slots=True)
class Ground:
    """What a scenario runs on, and how a trace describes it. `clock` splits the seconds of a step;
    `warm_up` does what happens once, for steps of up to so many requests. `memory`: how `num_blocks:
    auto` was settled in `scenario`, None where the number was given."""

    scenario: Scenario
    runner: Runner
    probe: ValueProbe | None
    encode: Callable[[str], list[int]]
    token_text: Callable[[int], str]
    run: dict[str, Any]
    model: dict[str, Any]
    bytes_per_block: int
    threads: Callable[[], AbstractContextManager[None]]
    clock: StepClock
    warm_up: Callable[[int], None]
    memory: dict[str, Any] | None = None


def run_scenario(
    scenario: Scenario,
    on_step: Callable[[StepReport], None] | None = None,
    model: LoadedModel | None = None,
) -> Run:
    """Run to the end and record. `model`, already loaded, saves loading it again.

    Raises BadInput for what cannot run: a missing model, a device that is not there, a prompt that
    does not fit the model, too little memory for the pools.
    """
    ground = stand_ins(scenario) if scenario.model is None else with_model(scenario, model)
    return run_on(ground, on_step)


def run_on(ground: Ground, on_step: Callable[[StepReport], None] | None = None) -> Run:
    """Run to the end on that ground."""
    going = RunInSteps(ground)
    for report in going:
        if on_step:
            on_step(report)
    return going.run()


class ToldClock(StepClock):
    """Not the time that goes by: each step takes the next of the seconds given, the last ones none."""

    def __init__(self, seconds: Sequence[float]) -> None:
        super().__init__()
        self._told = iter(seconds)

    def stop(self) -> StepSeconds:
        return StepSeconds(next(self._told, 0.0), 0.0)


def run_told(
    scenario: Scenario,
    seconds: Sequence[float],
    on_step: Callable[[StepReport], None] | None = None,
) -> Run:
    """Scheduling alone, to the end, whose steps take the `seconds` that somebody predicted."""
    return run_on(replace(stand_ins(scenario), clock=ToldClock(seconds)), on_step)


class RunInSteps:
    """A run on its ground, one step for each turn of the loop over it; then `run()` is what was
    recorded. Whoever drives it may do other things between two steps, or leave it there."""

    def __init__(self, ground: Ground) -> None:
        scenario = ground.scenario
        self.ground = ground
        self.engine = Engine(scenario.engine, ground.runner)
        requests = scenario.requests(ground.encode)
        self._rows = sum(request.n for request in requests)
        for request in requests:
            self.engine.add_request(request)
        for action in scenario.actions:
            self.engine.add_action(action)
        self._recorder = Recorder(self.engine, ground.probe)

    def __iter__(self) -> Iterator[StepReport]:
        while self.engine.has_work or not self.engine.steps:
            yield self.step()

    def step(self) -> StepReport:
        """Make one step and record it."""
        with self.ground.threads():
            if not self.engine.steps:
                self.ground.warm_up(self._rows)
            self.ground.clock.start()
            report = self.engine.step(end_if_stuck=True)
            self._recorder.record(report, *self.ground.clock.stop())
        return report

    def run(self) -> Run:
        """The run as far as it has got."""
        ground, document = self.ground, self.ground.scenario.document
        trace = self._recorder.trace(
            document,
            ground.run | now(),
            ground.model,
            ground.token_text,
            ground.bytes_per_block,
        )
        if ground.memory is not None:
            trace.summary["memory"] = ground.memory
        return Run(ground.scenario, trace, self.engine, ground.runner)


def now() -> dict[str, str]:
    """When a run was made, for its trace: local time, to the minute."""
    return {"made": time.strftime("%Y-%m-%d %H:%M")}


def stand_ins(scenario: Scenario) -> Ground:
    """Scheduling alone: no model, no tensors."""

    def encode(text: str) -> list[int]:
        raise BadInput(
            f"scenario {scenario.name}: model: null has no tokenizer for the prompt {text[:40]!r}; "
            "give token ids."
        )

    memory = None
    if scenario.sized_at_run:
        scenario, memory = with_enough_blocks(scenario, encode, StandInRunner.context)
    return Ground(
        scenario=scenario,
        runner=StandInRunner(),
        probe=None,
        encode=encode,
        token_text=lambda token: f"[{token}]",
        run={"device": "none", "device_name": "none", "dtype": "none", "torch": None},
        model={"name": None, "stand_in": True, "context": StandInRunner.context}
        | dict.fromkeys(("layers", "kv_heads", "head_dim", "kv_bytes_per_token"), 0),
        bytes_per_block=0,
        threads=nullcontext,
        clock=StepClock(),
        warm_up=lambda rows: None,
        memory=memory,
    )


def with_enough_blocks(
    scenario: Scenario, encode: Callable[[str], list[int]], context: int
) -> tuple[Scenario, dict[str, Any]]:
    """`num_blocks: auto` where memory is no limit: what the requests could ever hold."""
    needed = blocks_needed(scenario, encode, context)
    memory = {"blocks_needed": needed, "formula": "no model, no memory: what the requests need"}
    return scenario.with_blocks(needed), memory


def blocks_needed(scenario: Scenario, encode: Callable[[str], list[int]], context: int) -> int:
    """Blocks with which no request ever runs short: each sample grows to its last token, or as far as
    the model's context, and admissions leave the watermark."""
    engine = scenario.document["engine"]
    size = engine["block_size"]
    each = (
        request.n * -(-min(len(request.prompt) + request.max_tokens, context) // size)
        for request in scenario.requests(encode)
    )
    return min(sum(each) + engine["watermark_blocks"], MOST_BLOCKS, MOST_SLOTS // size)


def with_blocks_that_fit(
    scenario: Scenario, loaded: LoadedModel
) -> tuple[Scenario, dict[str, Any]]:
    """`num_blocks: auto` beside a model: what fits in memory, but no more than the requests could
    ever hold. Raises BadInput when not one block fits."""
    from kvlab.runtime.largest_step import LargestStep
    from kvlab.runtime.memory import MemoryPlan, budget_of, settle_blocks

    engine, config = scenario.document["engine"], loaded.config
    lengths = [
        min(len(request.prompt) + request.max_tokens, config.max_positions)
        for request in scenario.requests(loaded.encode)
        for _ in range(request.n)
    ]
    limits = {name: engine[name] for name in ("step_tokens", "chunk_tokens", "prefix_cache")}
    budget = budget_of(
        loaded,
        engine["block_size"],
        LargestStep.of(lengths, **limits),
        requests=len(lengths),
        host_blocks=engine["host_blocks"],
    )
    plan = MemoryPlan(config, loaded.dtype, engine["block_size"], budget)
    needed = blocks_needed(scenario, loaded.encode, config.max_positions)
    settled = scenario.with_blocks(settle_blocks(plan, needed))
    return settled, plan.as_json() | {"blocks_needed": needed}


def with_model(scenario: Scenario, loaded: LoadedModel | None) -> Ground:
    """A model with its KV pools on the scenario's device."""
    import torch  # late: replaying and scheduling need none of it

    from kvlab.models.loading import load_model
    from kvlab.runtime.memory import refuse_large_pools
    from kvlab.runtime.model_runner import ModelRunner
    from kvlab.runtime.probe import CacheProbe
    from kvlab.runtime.threads import few_threads

    document = scenario.document
    if loaded is None:
        loaded = load_model(
            str(scenario.model),
            device=document["device"],
            dtype=document["dtype"],
            base=scenario.base,
        )
    memory = None
    if scenario.sized_at_run:
        scenario, memory = with_blocks_that_fit(scenario, loaded)
    settings = scenario.engine
    refuse_large_pools(
        loaded.config,
        loaded.dtype,
        loaded.device,
        num_blocks=settings.num_blocks,
        block_size=settings.block_size,
        host_blocks=settings.host_blocks,
    )
    runner = ModelRunner(
        loaded,
        num_blocks=settings.num_blocks,
        block_size=settings.block_size,
        host_blocks=settings.host_blocks,
        keeps_overwritten="write_before_copy_out" in settings.unsafe,
    )
    small = settings.num_blocks * settings.block_size <= MOST_PROBED_SLOTS
    config = loaded.config
    device = loaded.device.type
    return Ground(
        scenario=scenario,
        runner=runner,
        probe=CacheProbe(runner) if small else None,
        encode=loaded.encode,
        token_text=loaded.token_text,
        run={
            "device": device,
            "device_name": torch.cuda.get_device_name(loaded.device)
            if device == "cuda"
            else cpu_name(),
            "dtype": document["dtype"],
            "torch": torch.__version__,
        },
        model={
            "name": loaded.name,
            "stand_in": False,
            "layers": config.num_layers,
            "kv_heads": config.num_kv_heads,
            "head_dim": config.head_dim,
            "context": config.max_positions,
            "kv_bytes_per_token": config.kv_values_per_token * loaded.dtype.itemsize,
        },
        bytes_per_block=runner.cache.bytes_per_block,
        threads=partial(few_threads, config),
        clock=runner.clock,
        warm_up=runner.warm_up,
        memory=memory,
    )


def cpu_name() -> str:
    """What the platform calls its processor."""
    return platform.processor() or platform.machine()


def run_lesson(
    name: str,
    settings: Sequence[str] = (),
    model: LoadedModel | None = None,
    on_step: Callable[[StepReport], None] | None = None,
) -> Run:
    """Run a shipped scenario with `PATH=VALUE` settings. Raises BadInput for what cannot run."""
    return run_scenario(load_scenario(name, settings), on_step, model)


def load_for(scenario: Scenario) -> LoadedModel | None:
    """The scenario's model, to be used for many runs; None where it names none."""
    if scenario.model is None:
        return None
    from kvlab.models.loading import load_model  # late: brings torch

    document = scenario.document
    return load_model(
        scenario.model,
        device=document["device"],
        dtype=document["dtype"],
        base=scenario.base,
    )
