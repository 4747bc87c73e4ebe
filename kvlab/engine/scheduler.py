"""Which requests run in the next step, who is paused for it, and who may come in.

One rule serves prefill, decode, chunks and resumption alike: a request is given the tokens of its
history that are not computed yet, within the limits of the step. Running requests come first, in the
order of their admission; then, unless somebody was preempted in this step, the waiting queue is
served strictly from its head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from kvlab.engine import pause_only, priority
from kvlab.engine.config import EngineConfig
from kvlab.engine.event_log import EventLog
from kvlab.engine.events import Admitted, BlockNeeded, Finished, Paused, Stalled, Unscheduled
from kvlab.engine.kv_cache_manager import KVCacheManager
from kvlab.engine.policies import Candidate, PolicyError, VictimPolicy
from kvlab.engine.request import Request, RequestState, ScheduledRequest
from kvlab.engine.resume_method import ResumeMethod
from kvlab.engine.runner import CopyError
from kvlab.engine.swap import Swap

NO_LIMIT = 1 << 60
PREEMPTIBLE = (RequestState.RUNNING, RequestState.PAUSED, RequestState.ENDING)


class Room(Enum):
    """What came of looking for blocks."""

    FOUND = "found"
    STALLED = "stalled"  # not in this step
    GIVEN_UP = "given up"  # the request was its own victim


@dataclass(slots=True)
class StepPlan:
    """What the scheduler decided in one step. `budget`: tokens that are left of the step."""

    budget: int
    batch: dict[str, ScheduledRequest] = field(default_factory=dict)
    preempted: bool = False  # somebody lost its place
    stalled: bool = False  # somebody has none of the blocks that it needs


class Scheduler:
    """The waiting queue, the running batch, and the decisions between two model executions.

    `running` keeps the order of admission; it holds paused requests and those being swapped in, too.
    `waiting` is in the order in which it will be served: by priority, and among equals the preempted
    before the fresh.
    """

    def __init__(
        self,
        config: EngineConfig,
        kv: KVCacheManager,
        swap: Swap,
        method: ResumeMethod,
        log: EventLog,
    ) -> None:
        self.config = config
        self.kv = kv
        self.swap = swap
        self.method = method
        self.log = log
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.named: list[Request] = []  # the next victims, named by an action
        self.policy = VictimPolicy(config.victim, config.victim_seed)
        self.begin()

    def begin(self) -> None:
        """Start a step's plan. Actions come next, then `schedule`."""
        self.plan = StepPlan(self.config.step_tokens or NO_LIMIT)

    def follow(self, config: EngineConfig) -> None:
        """Decide by another method, victim or free order from now on."""
        if config.victim != self.config.victim:
            self.policy = VictimPolicy(config.victim, config.victim_seed)
        self.method.method = config.method
        self.kv.pool.free_order = config.free_order
        self.config = config

    @property
    def order(self) -> dict[str, tuple[str, ...]]:
        """Ids of who runs, waits and is paused, each in the order in which it is or will be served."""
        paused = [request for request in self.running if request.state is RequestState.PAUSED]
        running = [request for request in self.running if request.state is not RequestState.PAUSED]
        those = {"running": running, "waiting": self.waiting, "paused": paused}
        return {name: tuple(request.id for request in of) for name, of in those.items()}

    # A step.

    def schedule(self) -> StepPlan:
        """Decide the step. Everything in the plan has its blocks when this returns."""
        for request in list(self.running):
            self._schedule_running(request)
        self._admit()
        return self.plan

    def _schedule_running(self, request: Request) -> None:
        if request.state is RequestState.PAUSED and self._pause_is_over(request):
            self._unpause(request)
        if request.state is not RequestState.RUNNING:  # or preempted by one before it
            return
        if never := self.never_fits(request):
            self.finish(request, "kv_capacity", never)
            return
        tokens = self._tokens_for(request, request.computed)
        try:
            if tokens and self._make_room(request, request.computed + tokens) is Room.FOUND:
                self._schedule(request, tokens)
        except PolicyError as error:
            self.finish(request, "error", f"no victim could be chosen: {error}")
        except CopyError as error:
            self.finish(request, "error", f"a shared block could not be copied: {error}")

    def _tokens_for(self, request: Request, computed: int) -> int:
        left = len(request.history) - computed
        return min(left, self.config.chunk_tokens or NO_LIMIT, self.plan.budget)

    def _schedule(self, request: Request, tokens: int) -> None:
        """Give `tokens` to a request for which there is room."""
        decodes = "decode" if request.num_outputs else "prefill"
        why = "recompute" if request.computed < request.ever_computed else decodes
        start, end = request.computed, request.computed + tokens
        self.kv.grow(request, end, why)
        self.kv.remember_full_blocks(request, end)
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
            self.kv.forget_unwritten_blocks(request)
            self.log.record(Unscheduled(id=request.id, tokens=len(scheduled.tokens)))

    # Room.

    def _make_room(self, request: Request, upto: int) -> Room:
        """See that blocks for positions below `upto` are free, preempting others if need be."""
        pool, needs = self.kv.pool, self.kv.missing(request, upto)
        if needs <= pool.free:
            return Room.FOUND
        logical = self.kv.first_missing(request)
        position = max(request.computed, logical * self.config.block_size)
        needed = BlockNeeded(
            id=request.id, position=position, logical=logical, needs=needs, free=pool.free
        )
        self.log.record(needed)
        self.swap.reclaim(self.waiting, needs, request.id)
        while (needs := self.kv.missing(request, upto)) > pool.free:
            if self.config.method == "pause_only":
                if able := pause_only.pauses_for(request, self.running):
                    self.pause(self._choose(request, able)[0], need_of=request.id)
                return self._stall(request, needs, "nothing_released")
            if pool.free + self.swap.blocks_to_come >= needs:
                return self._stall(request, needs, "copy_in_flight")
            candidates = self._candidates(request)
            if not candidates:
                why = "copy_in_flight" if self.swap.in_flight else "none_reclaimable"
                return self._stall(request, needs, why)
            victim, why = self._choose(request, candidates)
            self.preempt(victim, need_of=request.id, why=why)
            if victim is request:
                return Room.GIVEN_UP
        return Room.FOUND

    def _stall(self, request: Request, needs: int, why: str) -> Room:
        self.plan.stalled = True
        free = self.kv.pool.free
        self.log.record(Stalled(id=request.id, why=why, needs=needs, free=free))
        return Room.STALLED

    def _candidates(self, in_need: Request) -> list[Request]:
        """Who may be preempted: requests in the batch that would yield something now, oldest first."""
        able = [
            request
            for request in self.running
            if request.state in PREEMPTIBLE and self.kv.pool.reclaimable(request.table)
        ]
        if self.config.preempt_for_priority:
            able = priority.not_better(in_need, able)
        return [] if able == [in_need] and self.swap.in_flight else able

    def _choose(self, in_need: Request, candidates: list[Request]) -> tuple[Request, str]:
        """The victim, whom an action named or the policy chooses, and which of the two."""
        for request in reversed(candidates):
            if request in self.named:
                self.named.remove(request)
                return request, "action"
        others = [r for r in candidates if r is not in_need]
        if all(r.state is RequestState.PAUSED for r in others):
            # Nobody else will ever release a block by running: giving up its own, the requester would
            # come back to the same shortage for ever.
            candidates = others or candidates
        if not self.policy.steady and self.config.method != "pause_only":
            # Who was preempted while it recovered is left alone until it has its next token; where all
            # were, only the newest may be chosen. Else requests that recover in chunks could preempt
            # each other for ever.
            spared = [request for request in candidates if not request.preempted_in_recovery]
            candidates = spared or candidates[-1:]
        views = [Candidate.of(r, self.kv.pool.reclaimable(r.table)) for r in candidates]
        chosen = self.policy.choose(views, in_need.id)
        return next(r for r in candidates if r.id == chosen), self.policy.name

    # Pausing: skipped, nothing released.

    def pause(self, request: Request, need_of: str | None) -> None:
        """Skip a running request's execution from now on; it keeps its blocks."""
        self._unschedule(request)
        request.state, request.paused_for = RequestState.PAUSED, need_of
        why, held = "need" if need_of else "action", len(request.table)
        self.log.record(Paused(id=request.id, why=why, need_of=need_of, held=held))

    def resume(self, request: Request) -> None:
        """A paused request takes part again, as soon as the batch has a place."""
        request.resuming = True

    def _pause_is_over(self, request: Request) -> bool:
        if self.active >= (self.config.max_running or NO_LIMIT):
            return False
        over = not self.plan.stalled and pause_only.is_over(request, self.running, self._is_short)
        return request.resuming or over

    def _is_short(self, request: Request) -> bool:
        """Its next tokens need more blocks than are free."""
        upto = request.computed + self._tokens_for(request, request.computed)
        return self.kv.missing(request, upto) > self.kv.pool.free

    def _unpause(self, request: Request) -> None:
        """Its KV never left."""
        request.state, request.paused_for, request.resuming = RequestState.RUNNING, None, False
        self.log.resumed(request, "pause", request.computed)

    # Preemption.

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
            found=self.kv.held_by_others(request),
            host_free=self.swap.host.free,
            asked=method,
        )
        used = self.config.blocks_for(request.computed)
        stays = used - len(to_store) if resume.method == "swap" else 0
        self.log.preempted(request, need_of, why, resume, reclaimable=reclaimable, stays=stays)
        self.plan.preempted = True
        self.running.remove(request)
        request.preempted_in_recovery |= request.recovering
        request.recovering = False
        request.state, request.paused_for, request.resuming = RequestState.PREEMPTED, None, False
        if resume.method == "swap":
            self.swap.start_out(request)
        else:
            self.kv.release(request, "preempted")
            request.computed = 0
        self._enqueue_first(request)

    # The queue.

    def enqueue(self, request: Request) -> None:
        """A fresh request joins behind all that its priority allows."""
        request.state = RequestState.WAITING
        at = len(self.waiting)
        while at and self.waiting[at - 1].priority > request.priority:
            at -= 1
        self.waiting.insert(at, request)

    def _enqueue_first(self, request: Request) -> None:
        """A preempted request goes to the front of those with its priority."""
        at = 0
        while at < len(self.waiting) and self.waiting[at].priority < request.priority:
            at += 1
        self.waiting.insert(at, request)

    def join_after(self, fork: Request, parent: Request, siblings: Sequence[Request]) -> None:
        """A fork runs from the next step on, right after its parent and its earlier siblings; one that
        the batch has no place for waits, at the front like a preempted request."""
        if fork.table:
            at, queue = self.running.index(parent) + 1, self.running
            fork.state = RequestState.RUNNING
        else:
            at, queue = 0, self.waiting
            while at < len(queue) and queue[at].priority < fork.priority:
                at += 1
            fork.state = RequestState.WAITING
        while at < len(queue) and queue[at] in siblings:
            at += 1
        queue.insert(at, fork)

    @property
    def active(self) -> int:
        """Requests that take part in the batch: who is paused has no place in it."""
        return sum(request.state is not RequestState.PAUSED for request in self.running)

    @property
    def places(self) -> int:
        """Of the batch, that are free: each that runs needs a token a step at least."""
        limits = (self.config.max_running, self.config.step_tokens)
        return min(limit or NO_LIMIT for limit in limits) - self.active

    def take_failed_restores(self) -> None:
        """Requests whose swap-in broke off wait again, for recomputation."""
        for request in [r for r in self.running if r.state is RequestState.PREEMPTED]:
            self.running.remove(request)
            self._enqueue_first(request)

    def _blocks_of_history(self, request: Request) -> int:
        positions = min(len(request.history), request.most_kv)  # the last output gets no KV
        return self.config.blocks_for(self.kv.positions_to_reserve(request, positions))

    def never_fits(self, request: Request) -> str | None:
        """Why no pool state can hold the request, as a message with both numbers; None if one can."""
        needs, most = self._blocks_of_history(request), self.config.num_blocks
        return f"needs {needs} blocks, the pool has {most}" if needs > most else None

    # Admission.

    def _admit(self) -> None:
        most = self.config.max_running or NO_LIMIT
        by_priority = self.config.preempt_for_priority
        while self.waiting and (self.plan.budget > 0 or (by_priority and self.places <= 0)):
            request = self.waiting[0]
            if never := self.never_fits(request):
                self.finish(request, "kv_capacity" if request.num_outputs else "rejected", never)
                continue
            if self.plan.preempted:
                return self._keep_waiting(request, "preempted_this_step")
            if self.active >= most or self.plan.budget <= 0:
                self._keep_waiting(request, "batch_full")
                return self._make_way(request)
            if request.state is RequestState.SWAPPING_OUT:
                return self._keep_waiting(request, "copy_in_flight")
            enter = self._restore if request.state is RequestState.SWAPPED else self._enter
            if not enter(request):
                return None
        return None

    def _keep_waiting(self, request: Request, why: str, needs: int | None = None) -> None:
        needs = self._blocks_of_history(request) if needs is None else needs
        self.log.kept_waiting(request, why, needs, self.kv.pool.free)

    def _has_room(self, request: Request, blocks: int, shared: Sequence[int] = ()) -> bool:
        """`blocks` are free, and the watermark besides while another request takes part. Those of
        the `shared` ones that are free will be taken, too."""
        margin = self.config.watermark_blocks if self.active else 0
        taken = sum(self.kv.pool.is_free(block) for block in shared)
        self.swap.reclaim(self.waiting[1:], blocks + taken + margin, request.id)
        needs = blocks + sum(self.kv.pool.is_free(block) for block in shared)
        free = self.kv.pool.free
        if needs + margin <= free:
            return True
        self._keep_waiting(request, "watermark" if needs <= free else "no_room", needs)
        self._make_way(request)
        return False

    def _make_way(self, request: Request) -> None:
        """The head of the queue found no place or no room: with preempt_for_priority, running requests
        of worse priority are preempted for it, if that is enough."""
        if not self.config.preempt_for_priority or request.state is RequestState.SWAPPING_OUT:
            return
        needs, shared = self._needs(request)
        to_come = self.kv.pool.free + self.swap.blocks_to_come - needs

        def enough(gone: Sequence[Request]) -> bool:
            active = sum(r.state is not RequestState.PAUSED for r in gone)
            others = self.active - active
            margin = self.config.watermark_blocks if others else 0
            freed = self.kv.held_by_nobody_but([*gone, *self.waiting[1:]]) - set(shared)
            return self.places + active > 0 and to_come + len(freed) >= margin

        for victim in priority.who_makes_way(request, self.running, enough):
            self.preempt(victim, need_of=request.id, why="priority")

    def _enter(self, request: Request) -> bool:
        """Admit the head of the queue, fresh or for recomputation, if there is room."""
        blocks, shared = self._needs(request)
        start = len(shared) * self.config.block_size
        if not self._has_room(request, blocks, shared):
            return False
        if request.state is RequestState.WAITING:
            history = len(request.history)
            self.log.record(Admitted(id=request.id, history=history, from_cache=start))
        else:
            self.log.resumed(request, "recompute", start, from_cache=start)
            request.recovering = True
        self._join(request)
        self.kv.share_prefix(request, shared)
        self._schedule(request, self._tokens_for(request, start))
        return True

    def _needs(self, request: Request) -> tuple[int, list[int]]:
        """What the head of the queue needs to come in: blocks to take, and blocks to share."""
        if request.state is RequestState.SWAPPED:
            return self._blocks_of_history(request) - len(request.table), []
        shared = self.kv.find_prefix(request)
        start, gate = len(shared) * self.config.block_size, len(request.history)
        if self.config.admission == "first_chunk":
            gate = start + max(1, self._tokens_for(request, start))
        positions = self.kv.positions_to_reserve(request, gate)
        return self.config.blocks_for(positions) - len(shared), shared

    def _restore(self, request: Request) -> bool:
        """Bring the head of the queue back from the host pool, if there is room for its history."""
        needs, _ = self._needs(request)
        readers = self.swap.readers_to_overwrite(needs, self.running, self.plan.batch)
        if not readers and not self._has_room(request, needs):
            return False
        self._join(request)
        stays = request.computed
        self.log.resumed(request, "swap", stays + request.host_kv, stays=stays)
        request.recovering = True
        self.swap.start_in(request, readers)
        self.take_failed_restores()
        if request.state is RequestState.RUNNING:
            self._schedule_running(request)
        return True

    def _join(self, request: Request) -> None:
        self.waiting.remove(request)
        self.running.append(request)
        request.state = RequestState.RUNNING

    # The end.

    def finish(self, request: Request, reason: str, message: str | None = None) -> None:
        """End a request, whatever its state, and release all that it holds."""
        if request.state is RequestState.FINISHED:
            return
        if request.state is RequestState.PENDING:  # aborted before it arrived
            self.log.arrived(request)
        for queue in (self.running, self.waiting):
            if request in queue:
                queue.remove(request)
        request.state = RequestState.FINISHED
        request.finish_reason, request.message = reason, message
        outputs = request.num_outputs
        self.log.record(Finished(id=request.id, why=reason, outputs=outputs, message=message))
        cancelled = "aborted" if reason == "aborted" else "finished"
        release = cancelled if reason in ("aborted", "stop", "length") else "cut_short"
        up = self.waiting[0] if self.waiting else None
        next_up = (up.id, self._blocks_of_history(up)) if up else None
        self.kv.release(request, release, next_up)
        self.swap.cancel(request, cancelled)
        request.computed = 0
