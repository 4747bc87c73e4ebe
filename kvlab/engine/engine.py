"""The engine: requests come in, each step schedules, executes, samples and delivers."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from kvlab.engine.actions import Action as Action
from kvlab.engine.actions import Change
from kvlab.engine.config import EngineConfig
from kvlab.engine.cost_model import CostModel
from kvlab.engine.events import (
    ActionTaken,
    Arrived,
    DamageFound,
    Event,
    Finished,
    KvWritten,
    SettingChanged,
    StepStarted,
    StormDetected,
    TokenDelivered,
    TokenSampled,
)
from kvlab.engine.journal import Journal
from kvlab.engine.kv_space import KvSpace
from kvlab.engine.mover import Runner, TextStream
from kvlab.engine.report import CopyProgress, Snapshot, StepReport
from kvlab.engine.request import Request, RequestState, Sampled, ScheduledRequest
from kvlab.engine.resume_method import ResumeMethod
from kvlab.engine.scheduler import Scheduler, StepPlan
from kvlab.engine.storm import Storm, StormWatch
from kvlab.engine.swap import Swap
from kvlab.errors import BadInput


@dataclass(frozen=True, slots=True)
class Delivered:
    """One output as its user receives it."""

    step: int
    id: str
    index: int
    token: int
    text: str


class Engine:
    """A continuous-batching engine over a paged KV cache that may run out.

    Two engines never meet: all state is here. `runner` stores KV and computes; without a model a
    StandInRunner schedules the same way. A step never raises for one request's trouble: that
    request ends with a finish reason (stop, length, aborted, kv_capacity, rejected, error) and a
    message, and the others go on.
    """

    def __init__(self, config: EngineConfig, runner: Runner) -> None:
        self.config = config
        self.requests: dict[str, Request] = {}
        self.steps = 0
        self._runner = runner
        self._journal = Journal()
        self._space = KvSpace(config, runner, self._journal)
        self._swap = Swap(
            self._space,
            runner,
            self._journal,
            config.host_blocks,
            config.copy_blocks_per_step,
            config.unsafe,
        )
        self._method = ResumeMethod(config.method, self._swap, runner.costs)
        self._scheduler = Scheduler(
            config,
            self._space,
            self._swap,
            self._method,
            self._journal,
            self._end,
        )
        self._ids: set[str] = set()  # of all requests, forks that are still to come included
        self._pending: list[Request] = []  # they arrive later, in order of arrival
        self._actions: list[Action | Change] = []
        self._streams: dict[str, TextStream] = {}
        self._forks: dict[str, list[str]] = {}
        self._finished: list[str] = []
        self._storm_watch = StormWatch()

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
            if not 0 <= token < self._runner.vocab_size:
                raise BadInput(
                    f"request {request.id!r}: prompt token {token} at place {place} is outside the "
                    f"vocabulary of {self._runner.vocab_size} tokens."
                )
        self._ids.update(request.sample_ids)
        self._register(request)
        insort(self._pending, request, key=lambda pending: pending.arrival_step)

    def _register(self, request: Request) -> None:
        self.requests[request.id] = request
        stop = [text for text in request.stop if isinstance(text, str)]
        self._streams[request.id] = self._runner.text_stream(stop)

    @property
    def asked(self) -> list[str]:
        """Ids of the requests that were added, forks left out."""
        forks = {fork for of in self._forks.values() for fork in of}
        return [id for id in self.requests if id not in forks]

    def samples(self, id: str) -> list[Request]:
        """A request and the forks that it has by now: the samples of one prompt."""
        return [self.requests[of] for of in (id, *self._forks.get(id, ()))]

    def add_action(self, action: Action | Change) -> None:
        """Carry out an action at the start of a later step. Raises BadInput for an unknown id, and
        for a setting or a value that cannot be."""
        if isinstance(action, Change):
            action.applied(self.config)
        elif action.id not in self.requests:
            raise BadInput(f"action at step {action.step}: no request has the id {action.id!r}.")
        self._actions.append(action)

    def watch(self, witness: Callable[[Event], None]) -> None:
        """Tell `witness` of each event at the moment when it happens; for measurements."""
        self._journal.witness = witness

    def abort(self, id: str) -> None:
        """End a request at the start of the next step, whatever its state."""
        self.add_action(Action(step=self.steps + 1, action="abort", id=id))

    @property
    def has_work(self) -> bool:
        """Some request has not ended, or a copy is in flight."""
        live = bool(self._scheduler.running or self._scheduler.waiting)
        return live or bool(self._pending or self._swap.in_flight)

    def run(self, on_step: Callable[[StepReport], None] | None = None) -> list[StepReport]:
        """Step until every request has ended and no copy is in flight; at least one step.

        When nothing can ever change any more (all that is left is paused, say), every live request
        ends with kv_capacity and a message that says who holds what.
        """
        reports: list[StepReport] = []
        while self.has_work or not reports:
            reports.append(self.step(end_if_stuck=True))
            if on_step:
                on_step(reports[-1])
        return reports

    def stream(self) -> Iterator[Delivered]:
        """Run, yielding each output token in the order of delivery."""
        while self.has_work:
            for event in self.step(end_if_stuck=True).events:
                if isinstance(event, TokenDelivered):
                    yield Delivered(event.step, event.id, event.index, event.token, event.text)

    # A step.

    def step(self, *, end_if_stuck: bool = False) -> StepReport:
        """Schedule, execute, sample and deliver, once."""
        plan = self._schedule()
        sampled = self._execute(plan)
        again = self._note_computed(plan)
        emitted = self._deliver(sampled)
        self._swap.advance()
        self._scheduler.take_failed_restores()
        self._watch_for_storm(plan, emitted, again)
        if end_if_stuck and self._stuck(plan):
            self._end_all_stuck()
        return self._report(plan, emitted, again)

    def _watch_for_storm(
        self, plan: StepPlan, emitted: dict[str, tuple[int, ...]], again: int
    ) -> None:
        restored = sum(n for copy, n in self._swap.moved if copy.direction == "in")
        redone = again + restored * self.config.block_size
        new = sum(map(len, emitted.values()))
        storm = self._storm_watch.see(self.steps, len(plan.victims), redone, new)
        if storm:
            self._journal.record(
                StormDetected,
                since=storm.first,
                redone=storm.redone,
                new=storm.new,
                preemptions=self._storm_watch.preemptions,
            )

    def _schedule(self) -> StepPlan:
        self.steps += 1
        self._journal.step = self.steps
        self._finished = []
        self._swap.retire()
        self._scheduler.begin()
        self._journal.record(
            StepStarted,
            running=self._ids_in_batch(paused=False),
            waiting=tuple(request.id for request in self._scheduler.waiting),
            paused=self._ids_in_batch(paused=True),
            free=self._space.pool.free,
        )
        self._receive()
        self._act()
        return self._scheduler.schedule()

    def _ids_in_batch(self, *, paused: bool) -> tuple[str, ...]:
        """Requests of the batch, in the order of their admission: those that take part, or not."""
        return tuple(
            request.id
            for request in self._scheduler.running
            if (request.state is RequestState.PAUSED) is paused
        )

    def _receive(self) -> None:
        """Requests whose time has come join the waiting queue, or are refused at once."""
        while self._pending and self._pending[0].arrival_step < self.steps:
            request = self._pending.pop(0)
            self._journal.record(
                Arrived,
                id=request.id,
                history=len(request.history),
                max_tokens=request.max_tokens,
                priority=request.priority,
            )
            never = self._scheduler.never_fits(request)
            if never:
                request.state = RequestState.WAITING
                self._end(request, "rejected", never)
            elif len(request.history) > self._runner.context:
                request.state = RequestState.WAITING
                self._end(request, "length", self._too_long(request))
            else:
                self._scheduler.enqueue(request)

    def _too_long(self, request: Request) -> str:
        return (
            f"the history of {len(request.history)} tokens is longer than the model's context "
            f"of {self._runner.context}"
        )

    def _act(self) -> None:
        due = [action for action in self._actions if action.step <= self.steps]
        self._actions = [action for action in self._actions if action.step > self.steps]
        for action in due:
            if isinstance(action, Change):
                self._change(action)
                continue
            request = self.requests[action.id]
            why = self._applicable(action, request)
            self._journal.record(ActionTaken, id=action.id, action=action.action, why=why)
            if why == "taken":
                self._carry_out(action, request)

    def _change(self, change: Change) -> None:
        before = getattr(self.config, change.setting)
        self._journal.record(
            SettingChanged,
            setting=change.setting,
            value=change.value,
            before=before if isinstance(before, str) else "function",
            why="same" if before == change.value else "taken",
        )
        self.config = change.applied(self.config)
        self._scheduler.follow(self.config)

    def _applicable(self, action: Action, request: Request) -> str:
        samples = self.samples(request.id) if action.action == "abort" else [request]
        if all(sample.state is RequestState.FINISHED for sample in samples):
            return "ended"
        runs = request.state in (RequestState.RUNNING, RequestState.PAUSED)
        fits = {
            "abort": True,
            "next_victim": True,
            "preempt": runs,
            "pause": request.state is RequestState.RUNNING,
            "resume": request.state is RequestState.PAUSED,
        }
        return "taken" if fits[action.action] else "not_running"

    def _carry_out(self, action: Action, request: Request) -> None:
        if action.action == "abort":
            if request in self._pending:
                self._pending.remove(request)
            for sample in self.samples(request.id):
                self._end(sample, "aborted", None)
        elif action.action == "preempt":
            self._scheduler.preempt(request, need_of=None, why="action", method=action.method)
        elif action.action == "pause":
            self._scheduler.pause(request, need_of=None)
        elif action.action == "next_victim":
            self._scheduler.next_victim = request
        else:
            self._scheduler.unpause(request)

    def _execute(self, plan: StepPlan) -> Sequence[Sampled]:
        """Run the model on the batch. If it fails, the requests of the batch end with `error`."""
        batch = list(plan.batch.values())
        if not batch:
            return []
        try:
            return self._runner.execute(batch)
        except Exception as error:  # whatever the model raises, the other requests go on
            plan.batch.clear()
            for request in [self.requests[scheduled.id] for scheduled in batch]:
                self._space.forget_unwritten_blocks(request)
                self._end(request, "error", f"the model run failed: {error}")
            return []

    def _note_computed(self, plan: StepPlan) -> int:
        """Record what now has KV; returns the tokens that were computed again."""
        total = 0
        for scheduled in plan.batch.values():
            request = self.requests[scheduled.id]
            again = max(0, min(scheduled.end, request.ever_computed) - scheduled.start)
            self._record_kv(scheduled, request.ever_computed)
            request.computed = scheduled.end
            request.ever_computed = max(request.ever_computed, scheduled.end)
            request.recomputed += again
            total += again
        return total

    def _record_kv(self, scheduled: ScheduledRequest, ever_computed: int) -> None:
        """One event for each block written, split where rebuilt positions end."""
        size = self.config.block_size
        first = scheduled.start
        while first < scheduled.end:
            rebuilt = first < ever_computed
            block_end = (first // size + 1) * size
            end = min(block_end, scheduled.end, ever_computed if rebuilt else scheduled.end)
            self._journal.record(
                KvWritten,
                id=scheduled.id,
                why="rebuilt" if rebuilt else "first",
                block=scheduled.table[first // size],
                logical=first // size,
                slot=first % size,
                first=first,
                last=end - 1,
            )
            first = end

    # Outputs.

    def _deliver(self, sampled: Sequence[Sampled]) -> dict[str, tuple[int, ...]]:
        """Append each selected token to its history and send it; end who is done."""
        emitted: dict[str, tuple[int, ...]] = {}
        ended: list[tuple[Request, str, str | None]] = []
        for choice in self._with_forks(sampled):
            request = self.requests[choice.id]
            request.history.append(choice.token)
            index = request.num_outputs - 1
            self._journal.record(TokenSampled, id=choice.id, index=index, token=choice.token)
            if choice.logprob is not None:
                request.logprobs.append(choice.logprob)
            text = self._streams[choice.id].push(choice.token)
            reason, message = self._finish_reason(request, choice.token)
            if reason and not self._streams[choice.id].stopped:
                text += self._streams[choice.id].flush()
            self._send(request, choice.token, index, text)
            emitted[choice.id] = (*emitted.get(choice.id, ()), choice.token)
            if reason:
                ended.append((request, reason, message))
        for request, reason, message in ended:
            self._end(request, reason, message)
        return emitted

    def _with_forks(self, sampled: Sequence[Sampled]) -> Iterator[Sampled]:
        """Give each further first token of a request to a fork of its own."""
        seen: Counter[str] = Counter()
        for choice in sampled:
            number = seen[choice.id]
            seen[choice.id] += 1
            yield replace(choice, id=self._fork(choice.id, number)) if number else choice

    def _fork(self, parent_id: str, number: int) -> str:
        parent = self.requests[parent_id]
        fork = parent.fork(number)
        self._register(fork)
        self._forks.setdefault(parent_id, []).append(fork.id)
        self._space.share_table(parent, fork)
        self._scheduler.join_after(parent, fork)
        return fork.id

    def _finish_reason(self, request: Request, token: int) -> tuple[str | None, str | None]:
        if token in request.stop or self._streams[request.id].stopped:
            return "stop", None
        if token in self._runner.eos_ids and not request.ignore_eos:
            return "stop", None
        if request.num_outputs >= request.max_tokens:
            return "length", None
        if len(request.history) > self._runner.context:
            return "length", self._too_long(request)
        return None, None

    def _send(self, request: Request, token: int, index: int, text: str) -> None:
        request.text += text
        request.delivered += 1
        before = request.delivered_steps[-1] if request.delivered_steps else None
        gap = None if before is None else self.steps - before
        if gap is not None:
            resumed = request.resumed_step
            recovery = 0 if resumed is None else self.steps - resumed + 1
            request.note_gap(gap, recovery)
        request.resumed_step, request.robbed = None, False
        request.delivered_steps.append(self.steps)
        self._journal.record(
            TokenDelivered, id=request.id, index=index, token=token, text=text, gap=gap
        )

    # Ends.

    def _end(self, request: Request, reason: str, message: str | None) -> None:
        """End a request, whatever its state, and release all that it holds."""
        if request.state is RequestState.FINISHED:
            return
        if request.state is RequestState.PENDING:  # aborted before it arrived
            self._journal.record(
                Arrived,
                id=request.id,
                history=len(request.history),
                max_tokens=request.max_tokens,
                priority=request.priority,
            )
        scheduler = self._scheduler
        if request in scheduler.running:
            scheduler.running.remove(request)
        if request in scheduler.waiting:
            scheduler.waiting.remove(request)
        request.state = RequestState.FINISHED
        request.finish_reason, request.message = reason, message
        self._finished.append(request.id)
        self._journal.record(
            Finished, id=request.id, why=reason, outputs=request.num_outputs, message=message
        )
        cancelled = "aborted" if reason == "aborted" else "finished"
        release = cancelled if reason in ("aborted", "stop", "length") else "cut_short"
        self._space.release(request, release, scheduler.next_up())
        self._swap.cancel(request, cancelled)
        request.computed = 0

    def _stuck(self, plan: StepPlan) -> bool:
        """Nothing was done in this step, and nothing will ever make the next one different."""
        done = plan.batch or plan.victims or plan.admitted or self._finished
        copied = self._swap.moved or self._swap.failed  # a failure gives up blocks
        if done or copied or not self.has_work:
            return False
        return not (self._swap.in_flight or self._pending or self._actions)

    def _end_all_stuck(self) -> None:
        live = [*self._scheduler.running, *self._scheduler.waiting]
        holders = ", ".join(f"{r.id} holds {len(r.table)}" for r in live if r.table)
        for request in live:
            needs = self.config.blocks_for(len(request.history)) - len(request.table)
            message = (
                f"needs {needs} more of {self.config.num_blocks} blocks, "
                f"{self._space.pool.free} are free and nothing will release one: "
                f"{holders or 'nobody holds any'}"
            )
            request.message = message
        for request in live:
            self._end(request, "kv_capacity", request.message)

    # What can be seen.

    def _report(
        self, plan: StepPlan, emitted: dict[str, tuple[int, ...]], again: int
    ) -> StepReport:
        scheduled = {id: len(s.tokens) for id, s in plan.batch.items()}
        return StepReport(
            step=self.steps,
            scheduled=scheduled,
            admitted=tuple(plan.admitted),
            resumed=tuple(plan.resumed),
            finished=tuple(self._finished),
            victims=tuple(plan.victims),
            stalled=tuple(plan.stalled),
            copies=tuple(
                CopyProgress(copy.request.id, copy.direction, blocks, copy.complete)
                for copy, blocks in self._swap.take_moved()
            ),
            tokens_first=sum(scheduled.values()) - again,
            tokens_again=again,
            tokens_from_cache=plan.from_cache,
            emitted=emitted,
            events=self._journal.take(),
        )

    def snapshot(self) -> Snapshot:
        """Who holds what now, between two steps."""
        live = [*self._scheduler.running, *self._scheduler.waiting]
        on_gpu = [request for request in live if request.table]
        on_host = [request for request in live if request.host_table]
        pool = self._space.pool
        return Snapshot(
            running=self._ids_in_batch(paused=False),
            waiting=tuple(r.id for r in self._scheduler.waiting),
            paused=self._ids_in_batch(paused=True),
            free=pool.free,
            cached=pool.cached,
            in_flight=pool.in_flight,
            reserved_unused=sum(len(r.table) - self.config.blocks_for(r.computed) for r in on_gpu),
            host_free=self._swap.host.free,
            blocks={r.id: tuple(r.table) for r in on_gpu},
            kv={r.id: r.computed for r in on_gpu},
            host_blocks={r.id: tuple(r.host_table) for r in on_host},
            host_kv={r.id: r.host_kv for r in on_host},
            history={r.id: len(r.history) for r in live},
        )

    def check_integrity(self) -> None:
        """Raise AssertionError unless every block is accounted for; cheap enough for each step of a
        test, not of a service."""
        live = [request for request in self.requests.values() if request.live]
        self._space.pool.check_integrity(request.table for request in live)
        self._swap.host.check_integrity(request.host_table for request in live)

    @property
    def costs(self) -> CostModel | None:
        """The rates that method `auto` decided by, once it has."""
        return self._method.costs

    @property
    def damage(self) -> list[DamageFound]:
        """What the unsafe switches have broken so far."""
        return self._swap.damage

    @property
    def storms(self) -> list[Storm]:
        """Preemption storms so far."""
        return self._storm_watch.storms()

    @property
    def blocks_swapped(self) -> tuple[int, int]:
        """Blocks copied (out, in) so far."""
        return self._swap.blocks_out, self._swap.blocks_in
