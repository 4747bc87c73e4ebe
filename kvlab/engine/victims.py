"""Who is preempted when a running request needs a block that is not free."""

from __future__ import annotations

from kvlab.engine import priority
from kvlab.engine.block_pool import BlockPool
from kvlab.engine.config import EngineConfig
from kvlab.engine.policies import Candidate, VictimPolicy
from kvlab.engine.queues import Queues
from kvlab.engine.request import Request, RequestState

PREEMPTIBLE = (RequestState.RUNNING, RequestState.PAUSED, RequestState.ENDING)


class Victims:
    """Finds the candidates and asks the policy, within what keeps the engine going."""

    def __init__(self, config: EngineConfig, queues: Queues, pool: BlockPool) -> None:
        self.config = config
        self.policy = VictimPolicy(config.victim, config.victim_seed)
        self.named: list[Request] = []  # the next victims, named by an action
        self._queues = queues
        self._pool = pool

    def follow(self, config: EngineConfig) -> None:
        """Choose by another policy from now on."""
        if config.victim != self.config.victim:
            self.policy = VictimPolicy(config.victim, config.victim_seed)
        self.config = config

    def candidates(self, in_need: Request, *, copying: bool) -> list[Request]:
        """Who may be preempted: requests in the batch that would yield something now, oldest first.
        While a copy is under way (`copying`), nobody gives up its own blocks for itself."""
        able = [
            request
            for request in self._queues.running
            if request.state in PREEMPTIBLE and self._pool.reclaimable(request.table)
        ]
        if self.config.preempt_for_priority:
            able = priority.not_better(in_need, able)
        return [] if able == [in_need] and copying else able

    def choose(self, in_need: Request, candidates: list[Request]) -> tuple[Request, str]:
        """The victim, whom an action named or the policy chooses, and which of the two.

        Raises PolicyError when a victim function raises or names nobody of the candidates.
        """
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
        views = [Candidate.of(r, self._pool.reclaimable(r.table)) for r in candidates]
        chosen = self.policy.choose(views, in_need.id)
        return next(r for r in candidates if r.id == chosen), self.policy.name
