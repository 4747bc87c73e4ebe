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

from kvlab.engine.actions import SettingChange
from kvlab.engine.config import EngineConfig
from kvlab.engine.engine import Action, Engine
from kvlab.engine.events import Event, TokenDelivered
from kvlab.engine.report import StepReport
from kvlab.engine.request import Batch, Request, RequestState, Sampled, Sampling
from kvlab.engine.runner import CopyError, Pairs, Runner
from kvlab.engine.stand_in import StandInRunner
from kvlab.engine.thrashing import Thrashing, ThrashingWatch
from kvlab.trace import replay
from kvlab.trace.gaps import Gap, gaps

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


@dataclass(frozen=True)
class Snapshot:
    """Who holds what between two steps, read from the engine's own tables and queues, not from its
    events. Block counts; tables in logical order; lengths in tokens."""

    running: tuple[str, ...]
    waiting: tuple[str, ...]
    paused: tuple[str, ...]
    free: int
    cached: int
    in_flight: int
    reserved_unused: int
    host_free: int
    blocks: dict[str, tuple[int, ...]]
    kv: dict[str, int]
    host_blocks: dict[str, tuple[int, ...]]
    host_kv: dict[str, int]
    history: dict[str, int]


def snapshot(engine: Engine) -> Snapshot:
    """Who holds what now."""
    queues, pool = engine.queues, engine.kv.pool
    paused = {r.id for r in queues.running if r.state is RequestState.PAUSED}
    live = [*queues.running, *queues.waiting]
    on_gpu = [request for request in live if request.table]
    on_host = [request for request in live if request.host_table]
    return Snapshot(
        running=tuple(r.id for r in queues.running if r.id not in paused),
        waiting=tuple(r.id for r in queues.waiting),
        paused=tuple(r.id for r in queues.running if r.id in paused),
        free=pool.free,
        cached=pool.cached,
        in_flight=pool.in_flight,
        reserved_unused=sum(len(r.table) - engine.config.blocks_for(r.computed) for r in on_gpu),
        host_free=engine.swap.host.free,
        blocks={r.id: tuple(r.table) for r in on_gpu},
        kv={r.id: r.computed for r in on_gpu},
        host_blocks={r.id: tuple(r.host_table) for r in on_host},
        host_kv={r.id: r.host_kv for r in on_host},
        history={r.id: len(r.history) for r in live},
    )


@dataclass(frozen=True)
class Victim:
    """A preemption as its events tell it. `blocks` were held, `reclaimable` of them become free."""

    id: str
    method: str
    why: str
    need_of: str | None
    reclaimable: int
    blocks: int
    fallback: str | None
    recompute_s: float | None
    swap_s: float | None


@dataclass(frozen=True)
class Moved:
    """Blocks moved at once for a request. direction: out | in; done: the copy is complete."""

    id: str
    direction: str
    blocks: int
    done: bool


class Told:
    """One step, as its events tell it."""

    def __init__(self, report: StepReport) -> None:
        self.step = report.step
        self.events: tuple[Any, ...] = report.events
        self.scheduled: dict[str, int] = {}
        self.tokens_again = 0
        for event in self.of("kv_written"):
            count = event.last - event.first + 1
            self.scheduled[event.id] = self.scheduled.get(event.id, 0) + count
            self.tokens_again += count * (event.why == "rebuilt")
        self.tokens = sum(self.scheduled.values())
        self.admitted = tuple(event.id for event in self.of("admitted"))
        self.resumed = tuple(dict.fromkeys(event.id for event in self.of("resumed")))
        self.finished = tuple(event.id for event in self.of("finished"))
        self.stalled: list[Any] = self.of("stalled")
        self.tokens_from_cache = sum(e.from_cache for e in self.of("admitted", "resumed"))
        self.emitted: dict[str, tuple[int, ...]] = {}
        for event in self.of("token_delivered"):
            self.emitted[event.id] = (*self.emitted.get(event.id, ()), event.token)
        self.copies = tuple(
            Moved(e.id, e.kind.split("_")[1], len(e.blocks), e.done == e.total)
            for e in self.of("swap_out_advanced", "swap_in_advanced")
        )
        self.victims = tuple(
            Victim(
                event.id,
                event.method,
                event.why,
                event.need_of,
                event.reclaimable,
                event.held,
                event.fallback,
                event.recompute_s,
                event.swap_s,
            )
            for event in self.of("preempted")
        )

    def of(self, *kinds: str) -> list[Any]:
        return [event for event in self.events if event.kind in kinds]


