"""Which requests run in the next step, and who is paused for it.

One rule serves prefill, decode, chunks and resumption alike: a request is given the tokens of its
history that are not computed yet, within the limits of the step. Running requests come first, in the
order of their admission; then, unless somebody was preempted in this step, the waiting queue is
served (kvlab.engine.admission).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from kvlab.engine.config import NO_LIMIT, EngineConfig
from kvlab.engine.event_log import EventLog
from kvlab.engine.events import BlockNeeded, Finished, Stalled, Unscheduled
from kvlab.engine.kv_cache_manager import KVCacheManager
from kvlab.engine.pausing import Pausing
from kvlab.engine.policies import PolicyError
from kvlab.engine.queues import Queues
from kvlab.engine.reclaim import reclaim
from kvlab.engine.request import Request, RequestState, ScheduledRequest
from kvlab.engine.resume_method import ResumeMethod
from kvlab.engine.runner import CopyError
from kvlab.engine.swap import Swap
from kvlab.engine.victims import Victims


class Room(Enum):
    """What came of looking for blocks."""

    FOUND = "found"
    STALLED = "stalled"  # not in this step
    GIVEN_UP = "given up"  # the request was its own victim


@dataclass(slots=True)
class StepPlan:
    """What was decided for one step. `budget`: tokens that are left of the step."""

    budget: int
    batch: dict[str, ScheduledRequest] = field(default_factory=dict)
    preempted: bool = False  # somebody lost its place
    stalled: bool = False  # somebody has none of the blocks that it needs


class Scheduler:
    """The running batch, and the decisions between two model executions."""

    def __init__(
        self,
        config: EngineConfig,
        queues: Queues,
        kv: KVCacheManager,
        swap: Swap,
        method: ResumeMethod,
        log: EventLog,
    ) -> None:
        self.config = config
        self.queues = queues
        self.kv = kv
        self.swap = swap
        self.method = method
        self.log = log
        self.victims = Victims(config, queues, kv.pool)
        self.pausing = Pausing(queues, log, self._is_short)
        self.begin()

    def begin(self) -> None:
        """Start a step's plan."""
        self.plan = StepPlan(self.config.step_tokens or NO_LIMIT)

    def follow(self, config: EngineConfig) -> None:
        """Decide by another method, victim or free order from now on."""
        self.victims.follow(config)
        self.method.method = config.method
        self.kv.pool.free_order = config.free_order
        self.config = config

    # A step.

    def serve_running(self) -> None:
        """Give each running request its tokens. Who is in the plan has its blocks afterwards."""
        for request in list(self.queues.running):
            self.serve(request)

    def serve(self, request: Request) -> None:
        """Give a request of the batch its tokens, if there is room or can be made."""
        paused = request.state is RequestState.PAUSED
        if paused and self.queues.active < (self.config.max_running or NO_LIMIT):
            self.pausing.end_if_over(request, stalled=self.plan.stalled)
        if request.state is not RequestState.RUNNING:  # or preempted by one before it
            return
        if never := self.kv.never_fits(request):
            self.finish(request, "kv_capacity", never)
            return
        tokens = self.tokens_for(request, request.computed)
        try:
            if tokens and self._make_room(request, request.computed + tokens) is Room.FOUND:
                self.schedule(request, tokens)
        except PolicyError as error:
            self.finish(request, "error", f"no victim could be chosen: {error}")
        except CopyError as error:
            self.finish(request, "error", f"a shared block could not be copied: {error}")

    def tokens_for(self, request: Request, computed: int) -> int:
        """Tokens after the `computed` ones that the request may be given in this step."""
        left = len(request.history) - computed
        return min(left, self.config.chunk_tokens or NO_LIMIT, self.plan.budget)

    def schedule(self, request: Request, tokens: int) -> None:
        """Give `tokens` to a request for which there is room."""
        decodes = "decode" if request.num_outputs else "prefill"
        why = "recompute" if request.computed < request.ever_computed else decodes
        start, end = request.computed, request.computed + tokens
        self.kv.grow(request, end, why)
        self.kv.prefix.remember(request, end)
        samples = end == len(request.history)
        self.plan.budget -= tokens
        self.plan.batch[request.id] = ScheduledRequest(
            id=request.id,
            tokens=tuple(request.history[start:end]),
            start=start,
            table=tuple(request.table),
            sampling=request.samplings if samples else (),
        )
        self.log.scheduled(request, why, tokens, samples=samples)

    def _unschedule(self, request: Request) -> None:
        """Take back what a victim was given in this step: it emits nothing."""
        scheduled = self.plan.batch.pop(request.id, None)
        if scheduled:
            self.plan.budget += len(scheduled.tokens)
            self.kv.prefix.forget_unwritten(request)
            self.log.record(Unscheduled(id=request.id, tokens=len(scheduled.tokens)))

    # Room.

    def _is_short(self, request: Request) -> bool:
        upto = request.computed + self.tokens_for(request, request.computed)
        return self.kv.missing(request, upto) > self.kv.pool.free

    def _make_room(self, request: Request, upto: int) -> Room:
        """See that blocks for positions below `upto` are free, preempting others if need be."""
        pool, needs = self.kv.pool, self.kv.missing(request, upto)
        if needs <= pool.free:
            return Room.FOUND
        logical = self.kv.first_missing(request)
        first = max(request.computed, logical * self.config.block_size)
        self.log.record(
            BlockNeeded(id=request.id, position=first, logical=logical, needs=needs, free=pool.free)
        )
        reclaim(self.swap, self.queues.waiting, needs, request.id)
        while (needs := self.kv.missing(request, upto)) > pool.free:
            if self.config.method == "pause_only":
                if able := self.pausing.able_for(request):
                    self.pause(self.victims.choose(request, able)[0], need_of=request.id)
                return self._stall(request, needs, "nothing_released")
            if pool.free + self.swap.blocks_to_come >= needs:
                return self._stall(request, needs, "copy_in_flight")
            copying = bool(self.swap.copies.in_flight)
            candidates = self.victims.candidates(request, copying=copying)
            if not candidates:
                why = "copy_in_flight" if copying else "none_reclaimable"
                return self._stall(request, needs, why)
            victim, why = self.victims.choose(request, candidates)
            self.preempt(victim, need_of=request.id, why=why)
            if victim is request:
                return Room.GIVEN_UP
        return Room.FOUND

    def _stall(self, request: Request, needs: int, why: str) -> Room:
        self.plan.stalled = True
        free = self.kv.pool.free
        self.log.record(Stalled(id=request.id, why=why, needs=needs, free=free))
        return Room.STALLED

    # Out of the batch.

    def pause(self, request: Request, need_of: str | None) -> None:
        """Skip a running request; it keeps its blocks."""
        self._unschedule(request)
        self.pausing.begin(request, need_of)

    def preempt(
        self, request: Request, *, need_of: str | None, why: str, method: str | None = None
    ) -> None:
        """Take a running request out of the batch and reclaim its blocks; it waits at the front.

        By recompute its KV is gone and its history kept; by swap its KV goes to host blocks first.
        """
        self._unschedule(request)
        to_store, reclaimable = self.swap.to_store(request), self.kv.pool.reclaimable(request.table)
        resume = self.method.choose(
            request,
            to_store=len(to_store),
            found=self.kv.prefix.held_by_others(request),
            host_free=self.swap.host.free,
            asked=method,
        )
        used = self.config.blocks_for(request.computed)
        stays = used - len(to_store) if resume.method == "swap" else 0
        self.log.preempted(request, need_of, why, resume, reclaimable=reclaimable, stays=stays)
        self.plan.preempted = True
        self.queues.leave(request)
        request.preempted_in_recovery |= request.recovering
        request.recovering = False
        request.state, request.paused_for, request.resuming = RequestState.PREEMPTED, None, False
        if resume.method == "swap":
            self.swap.start_out(request)
        else:
            self.kv.release(request, "preempted")
            request.computed = 0
        self.queues.enqueue_first(request)

    def finish(self, request: Request, reason: str, message: str | None = None) -> None:
        """End a request, whatever its state, and release all that it holds."""
        if request.state is RequestState.FINISHED:
            return
        if request.state is RequestState.PENDING:  # aborted before it arrived
            self.log.arrived(request)
        self.queues.leave(request)
        request.state = RequestState.FINISHED
        request.finish_reason, request.message = reason, message
        outputs = request.num_outputs
        self.log.record(Finished(id=request.id, why=reason, outputs=outputs, message=message))
        cancelled = "aborted" if reason == "aborted" else "finished"
        release = cancelled if reason in ("aborted", "stop", "length") else "cut_short"
        up = self.queues.waiting[0] if self.queues.waiting else None
        next_up = (up.id, self.kv.blocks_of_history(up)) if up else None
        self.kv.release(request, release, next_up)
        self.swap.cancel(request, cancelled)
        request.computed = 0
