"""Runs small workloads on the engine and looks at every step with eyes of its own.

Nothing here trusts `Engine.check_integrity`: references are counted again from the tables and the
copies, the free list is compared with that count, the events are folded as a trace's reader would,
and `CellRunner` keeps what lies in every slot, so that a block used too early or restored wrongly
changes the next token and the content check.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from kvlab.engine.actions import Change
from kvlab.engine.config import EngineConfig
from kvlab.engine.engine import Action, Engine
from kvlab.engine.events import Event, TokenDelivered
from kvlab.engine.mover import CopyError, Pairs, Runner
from kvlab.engine.report import Snapshot, StepReport, Victim
from kvlab.engine.request import Batch, Request, RequestState, Sampled, Sampling
from kvlab.engine.stand_in import StandInRunner
from kvlab.trace import replay

if TYPE_CHECKING:
    from kvlab.runtime.model_runner import ModelRunner

SAMPLING = ("temperature", "top_p", "top_k", "seed", "logprobs")
Cell = tuple[int, int]
"""What a slot holds: (position, token)."""


def ask(id: str, prompt: int | Sequence[int], max_tokens: int, **options: Any) -> Request:
    """A request; a prompt given as a length gets tokens of its own, different for each id.

    Options are those of Request and of Sampling together.
    """
    tokens = own_tokens(id, prompt) if isinstance(prompt, int) else tuple(prompt)
    sampling = {key: options.pop(key) for key in SAMPLING if key in options}
    return Request(
        id=id, prompt=tokens, max_tokens=max_tokens, sampling=Sampling(**sampling), **options
    )


def own_tokens(id: str, length: int) -> tuple[int, ...]:
    """`length` token ids below 256 that no other id starts with."""
    return tuple(zlib.crc32(f"{id}:{at}".encode()) % 256 for at in range(length))


def again(request: Request) -> Request:
    """A fresh request with the same content."""
    return Request(
        id=request.id,
        prompt=request.prompt,
        max_tokens=request.max_tokens,
        priority=request.priority,
        arrival_step=request.arrival_step,
        sampling=request.sampling,
        n=request.n,
        stop=request.stop,
        ignore_eos=request.ignore_eos,
    )


class CellRunner(StandInRunner):
    """Slots hold (position, token), and the next token depends on all that a request reads.

    A wrong table, a block reused too early, a copy left out: each changes an output. `fail_out` and
    `fail_in` number the calls of copy_out and copy_in (from 0) that break off; `fail_block` those of
    copy_block; `fail_execute` the executions that raise `error`.
    """

    context = 10_000

    def __init__(
        self,
        block_size: int,
        *,
        fail_out: Iterable[int] = (),
        fail_in: Iterable[int] = (),
        fail_block: Iterable[int] = (),
        fail_execute: Iterable[int] = (),
        error: Exception | None = None,
        context: int | None = None,
        eos_ids: Iterable[int] = (),
    ) -> None:
        self.size = block_size
        self.gpu: dict[int, list[Cell | None]] = {}
        self.host: dict[int, list[Cell | None]] = {}
        self.fails = {
            "out": set(fail_out),
            "in": set(fail_in),
            "block": set(fail_block),
            "execute": set(fail_execute),
        }
        self.calls: Counter[str] = Counter()
        self.error = error or RuntimeError("the device fell over")
        if context is not None:
            self.context = context
        self.eos_ids = frozenset(eos_ids)

    def _called(self, what: str) -> bool:
        number = self.calls[what]
        self.calls[what] += 1
        return number in self.fails[what]

    def block(self, block: int) -> list[Cell | None]:
        return self.gpu.setdefault(block, [None] * self.size)

    def read(self, table: Sequence[int], end: int) -> list[Cell | None]:
        """The cells of positions 0 .. end - 1 through a block table."""
        return [self.block(table[at // self.size])[at % self.size] for at in range(end)]

    def execute(self, batch: Batch) -> list[Sampled]:
        if self._called("execute"):
            raise self.error
        written: set[tuple[int, int]] = set()
        for scheduled in batch:
            for at, token in enumerate(scheduled.tokens, scheduled.start):
                slot = (scheduled.table[at // self.size], at % self.size)
                assert slot not in written, f"slot {slot} is written twice in one step"
                written.add(slot)
                self.block(slot[0])[slot[1]] = (at, token)
        chosen = []
        for scheduled in batch:
            cells = self.read(scheduled.table, scheduled.end) if scheduled.sampling else []
            for sampling in scheduled.sampling:
                token = zlib.crc32(repr((cells, sampling.seed)).encode()) % 256
                score = -1.0 - token / 256 if sampling.logprobs else None
                chosen.append(Sampled(scheduled.id, token, score))
        return chosen

    def fingerprints(self, blocks: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
        return [
            (zlib.crc32(repr(self.block(block)[:length]).encode()),) for block, length in blocks
        ]

    def copy_out(self, pairs: Pairs, *, before_last_write: bool = False) -> None:
        if self._called("out"):
            raise CopyError("the link broke")
        for block, host in pairs:
            self.host[host] = list(self.block(block))

    def copy_in(self, pairs: Pairs) -> None:
        if self._called("in"):
            raise CopyError("the link broke")
        for host, block in pairs:
            self.gpu[block] = list(self.host[host])

    def copy_block(self, source: int, target: int) -> None:
        if self._called("block"):
            raise CopyError("the link broke")
        self.gpu[target] = list(self.block(source))


@dataclass
class Record:
    """A run so far: the engine, and after each step its report and its snapshot."""

    engine: Engine
    runner: Any
    reports: list[StepReport] = field(default_factory=list)
    states: list[Snapshot] = field(default_factory=list)

    @property
    def steps(self) -> int:
        return len(self.reports)

    @property
    def free(self) -> list[int]:
        return [state.free for state in self.states]

    @property
    def victims(self) -> list[tuple[int, Victim]]:
        """(step, victim) of every preemption."""
        return [(report.step, victim) for report in self.reports for victim in report.victims]

    @property
    def preempted(self) -> list[tuple[int, str, str]]:
        """(step, id, method) of every preemption."""
        return [(step, victim.id, victim.method) for step, victim in self.victims]

    @property
    def processed(self) -> int:
        return sum(report.tokens for report in self.reports)

    @property
    def recomputed(self) -> int:
        return sum(report.tokens_again for report in self.reports)

    def report(self, step: int) -> StepReport:
        return self.reports[step - 1]

    def state(self, step: int) -> Snapshot:
        return self.states[step - 1]

    def request(self, id: str) -> Request:
        return self.engine.requests[id]

    def outputs(self, id: str) -> list[int]:
        return self.engine.requests[id].outputs

    def finish(self, id: str) -> str | None:
        return self.engine.requests[id].finish_reason

    def emitted(self, id: str) -> list[int]:
        """Steps in which the request's outputs were delivered."""
        return [report.step for report in self.reports if id in report.emitted]

    def events(self, kind: str, id: str | None = None, step: int | None = None) -> list[Any]:
        return [
            event
            for report in self.reports
            for event in report.events
            if event.kind == kind
            and (id is None or getattr(event, "id", None) == id)
            and (step is None or event.step == step)
        ]


