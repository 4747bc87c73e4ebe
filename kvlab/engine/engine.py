"""The engine: requests come in, each step schedules, executes, samples and delivers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kvlab.engine import stuck
from kvlab.engine.actions import Action as Action
from kvlab.engine.actions import Actions, SettingChange
from kvlab.engine.admission import Admission
from kvlab.engine.arrivals import Arrivals
from kvlab.engine.config import EngineConfig
from kvlab.engine.cost_model import CostModel
from kvlab.engine.event_log import EventLog
from kvlab.engine.events import Event, StepStarted, TokenDelivered, TokenSampled
from kvlab.engine.forks import Forks
from kvlab.engine.kv_cache_manager import KVCacheManager
from kvlab.engine.outputs import Outputs
from kvlab.engine.queues import Queues
from kvlab.engine.report import StepReport
from kvlab.engine.request import Request, RequestState, Sampled
from kvlab.engine.resume_method import ResumeMethod
from kvlab.engine.runner import Runner
from kvlab.engine.scheduler import Scheduler
from kvlab.engine.swap import Swap
from kvlab.engine.thrashing import ThrashingWatch


class Engine:
    """A continuous-batching engine over a paged KV cache that may run out.

    Two engines never meet: all state is here. `runner` stores KV and computes; without a model a
    StandInRunner schedules the same way. A step never raises for one request's trouble: that
    request ends with a finish reason (stop, length, aborted, kv_capacity, rejected, error) and a
    message, and the others go on.
    """

    def __init__(self, config: EngineConfig, runner: Runner) -> None:
        self.runner = runner
        self.requests: dict[str, Request] = {}  # forks too, from their first token on
        self.log = EventLog()
        self.queues = Queues()
        self.kv = KVCacheManager(config, runner, self.log)
        self.swap = _swap_for(config)(self.kv, runner, self.log)
        self.method = ResumeMethod(config.method, runner.costs)
        self.scheduler = Scheduler(config, self.queues, self.kv, self.swap, self.method, self.log)
        self.admission = Admission(self.scheduler)
        self.arrivals = Arrivals(runner.vocab_size)
        self.outputs = Outputs(runner)
        self.forks = Forks(self.queues, self.kv, self.log, self._register)
        self.actions = Actions(self.requests, self.forks, self.scheduler)
        self._done: list[tuple[Request, str, str | None]] = []  # end when the next step is decided
        self._thrashing = ThrashingWatch(config.block_size)

    # From outside.

    @property
    def config(self) -> EngineConfig:
        """The settings that hold now."""
        return self.scheduler.config

    def add_request(self, request: Request) -> None:
        """Queue a request; it can first run in the step after `request.arrival_step`.

        Raises BadInput for an id that is taken (by a sample of another request, too) or a prompt
        token outside the vocabulary.
        """
        self.arrivals.add(request)
        self._register(request)

    def _register(self, request: Request) -> None:
        self.requests[request.id] = request
        self.outputs.open(request)

    def add_action(self, action: Action | SettingChange) -> None:
        """Carry out an action at the start of a later step. Raises BadInput for an unknown id, and
        for a setting or a value that cannot be."""
        self.actions.add(action)

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
        return bool(self.queues.live or self.arrivals or self.swap.copies.in_flight)

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
        self.actions.act(self.steps)
        self.arrivals.drop_ended()
        self.scheduler.serve_running()
        self.admission.serve_waiting()
        self._end_those_done()
        sampled = self._execute()
        self._deliver(sampled)
        self.swap.advance()
        self.queues.take_failed_restores()
        self._thrashing.look(self.log)
        if end_if_stuck and self._is_stuck():
            stuck.end_all(self.scheduler)
        return StepReport(self.steps, self.log.take())

    def _begin(self) -> None:
        """Nothing runs on the device now: what the last step copied out is released."""
        self.log.step += 1
        self.swap.retire()
        self.scheduler.begin()
        order, free = self.queues.order, self.kv.pool.free
        running, waiting, paused = order["running"], order["waiting"], order["paused"]
        self.log.record(StepStarted(running=running, waiting=waiting, paused=paused, free=free))

    def _receive(self) -> None:
        """Requests whose time has come join the waiting queue, or are refused at once."""
        for request in self.arrivals.due(self.steps):
            self.log.arrived(request)
            request.state = RequestState.WAITING
            if never := self.kv.never_fits(request):
                self.scheduler.finish(request, "rejected", never)
            elif too_long := self.outputs.too_long(request):
                self.scheduler.finish(request, "length", too_long)
            else:
                self.queues.enqueue(request)

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
                self.kv.prefix.forget_unwritten(request)
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
            request = self.requests[choice.id]
            request.history.append(choice.token)
            if choice.logprob is not None:
                request.logprobs.append(choice.logprob)
            index = request.num_outputs - 1
            self.log.record(TokenSampled(id=request.id, index=index, token=choice.token))
            text, reason, message = self.outputs.push(request, choice.token)
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

    def _is_stuck(self) -> bool:
        """Nothing was done in this step, and nothing will ever make the next one different."""
        to_come = self.arrivals or self.actions or self.swap.copies.in_flight
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
