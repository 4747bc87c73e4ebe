"""Which requests run in the next step, who is paused for it, and who may come in.

One rule serves prefill, decode, chunks and resumption alike: a request is given the tokens of its
history that are not computed yet, within the limits of the step. Running requests come first, in the
order of their admission; then, unless somebody was preempted in this step, the waiting queue is
served strictly from its head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvlab.engine.config import EngineConfig
from kvlab.engine.events import (
    Admitted,
    BlockNeeded,
    KeptWaiting,
    Paused,
    Preempted,
    Resumed,
    Scheduled,
    Stalled,
    Unscheduled,
)
from kvlab.engine.journal import Journal
from kvlab.engine.kv_space import KvSpace
from kvlab.engine.mover import CopyError
from kvlab.engine.policies import Candidate, PolicyError, VictimPolicy
from kvlab.engine.report import Stall, Victim
from kvlab.engine.request import Request, RequestState, ScheduledRequest
from kvlab.engine.resume_method import Choice, ResumeMethod
from kvlab.engine.swap import Swap

NO_LIMIT = 1 << 60

EndRequest = Callable[[Request, str, str], None]
"""(request, finish reason, message): the engine ends it and releases what it holds."""


@dataclass(slots=True)
class StepPlan:
    """What the scheduler decided in one step, in order."""

    budget: int
    batch: dict[str, ScheduledRequest]
    admitted: list[str]
    resumed: list[str]
    victims: list[Victim]
    stalled: list[Stall]
    from_cache: int = 0


class Scheduler:
    """The waiting queue, the running batch, and the decisions between two model executions.

    `running` keeps the order of admission; it holds paused requests and those being swapped in, too.
    `waiting` is in the order in which it will be served: by priority, and among equals the preempted
    before the fresh.
    """

    def __init__(
        self,
        config: EngineConfig,
        space: KvSpace,
        swap: Swap,
        method: ResumeMethod,
        journal: Journal,
        end_request: EndRequest,
    ) -> None:
        self.config = config
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.next_victim: Request | None = None  # named by an action, until it can be chosen
        self._space = space
        self._swap = swap
        self._method = method
        self._journal = journal
        self._end = end_request
        self._policy = VictimPolicy(config.victim, config.victim_seed)
        self._plan = self._new_plan()

    def _new_plan(self) -> StepPlan:
        return StepPlan(self.config.step_tokens or NO_LIMIT, {}, [], [], [], [])

    def follow(self, config: EngineConfig) -> None:
        """Decide by another method, victim or free order from now on."""
        if config.victim != self.config.victim:
            self._policy = VictimPolicy(config.victim, config.victim_seed)
        self._method.method = config.method
        self._space.pool.free_order = config.free_order
        self.config = config

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

    def join_after(self, parent: Request, fork: Request) -> None:
        """A fork runs from the next step on, right after its parent and its earlier siblings."""
        at = self.running.index(parent) + 1
        while at < len(self.running) and self.running[at].id.startswith(f"{parent.id}."):
            at += 1
        fork.state = RequestState.RUNNING
        self.running.insert(at, fork)

    def next_up(self) -> tuple[str, int] | None:
        """Who waits at the head of the queue, and the blocks that its whole history needs."""
        if not self.waiting:
            return None
        return self.waiting[0].id, self._blocks_of_history(self.waiting[0])

    def _blocks_of_history(self, request: Request) -> int:
        positions = self._space.positions_to_reserve(request, len(request.history))
        return self.config.blocks_for(positions)

    def never_fits(self, request: Request) -> str | None:
        """Why no pool state can hold the request, as a message with both numbers; None if one can."""
        needs, most = self._blocks_of_history(request), self.config.num_blocks
        return f"needs {needs} blocks, the pool has {most}" if needs > most else None

    # A step.

    def begin(self) -> None:
        """Start a step's plan. Actions come next, then `schedule`."""
        self._plan = self._new_plan()

    def schedule(self) -> StepPlan:
        """Decide the step. Everything in the plan has its blocks when this returns."""
        for request in list(self.running):
            if request in self.running:  # not preempted by one before it
                self._schedule_running(request)
        self._admit()
        return self._plan

    def _tokens_for(self, request: Request) -> int:
        left = len(request.history) - request.computed
        return min(left, self.config.chunk_tokens or NO_LIMIT, self._plan.budget)

    def _schedule_running(self, request: Request) -> None:
        if request.state is RequestState.SWAPPING_IN or not self._may_run(request):
            return
        never = self.never_fits(request)
        if never:
            self._end(request, "kv_capacity", never)
            return
        tokens = self._tokens_for(request)
        if tokens > 0 and self._make_room(request, request.computed + tokens):
            self._schedule(request, tokens)

    def _may_run(self, request: Request) -> bool:
        """False while paused. A pause for another's need ends when nobody is short any more."""
        if request.state is not RequestState.PAUSED:
            return True
        if request.paused_for is None or self._plan.stalled or self._is_short(request):
            return False
        in_need = next((r for r in self.running if r.id == request.paused_for), None)
        if in_need is not None and self._is_short(in_need):
            return False
        self.unpause(request)
        return True

    def _is_short(self, request: Request) -> bool:
        """Its next tokens need more blocks than are free."""
        upto = request.computed + self._tokens_for(request)
        return self._space.missing(request, upto) > self._space.pool.free

    def unpause(self, request: Request) -> None:
        """A paused request takes part again; its KV never left."""
        request.state, request.paused_for = RequestState.RUNNING, None
        self._record_resumed(request, "pause", request.computed, 0)

    def _schedule(self, request: Request, tokens: int) -> None:
        """Give `tokens` to a request for which there is room."""
        why = self._why_scheduled(request)
        start, end = request.computed, request.computed + tokens
        try:
            self._space.grow(request, end, why)
        except CopyError as error:
            self._end(request, "error", f"a shared block could not be copied: {error}")
            return
        self._space.remember_full_blocks(request, end)
        samples = end == len(request.history)
        self._plan.budget -= tokens
        self._plan.batch[request.id] = ScheduledRequest(
            id=request.id,
            tokens=tuple(request.history[start:end]),
            start=start,
            table=tuple(request.table),
            sampling=request.samplings if samples else (),
        )
        self._journal.record(
            Scheduled,
            id=request.id,
            why=why,
            start=start,
            tokens=tokens,
            again=max(0, min(end, request.ever_computed) - start),
            samples=samples,
        )

    def _why_scheduled(self, request: Request) -> str:
        if request.computed < request.ever_computed:
            return "recompute"
        return "decode" if request.num_outputs else "prefill"

    def _unschedule(self, request: Request) -> None:
        """Take back what a victim was given in this step: it emits nothing."""
        scheduled = self._plan.batch.pop(request.id, None)
        if scheduled:
            self._plan.budget += len(scheduled.tokens)
            self._space.forget_unwritten_blocks(request)
            self._journal.record(Unscheduled, id=request.id, tokens=len(scheduled.tokens))

    # Room.

    def _make_room(self, request: Request, upto: int) -> bool:
        """True when blocks for positions below `upto` are free, pausing others for it if need be."""
        pool = self._space.pool
        said = False
        while (needs := self._space.missing(request, upto)) > pool.free:
            if not said:
                logical = self._space.first_missing(request)
                self._journal.record(
                    BlockNeeded,
                    id=request.id,
                    position=max(request.computed, logical * self.config.block_size),
                    logical=logical,
                    needs=needs,
                    free=pool.free,
                )
                said = True
            if self.config.method == "pause_only":
                self._pause_for(request)
                return request.live and self._stall(request, needs, "nothing_released")
            if pool.free + self._swap.blocks_to_come >= needs:
                return self._stall(request, needs, "copy_in_flight")
            chosen = self._choose_victim(request)
            if chosen is None:
                copying = bool(self._swap.in_flight)
                return self._stall(
                    request, needs, "copy_in_flight" if copying else "none_reclaimable"
                )
            victim, why = chosen
            if not victim.live:  # the requester ended with its own policy error
                return False
            self.preempt(victim, need_of=request.id, why=why)
            if victim is request:
                return False
        return True

    def _stall(self, request: Request, needs: int, why: str) -> bool:
        self._plan.stalled.append(Stall(request.id, needs, why))
        self._journal.record(
            Stalled, id=request.id, why=why, needs=needs, free=self._space.pool.free
        )
        return False

    def _candidates(self, pausing: bool) -> list[Request]:
        """Running requests that would yield something now, oldest first."""
        states = (RequestState.RUNNING,) if pausing else (RequestState.RUNNING, RequestState.PAUSED)
        return [
            request
            for request in self.running
            if request.state in states
            and (pausing or self._space.pool.reclaimable(request.table) > 0)
        ]

    def _choose_victim(
        self, in_need: Request, *, pausing: bool = False
    ) -> tuple[Request, str] | None:
        """The policy's choice and the policy, or whom an action named; None when nobody would yield
        anything. A policy that fails ends the request in need, which is returned."""
        candidates = self._candidates(pausing)
        if not candidates or (candidates == [in_need] and (pausing or self._swap.in_flight)):
            return None
        if self.next_victim in candidates:
            named, self.next_victim = self.next_victim, None
            return named, "action"
        paused = [request for request in candidates if request.state is RequestState.PAUSED]
        if paused and not any(
            r.state is RequestState.RUNNING for r in candidates if r is not in_need
        ):
            # Nobody else will ever release a block by running: giving up its own, the requester would
            # come back to the same shortage for ever.
            candidates = paused
        if not pausing and not self._policy.steady:
            candidates = self._spare_robbed(candidates)
        views = [self._candidate(request) for request in candidates]
        try:
            chosen = self._policy.choose(views, in_need.id)
        except PolicyError as error:
            self._end(in_need, "error", f"no victim could be chosen: {error}")
            return in_need, self._policy.name
        return next(request for request in candidates if request.id == chosen), self._policy.name

    def _spare_robbed(self, candidates: list[Request]) -> list[Request]:
        """Who was preempted while it recovered is left alone until it has its next token.

        Where all were, only the newest may be chosen. Otherwise some policies let requests that
        recover in chunks preempt each other for ever.
        """
        return [request for request in candidates if not request.robbed] or candidates[-1:]

    def _candidate(self, request: Request) -> Candidate:
        return Candidate(
            id=request.id,
            priority=request.priority,
            computed=request.computed,
            outputs=request.num_outputs,
            max_tokens=request.max_tokens,
            blocks=len(request.table),
            reclaimable=self._space.pool.reclaimable(request.table),
        )

    # Pausing without release.

    def _pause_for(self, in_need: Request) -> None:
        """Method pause_only: a victim is skipped, once for each shortage; nothing is released."""
        if any(request.paused_for == in_need.id for request in self.running):
            return
        chosen = self._choose_victim(in_need, pausing=True)
        if chosen is not None and chosen[0].live:
            self.pause(chosen[0], need_of=in_need.id)

    def pause(self, request: Request, need_of: str | None) -> None:
        """Skip a running request's execution from now on; it keeps its blocks."""
        self._unschedule(request)
        request.state, request.paused_for = RequestState.PAUSED, need_of
        self._journal.record(
            Paused,
            id=request.id,
            why="need" if need_of else "action",
            need_of=need_of,
            held=len(request.table),
        )

    # Preemption.

    def preempt(
        self, request: Request, *, need_of: str | None, why: str, method: str | None = None
    ) -> None:
        """Take a running request out of the batch and reclaim its blocks; it waits at the front.

        By recompute its KV is gone and its history kept; by swap its KV goes to host blocks first.
        """
        self._unschedule(request)
        choice = self._method.choose(request, method)
        blocks, reclaimable = len(request.table), self._space.pool.reclaimable(request.table)
        self._record_preempted(request, need_of, why, choice, reclaimable)
        self.running.remove(request)
        request.preemptions += 1
        request.robbed = request.robbed or request.resumed_step is not None
        request.resumed_step = None
        request.state, request.paused_for = RequestState.PREEMPTED, None
        fallback, used = choice.fallback, choice.method
        if used == "swap" and not self._swap.start_out(request):
            used, fallback = "recompute", "copy_failed"
        if used == "recompute":
            self._space.release(request, "preempted")
        request.computed = 0
        self._enqueue_first(request)
        self._plan.victims.append(
            Victim(
                request.id,
                used,
                why,
                need_of,
                reclaimable,
                blocks,
                fallback,
                choice.recompute_s,
                choice.swap_s,
            )
        )

    def _record_preempted(
        self, request: Request, need_of: str | None, why: str, choice: Choice, reclaimable: int
    ) -> None:
        self._journal.record(
            Preempted,
            id=request.id,
            need_of=need_of,
            victim=why,
            why=why,
            method=choice.method,
            fallback=choice.fallback,
            reclaimable=reclaimable,
            held=len(request.table),
            history=len(request.history),
            kv=request.computed,
            delivered=request.delivered,
            recompute_s=choice.recompute_s,
            swap_s=choice.swap_s,
        )

    def take_failed_restores(self) -> None:
        """Requests whose swap-in broke off wait again, for recomputation."""
        for request in [r for r in self.running if r.state is RequestState.PREEMPTED]:
            self.running.remove(request)
            self._enqueue_first(request)

    # Admission.

    def _admit(self) -> None:
        most = self.config.max_running or NO_LIMIT
        while self.waiting and self._plan.budget > 0:
            request = self.waiting[0]
            if self._end_if_hopeless(request):
                continue
            if self._plan.victims:
                self._keep_waiting(request, "preempted_this_step")
                return
            if len(self.running) >= most:
                self._keep_waiting(request, "batch_full")
                return
            if request.state is RequestState.SWAPPING_OUT:
                self._keep_waiting(request, "copy_in_flight")
                return
            admitted = self._restore(request) if request.host_table else self._enter(request)
            if not admitted:
                return

    def _end_if_hopeless(self, request: Request) -> bool:
        never = self.never_fits(request)
        if never:
            reason = "kv_capacity" if request.num_outputs else "rejected"
            self._end(request, reason, never)
        return bool(never)

    def _has_room(self, request: Request, needs: int) -> bool:
        """`needs` blocks are free, and the watermark besides while another request runs."""
        free = self._space.pool.free
        margin = self.config.watermark_blocks if self.running else 0
        if needs + margin <= free:
            return True
        self._keep_waiting(request, "watermark" if needs <= free else "no_room", needs)
        return False

    def _keep_waiting(self, request: Request, why: str, needs: int | None = None) -> None:
        self._journal.record(
            KeptWaiting,
            id=request.id,
            why=why,
            needs=self._blocks_of_history(request) if needs is None else needs,
            free=self._space.pool.free,
            history=len(request.history),
        )

    def _enter(self, request: Request) -> bool:
        """Admit the head of the queue, fresh or for recomputation, if there is room."""
        shared = self._space.find_prefix(request)
        start = len(shared) * self.config.block_size
        left = len(request.history) - start
        tokens = min(left, self.config.chunk_tokens or NO_LIMIT, self._plan.budget)
        gate = start + tokens if self.config.admission == "first_chunk" else len(request.history)
        positions = self._space.positions_to_reserve(request, gate)
        taken = sum(self._space.pool.is_free(block) for block in shared)
        needs = self.config.blocks_for(positions) - len(shared) + taken
        if not self._has_room(request, needs):
            return False
        self._join(request)
        if request.has_run:
            self._record_resumed(request, "recompute", start, start)
        else:
            self._journal.record(
                Admitted, id=request.id, history=len(request.history), from_cache=start
            )
            self._plan.admitted.append(request.id)
        self._space.share_prefix(request, shared)
        request.from_cache += start
        self._plan.from_cache += start
        request.ever_computed = max(request.ever_computed, start)
        self._schedule(request, tokens)
        return True

    def _restore(self, request: Request) -> bool:
        """Bring the head of the queue back from the host pool, if there is room for its history."""
        needs = self._blocks_of_history(request)
        if "read_before_copy_in" in self.config.unsafe and needs > self._space.pool.free:
            ending = self._ending_in_this_step()
            if needs <= self._space.pool.free + sum(len(other.table) for other in ending):
                self._join(request)
                self._record_resumed(request, "swap", request.host_kv, 0)
                self._swap.start_in_too_early(request, ending)
                return True
        if not self._has_room(request, needs):
            return False
        self._join(request)
        self._record_resumed(request, "swap", request.host_kv, 0)
        if not self._swap.start_in(request):
            self.take_failed_restores()
            self._plan.resumed.remove(request.id)
            return True
        if request.state is RequestState.RUNNING:
            self._schedule_running(request)
        return True

    def _ending_in_this_step(self) -> list[Request]:
        """Scheduled requests whose last output is selected in this step; nobody else has blocks of
        theirs."""
        pool = self._space.pool
        return [
            request
            for request in self.running
            if request.id in self._plan.batch
            and self._plan.batch[request.id].sampling
            and request.num_outputs + 1 == request.max_tokens
            and pool.reclaimable(request.table) == len(request.table)
        ]

    def _join(self, request: Request) -> None:
        self.waiting.remove(request)
        self.running.append(request)
        request.state = RequestState.RUNNING

    def _record_resumed(self, request: Request, why: str, kv: int, from_cache: int) -> None:
        self._plan.resumed.append(request.id)
        if why != "pause":
            request.resumed_step = self._journal.step
        self._journal.record(
            Resumed,
            id=request.id,
            why=why,
            history=len(request.history),
            kv=kv,
            rebuild=max(0, request.ever_computed - kv),
            from_cache=from_cache,
        )
