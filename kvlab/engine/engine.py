"""The engine: requests come in, each step schedules, executes, samples and delivers."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Sequence

from kvlab.engine import stuck
from kvlab.engine.actions import Action as Action
from kvlab.engine.actions import SettingChange, carry_out, those_meant
from kvlab.engine.config import EngineConfig
from kvlab.engine.cost_model import CostModel
from kvlab.engine.event_log import EventLog
from kvlab.engine.events import (
    ActionTaken,
    Event,
    SettingChanged,
    StepStarted,
    StormDetected,
    TokenDelivered,
    TokenSampled,
)
from kvlab.engine.forks import Forks
from kvlab.engine.kv_cache_manager import KVCacheManager
from kvlab.engine.report import StepReport
from kvlab.engine.request import Request, RequestState, Sampled
from kvlab.engine.resume_method import ResumeMethod
from kvlab.engine.runner import Runner, TextStream
from kvlab.engine.scheduler import Scheduler
from kvlab.engine.swap import Swap
from kvlab.engine.thrashing import ThrashingWatch
from kvlab.errors import BadInput


class Engine:
    """A continuous-batching engine over a paged KV cache that may run out.

    Two engines never meet: all state is here. `runner` stores KV and computes; without a model a
    StandInRunner schedules the same way. A step never raises for one request's trouble: that
    request ends with a finish reason (stop, length, aborted, kv_capacity, rejected, error) and a
    message, and the others go on.
    """

    def __init__(self, config: EngineConfig, runner: Runner) -> None:
        self.config = config
        self.requests: dict[str, Request] = {}  # forks too, from their first token on
        self.runner = runner
        self.log = EventLog()
        self.kv = KVCacheManager(config, runner, self.log)
        self.swap = _swap_for(config)(self.kv, runner, self.log)
        self.method = ResumeMethod(config.method, runner.costs)
        self.scheduler = Scheduler(config, self.kv, self.swap, self.method, self.log)
        self.forks = Forks(self.scheduler, self.kv, self._register)
        self._ids: set[str] = set()  # of all requests, forks that are still to come included
        self._pending: list[Request] = []  # they arrive later, in order of arrival
        self._actions: list[Action | SettingChange] = []
        self._streams: dict[str, TextStream] = {}
        self._done: list[tuple[Request, str, str | None]] = []  # end when the next step is decided
        self._thrashing = ThrashingWatch(config.block_size)

    # From outside.

    def add_request(self, request: Request) -> None:
        """Queue a request; it can first run in the step after `request.arrival_step`.

        Raises BadInput for an id that is taken (by a sample of another request, too) or a prompt
        token outside the vocabulary.
        """
        for id in request.sample_ids:
            if id in self._ids:
                raise BadInput(f"request {id!r}: the id is used twice; give each its own.")
        for place, token in enumerate(request.prompt):
            if not 0 <= token < self.runner.vocab_size:
                raise BadInput(
                    f"request {request.id!r}: prompt token {token} at place {place} is outside the "
                    f"vocabulary of {self.runner.vocab_size} tokens."
                )
        self._ids.update(request.sample_ids)
        self._register(request)
        insort(self._pending, request, key=lambda pending: pending.arrival_step)

    def _register(self, request: Request) -> None:
        self.requests[request.id] = request
        stop = [text for text in request.stop if isinstance(text, str)]
        self._streams[request.id] = self.runner.text_stream(stop)

    def add_action(self, action: Action | SettingChange) -> None:
        """Carry out an action at the start of a later step. Raises BadInput for an unknown id, and
        for a setting or a value that cannot be."""
        if isinstance(action, SettingChange):
            action.applied(self.config)
        elif action.id not in self.requests:
            raise BadInput(f"action at step {action.step}: no request has the id {action.id!r}.")
        self._actions.append(action)

    def abort(self, id: str) -> None:
        """End a request at the start of the next step, whatever its state."""
        self.add_action(Action(step=self.steps + 1, action="abort", id=id))

    def watch(self, witness: Callable[[Event], None]) -> None:
        """Tell `witness` of each event at the moment when it happens; for measurements."""
        self.log.witness = witness

    @property
    def steps(self) -> int:
        """Steps so far: the number of the newest."""
        return self.log.step

    @property
    def costs(self) -> CostModel | None:
        """The rates that method `auto` decided by, once it has."""
        return self.method.costs

    @property
    def has_work(self) -> bool:
        """Some request has not ended, or a copy is in flight."""
        live = bool(self.scheduler.running or self.scheduler.waiting)
        return live or bool(self._pending or self.swap.in_flight)

    def run(self) -> list[StepReport]:
        """Step until every request has ended and no copy is in flight; at least one step.

        When nothing can ever change any more (all that is left is paused, say), every live request
        ends with kv_capacity and a message that says who holds what.
        """
        reports = [self.step(end_if_stuck=True)]
        while self.has_work:
            reports.append(self.step(end_if_stuck=True))
        return reports

    def stream(self) -> Iterator[TokenDelivered]:
        """Run, yielding each output token as it is delivered."""
        while self.has_work:
            yield from self.step(end_if_stuck=True).of(TokenDelivered)

    # A step.

    def step(self, *, end_if_stuck: bool = False) -> StepReport:
        """Schedule, execute, sample and deliver, once."""
        self._begin()
        self._receive()
        self._act()
        self.scheduler.schedule()
        self._end_those_done()
        sampled = self._execute()
        self._deliver(sampled)
        self.swap.advance()
        self.scheduler.take_failed_restores()
        self._watch_for_thrashing()
        if end_if_stuck and self._is_stuck():
            stuck.end_all(self.scheduler)
        return StepReport(self.steps, self.log.take())

    def _begin(self) -> None:
        """Nothing runs on the device now: the scheduler decides."""
        self.log.step += 1
        self.swap.retire()
        self.scheduler.begin()
        order, free = self.scheduler.order, self.kv.pool.free
        running, waiting, paused = order["running"], order["waiting"], order["paused"]
        self.log.record(StepStarted(running=running, waiting=waiting, paused=paused, free=free))

    def _receive(self) -> None:
        """Requests whose time has come join the waiting queue, or are refused at once."""
        while self._pending and self._pending[0].arrival_step < self.steps:
            request = self._pending.pop(0)
            self.log.arrived(request)
            request.state = RequestState.WAITING
            if never := self.scheduler.never_fits(request):
                self.scheduler.finish(request, "rejected", never)
            elif too_long := self._too_long(request):
                self.scheduler.finish(request, "length", too_long)
            else:
                self.scheduler.enqueue(request)

    def _too_long(self, request: Request) -> str | None:
        length, context = len(request.history), self.runner.context
        if length <= context:
            return None
        return f"the history of {length} tokens is longer than the model's context of {context}"

    def _act(self) -> None:
        """Carry out what was asked for this step."""
        due = [action for action in self._actions if action.step <= self.steps]
        self._actions = [action for action in self._actions if action.step > self.steps]
        for action in due:
            if isinstance(action, SettingChange):
                self._change(action)
                continue
            samples = [self.requests[action.id], *self.forks.of(action.id)]
            meant = those_meant(action, samples)
            live = any(sample.state is not RequestState.FINISHED for sample in samples)
            why = "taken" if meant else "not_running" if live else "ended"
            self.log.record(ActionTaken(id=action.id, action=action.action, why=why))
            carry_out(action, meant, self.scheduler)
        self._pending = [r for r in self._pending if r.state is RequestState.PENDING]

    def _change(self, change: SettingChange) -> None:
        before = getattr(self.config, change.setting)
        self.log.record(
            SettingChanged(
                setting=change.setting,
                value=change.value,
                before=before if isinstance(before, str) else "function",
                why="same" if before == change.value else "taken",
            )
        )
        self.config = change.applied(self.config)
        self.scheduler.follow(self.config)

    def _execute(self) -> Sequence[Sampled]:
        """Run the model on the batch. If it fails, the requests of the batch end with `error`."""
        batch = list(self.scheduler.plan.batch.values())
        if not batch:
            return []
        try:
            sampled = self.runner.execute(batch)
        except Exception as error:  # whatever the model raises, the other requests go on
            self.scheduler.plan.batch.clear()
            for request in [self.requests[scheduled.id] for scheduled in batch]:
                self.kv.forget_unwritten_blocks(request)
                self.scheduler.finish(request, "error", f"the model run failed: {error}")
            return []
        for scheduled in batch:
            request = self.requests[scheduled.id]
            self.log.kv_written(scheduled, request.ever_computed, self.config.block_size)
            request.computed = scheduled.end
            request.ever_computed = max(request.ever_computed, scheduled.end)
        return sampled

    def _deliver(self, sampled: Sequence[Sampled]) -> None:
        """Append each selected token to its history and send it; end who is done."""
        for choice in self.forks.give_each_its_own(sampled, self.requests):
            request, stream = self.requests[choice.id], self._streams[choice.id]
            request.history.append(choice.token)
            if choice.logprob is not None:
                request.logprobs.append(choice.logprob)
            index = request.num_outputs - 1
            self.log.record(TokenSampled(id=request.id, index=index, token=choice.token))
            text = stream.push(choice.token)
            reason, message = self._finish_reason(request, choice.token)
            if reason and not stream.stopped:
                text += stream.flush()
            before, request.delivered_step = request.delivered_step, self.steps
            gap = None if before is None else self.steps - before
            request.recovering = request.preempted_in_recovery = False
            self.log.record(
                TokenDelivered(id=request.id, index=index, token=choice.token, text=text, gap=gap)
            )
            if reason:
                self._done.append((request, reason, message))
        if self.config.async_scheduling:  # the next step is decided as if they still ran
            for request, _, _ in self._done:
                request.state = RequestState.ENDING
        else:
            self._end_those_done()

    def _end_those_done(self) -> None:
        """Whose last output is out gives up what it holds."""
        for request, reason, message in self._done:
            self.scheduler.finish(request, reason, message)
        self._done = []

    def _finish_reason(self, request: Request, token: int) -> tuple[str | None, str | None]:
        if token in request.stop or self._streams[request.id].stopped:
            return "stop", None
        if token in self.runner.eos_ids and not request.ignore_eos:
            return "stop", None
        if request.num_outputs >= request.max_tokens:
            return "length", None
        too_long = self._too_long(request)
        return ("length", too_long) if too_long else (None, None)

    def _watch_for_thrashing(self) -> None:
        if thrashing := self._thrashing.see(self.steps, self.log.events):
            self.log.record(
                StormDetected(
                    since=thrashing.first,
                    redone=thrashing.redone,
                    new=thrashing.new,
                    preemptions=self._thrashing.preemptions,
                )
            )

    def _is_stuck(self) -> bool:
        """Nothing was done in this step, and nothing will ever make the next one different."""
        to_come = self._pending or self._actions or self.swap.in_flight
        return self.has_work and not to_come and stuck.nothing_done(self.scheduler, self.log.events)

    def check_integrity(self) -> None:
        """Raise AssertionError unless every block is accounted for; cheap enough for each step of a
        test, not of a service."""
        tables = [request.table for request in self.requests.values()]
        self.kv.pool.check_integrity(tables)
        self.swap.host.check_integrity(request.host_table for request in self.requests.values())


def _swap_for(config: EngineConfig) -> type[Swap]:
    """The safe one; the lesson on its orderings loads the one that breaks them."""
    if not config.unsafe:
        return Swap
    from kvlab.engine.unsafe_swap import UnsafeSwap

    return UnsafeSwap