@dataclass
class Record:
    """A run so far: the engine, and after each step its report and its snapshot."""

    engine: Engine
    runner: Any
    reports: list[Told] = field(default_factory=list)  # one step after the other
    states: list[Snapshot] = field(default_factory=list)

    @classmethod
    def of(cls, engine: Engine, reports: Sequence[StepReport]) -> Record:
        """A run that was not looked at on its way."""
        return cls(engine, engine.runner, [Told(report) for report in reports])

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

    def report(self, step: int) -> Told:
        return self.reports[step - 1]

    def state(self, step: int) -> Snapshot:
        return self.states[step - 1]

    def request(self, id: str) -> Request:
        return self.engine.requests[id]

    def outputs(self, id: str) -> list[int]:
        return self.engine.requests[id].outputs

    def finish(self, id: str) -> str | None:
        return self.engine.requests[id].finish_reason

    def count(self, kind: str, id: str) -> int:
        """Events of a kind that name the request."""
        return len(self.events(kind, id))

    def positions(self, id: str, why: str = "rebuilt") -> int:
        """Positions of the request that were written, for the first time or again."""
        written = [event for event in self.events("kv_written", id) if event.why == why]
        return sum(event.last - event.first + 1 for event in written)

    def from_cache(self, id: str) -> int:
        return sum(e.from_cache for kind in ("admitted", "resumed") for e in self.events(kind, id))

    @property
    def swapped(self) -> tuple[int, int]:
        """Blocks copied (out, in)."""
        moved = [copy for report in self.reports for copy in report.copies]
        out, back = (
            sum(copy.blocks for copy in moved if copy.direction == way) for way in ("out", "in")
        )
        return out, back

    def text(self, id: str) -> str:
        return "".join(event.text for event in self.events("token_delivered", id))

    def gaps(self, id: str) -> list[Gap]:
        return gaps(event.as_json() for report in self.reports for event in report.events)[id]

    def waited(self, id: str) -> tuple[int, int]:
        """Steps of all gaps: (waiting, recovery)."""
        found = self.gaps(id)
        return sum(gap.waiting for gap in found), sum(gap.recovery for gap in found)

    @property
    def thrashing(self) -> list[Thrashing]:
        watch = ThrashingWatch(self.engine.config.block_size)
        for report in self.reports:
            watch.see(report.step, report.events)
        return watch.found

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
        actions: Iterable[Action | SettingChange] = (),
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

    def step(self, end_if_stuck: bool = True) -> Told:
        report = Told(self.engine.step(end_if_stuck=end_if_stuck))
        state = snapshot(self.engine)
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
            for copy in self.engine.swap.copies.in_flight
            if not (early and copy.direction == "out")
            for block in copy.blocks
        )

    def _look_at_blocks(self, state: Snapshot) -> None:
        pool, total = self.engine.kv.pool, self.config.num_blocks
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
        where: dict[int, list[tuple[str, int, bool]]] = {}
        for id, table in state.blocks.items():
            assert len(set(table)) == len(table), f"{id} has a block twice"
            stored = self.engine.requests[id].host_places
            places = [place for place in range(len(table) + len(stored)) if place not in stored]
            full = state.kv[id] // size
            for entry, block in enumerate(table):
                where.setdefault(block, []).append((id, places[entry], entry < full))
        for block, owners in where.items():
            if len(owners) == 1:
                continue
            full = all(is_full for _, _, is_full in owners)
            assert full or self._is_fresh_fork(owners), f"block {block} is shared and not full"
            assert len({place for _, place, _ in owners}) == 1

    def _is_fresh_fork(self, owners: list[tuple[str, int, bool]]) -> bool:
        """Samples of one prompt share its last, partial block until they write into it."""
        requests = [self.engine.requests[id] for id, _, _ in owners]
        same = len({r.id.partition(".")[0] for r in requests}) == 1
        return same and all(r.computed == len(r.prompt) for r in requests)

    def _look_at_host(self, state: Snapshot) -> None:
        held = [block for table in state.host_blocks.values() for block in table]
        free = list(self.engine.swap.host._free)
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
                assert request.computed == len(request.table) * self.config.block_size

    def _look_at_deliveries(self) -> None:
        for id, request in self.engine.requests.items():
            assert self._delivered.get(id, []) == request.outputs
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
            assert seen["delivered"] == len(request.outputs)
            if request.state is not RequestState.SWAPPING_OUT:
                assert (seen["kv"], seen["host_kv"]) == (request.computed, request.host_kv), id
        for block, seen in enumerate(fold["blocks"]):
            owners = [r.id for r in self.engine.requests.values() if block in r.table]
            assert sorted(seen["owners"]) == sorted(owners), f"block {block}: other owners"
            free = self.engine.kv.pool.is_free(block)
            assert (seen["status"] == "free") == free, f"block {block}: {seen['status']}"
            if free:
                assert seen["cached"] == self.engine.kv.pool.is_cached(block)

    def _look_at_cells(self) -> None:
        """Every position that counts as computed or stored lies in its slot."""
        for request in self.engine.requests.values():
            wanted = list(enumerate(request.history))
            size = self.config.block_size
            found = self.runner.read(request.table, request.computed)
            places = range(len(request.table) + len(request.host_table))
            kept = [place for place in places if place not in request.host_places]
            own = [at for place in kept for at in range(place * size, (place + 1) * size)]
            own = own[: request.computed]
            assert found == [wanted[at] for at in own], f"{request.id}: KV is not its own"
            if request.state is RequestState.SWAPPED:
                by_place = sorted(zip(request.host_places, request.host_table, strict=True))
                stored = [cell for _, host in by_place for cell in self.runner.host[host]]
                size = self.config.block_size
                own = [
                    at for place, _ in by_place for at in range(place * size, (place + 1) * size)
                ]
                assert stored[: request.host_kv] == [wanted[at] for at in own[: request.host_kv]]


def run(
    config: EngineConfig,
    requests: Sequence[Request],
    actions: Sequence[Action | SettingChange] = (),
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
    assert not any(report.preempted for report in engine.run())
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