class Lab:
    """An engine that is looked at after every step.

    `expected` gives each id's outputs in a pool that never runs out, once they are known.
    """

    def __init__(
        self,
        config: EngineConfig,
        requests: Iterable[Request],
        actions: Iterable[Action | Change] = (),
        runner: Runner | None = None,
        *,
        expected: dict[str, list[int]] | None = None,
        check: bool = True,
    ) -> None:
        self.config = config
        self.runner: Any = CellRunner(config.block_size) if runner is None else runner
        self.engine = Engine(config, self.runner)
        self.record = Record(self.engine, self.runner)
        self.expected = expected
        self._check = check
        self._fold = replay.empty_state(config.num_blocks, config.block_size, config.host_blocks)
        self._delivered: dict[str, list[int]] = {}
        for request in requests:
            self.engine.add_request(request)
        for action in actions:
            self.engine.add_action(action)

    def step(self, end_if_stuck: bool = True) -> StepReport:
        report = self.engine.step(end_if_stuck=end_if_stuck)
        state = self.engine.snapshot()
        self.record.reports.append(report)
        self.record.states.append(state)
        for event in report.events:
            replay.apply(self._fold, event.as_json())
        self._note_delivered(report.events)
        if self._check:
            self.look(state)
            moved = sum(copy.blocks for copy in report.copies)
            assert moved <= (self.config.copy_blocks_per_step or moved), f"{moved} blocks moved"
        return report

    def run(self, most: int = 5_000) -> Record:
        """Step until the end; a run that does not end within `most` steps fails."""
        while self.engine.has_work or not self.record.reports:
            assert self.record.steps < most, f"no end after {most} steps"
            self.step()
        return self.record

    def _note_delivered(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, TokenDelivered):
                sent = self._delivered.setdefault(event.id, [])
                assert event.index == len(sent), (
                    f"{event.id}: output {event.index} came out of turn"
                )
                sent.append(event.token)

    # After every step.

    def look(self, state: Snapshot) -> None:
        """All invariants of the cases, from the snapshot and the pools' own lists."""
        self._look_at_blocks(state)
        self._look_at_shared(state)
        self._look_at_host(state)
        self._look_at_requests(state)
        self._look_at_deliveries()
        self._look_at_fold(state)
        if isinstance(self.runner, CellRunner) and not self.config.unsafe:
            self._look_at_cells()

    def _copying(self) -> Counter[int]:
        """GPU blocks that a copy refers to, by how many."""
        early = "reuse_before_copied" in self.config.unsafe
        return Counter(
            block
            for copy in self.engine._swap._copies
            if not (early and copy.direction == "out")
            for block in copy.blocks
        )

    def _look_at_blocks(self, state: Snapshot) -> None:
        pool, total = self.engine._space.pool, self.config.num_blocks
        tables = Counter(b for r in self.engine.requests.values() for b in r.table)
        copying = self._copying()
        for block in range(total):
            count = tables[block] + copying[block]
            assert pool.references(block) == count, f"block {block}: {count} references"
            assert (block in pool._free) == (count == 0), f"block {block} is free and referred to"
        flight = set(copying) - set(tables)
        assert state.in_flight == len(flight)
        assert state.free == len(pool._free)
        assert state.free + len(tables) + state.in_flight == total, "blocks are lost"
        assert state.cached == sum(pool.is_cached(block) for block in pool._free)

    def _look_at_shared(self, state: Snapshot) -> None:
        size = self.config.block_size
        where: dict[int, list[tuple[str, int]]] = {}
        for id, table in state.blocks.items():
            assert len(set(table)) == len(table), f"{id} has a block twice"
            for logical, block in enumerate(table):
                where.setdefault(block, []).append((id, logical))
        for block, owners in where.items():
            if len(owners) == 1:
                continue
            full = all(state.kv[id] >= (logical + 1) * size for id, logical in owners)
            assert full or self._is_fresh_fork(owners), f"block {block} is shared and not full"
            assert len({logical for _, logical in owners}) == 1

    def _is_fresh_fork(self, owners: list[tuple[str, int]]) -> bool:
        """Samples of one prompt share its last, partial block until they write into it."""
        requests = [self.engine.requests[id] for id, _ in owners]
        same = len({r.id.partition(".")[0] for r in requests}) == 1
        return same and all(r.computed == len(r.prompt) for r in requests)

    def _look_at_host(self, state: Snapshot) -> None:
        held = [block for table in state.host_blocks.values() for block in table]
        free = list(self.engine._swap.host._free)
        assert sorted(held + free) == list(range(self.config.host_blocks)), "host blocks are lost"
        assert state.host_free == len(free)

    def _look_at_requests(self, state: Snapshot) -> None:
        in_batch = [*state.running, *state.paused]
        assert len(set(in_batch)) == len(in_batch)
        assert not set(in_batch) & set(state.waiting)
        for request in self.engine.requests.values():
            live = request.state not in (RequestState.PENDING, RequestState.FINISHED)
            assert live == (request.id in state.history), f"{request.id} is {request.state}"
            assert live == (request.id in {*in_batch, *state.waiting})
            if not live:
                held = [*request.table, *request.host_table]
                assert not held, f"{request.id} still holds blocks"
                assert not request.computed
            assert self.config.blocks_for(request.computed) <= len(request.table)
            assert request.computed <= len(request.history)
            assert len(request.outputs) <= request.max_tokens
            if request.state is RequestState.SWAPPED:
                assert len(request.host_table) == self.config.blocks_for(request.host_kv)

    def _look_at_deliveries(self) -> None:
        for id, request in self.engine.requests.items():
            assert self._delivered.get(id, []) == request.outputs
            assert request.delivered == len(request.outputs) == len(request.delivered_steps)
            if self.expected is not None:
                wanted = self.expected.get(id, [])
                assert request.outputs == wanted[: len(request.outputs)], f"{id}: other tokens"

    def _look_at_fold(self, state: Snapshot) -> None:
        fold = self._fold
        assert (fold["free"], fold["in_flight"]) == (state.free, state.in_flight)
        assert fold["host_free"] == state.host_free
        for id, request in self.engine.requests.items():
            seen = fold["requests"].get(id)
            if request.state is RequestState.PENDING:
                assert seen is None
                continue
            assert seen["state"] == request.state.value, f"{id}: {seen['state']} in the fold"
            assert seen["table"] == request.table
            assert seen["host_table"] == request.host_table
            assert seen["history"] == len(request.history)
            assert seen["outputs"] == request.outputs
            assert seen["delivered"] == request.delivered
            assert seen["preemptions"] == request.preemptions
            if request.state is not RequestState.SWAPPING_OUT:
                assert (seen["kv"], seen["host_kv"]) == (request.computed, request.host_kv), id
        for block, seen in enumerate(fold["blocks"]):
            owners = [r.id for r in self.engine.requests.values() if block in r.table]
            assert sorted(seen["owners"]) == sorted(owners), f"block {block}: other owners"
            free = self.engine._space.pool.is_free(block)
            assert (seen["status"] == "free") == free, f"block {block}: {seen['status']}"
            if free:
                assert seen["cached"] == self.engine._space.pool.is_cached(block)

    def _look_at_cells(self) -> None:
        """Every position that counts as computed or stored lies in its slot."""
        for request in self.engine.requests.values():
            wanted = list(enumerate(request.history))
            found = self.runner.read(request.table, request.computed)
            assert found == wanted[: request.computed], f"{request.id}: KV is not its own"
            if request.state is RequestState.SWAPPED:
                stored = [cell for host in request.host_table for cell in self.runner.host[host]]
                assert stored[: request.host_kv] == wanted[: request.host_kv]


