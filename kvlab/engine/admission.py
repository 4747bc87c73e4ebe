"""Who of the waiting comes into the batch: strictly from the head of the queue."""

from __future__ import annotations

from collections.abc import Sequence

from kvlab.engine import priority
from kvlab.engine.config import NO_LIMIT
from kvlab.engine.events import Admitted
from kvlab.engine.reclaim import reclaim
from kvlab.engine.request import Request, RequestState
from kvlab.engine.scheduler import Scheduler


class Admission:
    """Serves the waiting queue with what the running requests have left of blocks, places and tokens."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._queues = scheduler.queues
        self._kv = scheduler.kv
        self._swap = scheduler.swap
        self._log = scheduler.log

    def serve_waiting(self) -> None:
        """Admit from the head of the queue until one has to wait."""
        config, plan, queues = self._scheduler.config, self._scheduler.plan, self._queues
        by_priority = config.preempt_for_priority
        while queues.waiting and (plan.budget > 0 or (by_priority and self._places <= 0)):
            request = queues.waiting[0]
            if never := self._kv.never_fits(request):
                reason = "kv_capacity" if request.num_outputs else "rejected"
                self._scheduler.finish(request, reason, never)
                continue
            if plan.preempted:
                return self._keep_waiting(request, "preempted_this_step")
            if queues.active >= (config.max_running or NO_LIMIT) or plan.budget <= 0:
                self._keep_waiting(request, "batch_full")
                return self._make_way(request)
            if request.state is RequestState.SWAPPING_OUT:
                return self._keep_waiting(request, "copy_in_flight")
            enter = self._restore if request.state is RequestState.SWAPPED else self._enter
            if not enter(request):
                return None
        return None

    @property
    def _places(self) -> int:
        return self._scheduler.config.places - self._queues.active

    def _keep_waiting(self, request: Request, why: str, needs: int | None = None) -> None:
        needs = self._kv.blocks_of_history(request) if needs is None else needs
        self._log.kept_waiting(request, why, needs, self._kv.pool.free)

    def _enter(self, request: Request) -> bool:
        """Admit the head of the queue, fresh or for recomputation, if there is room."""
        blocks, shared = self._needs(request)
        start = len(shared) * self._scheduler.config.block_size
        if not self._has_room(request, blocks, shared):
            return False
        if request.state is RequestState.WAITING:
            history = len(request.history)
            self._log.record(Admitted(id=request.id, history=history, from_cache=start))
        else:
            self._log.resumed(request, "recompute", start, from_cache=start)
            request.recovering = True
        self._queues.admit(request)
        self._kv.prefix.share(request, shared)
        self._scheduler.schedule(request, self._scheduler.tokens_for(request, start))
        return True

    def _restore(self, request: Request) -> bool:
        """Bring the head of the queue back from the host pool, if there is room for its history."""
        needs, _ = self._needs(request)
        batch = self._scheduler.plan.batch
        readers = self._swap.readers_to_overwrite(needs, self._queues.running, batch)
        if not readers and not self._has_room(request, needs):
            return False
        self._queues.admit(request)
        stays = request.computed
        self._log.resumed(request, "swap", stays + request.host_kv, stays=stays)
        request.recovering = True
        self._swap.start_in(request, readers)
        self._queues.take_failed_restores()
        if request.state is RequestState.RUNNING:
            self._scheduler.serve(request)
        return True

    def _needs(self, request: Request) -> tuple[int, list[int]]:
        """What the head of the queue needs to come in: blocks to take, and blocks to share."""
        if request.state is RequestState.SWAPPED:
            return self._kv.blocks_of_history(request) - len(request.table), []
        config, shared = self._scheduler.config, self._kv.prefix.find(request)
        start, gate = len(shared) * config.block_size, len(request.history)
        if config.admission == "first_chunk":
            gate = start + max(1, self._scheduler.tokens_for(request, start))
        positions = self._kv.positions_to_reserve(request, gate)
        return config.blocks_for(positions) - len(shared), shared

    def _has_room(self, request: Request, blocks: int, shared: Sequence[int] = ()) -> bool:
        """`blocks` are free, and the watermark besides while another request takes part. Those of
        the `shared` ones that are free will be taken, too."""
        pool = self._kv.pool
        margin = self._scheduler.config.watermark_blocks if self._queues.active else 0
        taken = sum(pool.is_free(block) for block in shared)
        reclaim(self._swap, self._queues.waiting[1:], blocks + taken + margin, request.id)
        needs = blocks + sum(pool.is_free(block) for block in shared)
        if needs + margin <= pool.free:
            return True
        self._keep_waiting(request, "watermark" if needs <= pool.free else "no_room", needs)
        self._make_way(request)
        return False

    def _make_way(self, request: Request) -> None:
        """The head of the queue found no place or no room: with preempt_for_priority, running requests
        of worse priority are preempted for it, if that is enough."""
        config, queues = self._scheduler.config, self._queues
        if not config.preempt_for_priority or request.state is RequestState.SWAPPING_OUT:
            return
        needs, shared = self._needs(request)
        to_come = self._kv.pool.free + self._swap.blocks_to_come - needs

        def enough(gone: Sequence[Request]) -> bool:
            active = sum(r.state is not RequestState.PAUSED for r in gone)
            margin = config.watermark_blocks if queues.active - active else 0
            tables = [r.table for r in (*gone, *queues.waiting[1:])]
            freed = self._kv.pool.held_by_nobody_but(tables) - set(shared)
            return self._places + active > 0 and to_come + len(freed) >= margin

        for victim in priority.who_makes_way(request, queues.running, enough):
            self._scheduler.preempt(victim, need_of=request.id, why="priority")