def run(
    config: EngineConfig,
    requests: Sequence[Request],
    actions: Sequence[Action | Change] = (),
    runner: Runner | None = None,
    *,
    oracle: bool = True,
    most: int = 5_000,
) -> Record:
    """Run to the end, looking after every step; outputs must be prefixes of the oracle's.

    `requests` are copied: the same list may be run again.
    """
    expected = None
    if oracle:
        other = CellRunner(config.block_size) if runner is None else fresh_like(runner, config)
        expected = oracle_outputs(config, requests, other)
    return Lab(config, map(again, requests), actions, runner, expected=expected).run(most)


def fresh_like(runner: Any, config: EngineConfig) -> Any:
    """A runner of the same kind and model that never fails, with room for everything."""
    if isinstance(runner, CellRunner):
        return CellRunner(runner.size, context=runner.context, eos_ids=runner.eos_ids)
    if isinstance(runner, StandInRunner):
        return StandInRunner()
    return runner.scratch(num_blocks=256, host_blocks=0)


def oracle_outputs(
    config: EngineConfig, requests: Sequence[Request], runner: Any
) -> dict[str, list[int]]:
    """Outputs of the same requests where the pool never runs out; nothing is ever preempted."""
    never = replace(
        EngineConfig(num_blocks=256, block_size=config.block_size),
        num_blocks=100_000 if isinstance(runner, StandInRunner) else 256,
        host_blocks=0,
    )
    engine = Engine(never, runner)
    for request in requests:
        engine.add_request(again(request))
    engine.run()
    assert not any(request.preemptions for request in engine.requests.values())
    return {id: request.outputs for id, request in engine.requests.items()}


def act(step: int, action: str, id: str, method: str | None = None) -> Action:
    return Action(step=step, action=action, id=id, method=method)


def pool(num_blocks: int = 4, block_size: int = 4, **settings: Any) -> EngineConfig:
    """The common setup of the cases: block size 4, all else as it comes."""
    return EngineConfig(num_blocks=num_blocks, block_size=block_size, **settings)


STORY = (ask("A", 7, 6), ask("B", 7, 4))
"""A = 7 prompt tokens, 6 outputs; B = 7 prompt tokens, 4 outputs."""


@cache
def tiny_model() -> Any:
    """A seeded random Llama of two layers in float32, made once a session."""
    import torch

    from kvlab.models.config import ModelConfig
    from kvlab.models.llama import Llama
    from kvlab.models.loading import LoadedModel

    torch.set_num_threads(1)
    config = ModelConfig(
        vocab_size=256,
        hidden_size=32,
        intermediate_size=48,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        max_positions=128,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = Llama(config)
        for parameter in model.parameters():
            if parameter.dim() > 1:  # wide enough that logits differ by more than rounding
                parameter.data.normal_(0.0, 0.25)
    model.requires_grad_(False).eval()
    return LoadedModel("tiny", config, model, None, torch.device("cpu"), torch.float32)


def model_runner(config: EngineConfig) -> ModelRunner:
    """The tiny model with pools of the config's size."""
    from kvlab.runtime.model_runner import ModelRunner

    return ModelRunner(
        tiny_model(),
        num_blocks=config.num_blocks,
        block_size=config.block_size,
        host_blocks=config.host_blocks,
        keeps_overwritten="write_before_copy_out" in config.unsafe,
    )


MakeRunner = Callable[[EngineConfig], Any]
"""How a case gets its runner: cells without torch, or the tiny model."""


def cells(config: EngineConfig) -> CellRunner:
    return CellRunner(config.block_size)
