"""The engine's schedule without its events: who runs, who waits and who is preempted, in counts.

Same rules, same blocks, same prefix cache as `kvlab.engine`, held to it by tests on random workloads;
what it leaves out is tokens, events and KV, so that an hour of a server's traffic takes seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvlab.engine.block_pool import BlockPool
from kvlab.engine.config import EngineConfig
from kvlab.engine.policies import Candidate, VictimPolicy
from kvlab.errors import BadInput
from kvlab.predict.clock import StepShape

NO_LIMIT = 1 << 60


@dataclass(slots=True, eq=False)
class Job:
    """A request on its way. Counts are tokens or positions.

    `history` is prompt and outputs selected or being selected; `keys` name its full blocks for the
    prefix cache: as many as the workload gives, then its own.
    """

    index: int
    prompt: int
    max_tokens: int
    blocks: Sequence[int] = ()

    history: int = 0
    computed: int = 0
    ever: int = 0  # positions below were computed at least once
    selected: int = 0  # outputs, those of a step that is still running included
    table: list[int] = field(default_factory=list)
    room: int = 0  # positions that the table's blocks hold
    known: int = 0  # leading blocks of the table that are in the prefix index
    full: int = 0  # positions that fill one block more than those
    host: int = 0  # positions in host blocks
    given: int = 0  # tokens in the step that is being scheduled
    runs: bool = False
    recovers: bool = False  # resumed, no output since
    spared: bool = False  # preempted while it recovered, no output since
    preemptions: int = 0
    recomputed: int = 0
    from_cache: int = 0

    def __post_init__(self) -> None:
        self.history = self.prompt

    @property
    def most(self) -> int:
        """Positions that it can need KV for."""
        return self.prompt + self.max_tokens - 1


@dataclass(slots=True)
class Step:
    """One scheduled step: its shape for the clock, and whose first and last outputs it selects."""

    shape: StepShape = field(default_factory=StepShape)
    firsts: list[Job] = field(default_factory=list)
    lasts: list[Job] = field(default_factory=list)
    preempted: int = 0
    kept: str = ""
    """Why the head of the queue still waits: preempted, no_room, batch_full, budget; empty: nobody."""


class FastEngine:
    """Waiting queue, running batch and block pool of one server."""

    def __init__(self, config: EngineConfig) -> None:
        refuse_unpredictable(config)
        self.config = config
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self.preemptions = 0
        self.recomputed = 0
        self.from_cache = 0
        self.copied = 0  # positions copied to host memory and back
        self._pool = BlockPool(config.num_blocks, config.free_order)
        self._policy = VictimPolicy(config.victim)
        self._newest = config.victim == "newest"
        self._host_free = config.host_blocks
        self._step = Step()
        self._batch: list[Job] = []
        self._budget = 0

    @property
    def free(self) -> int:
        """Blocks that an allocation could take now."""
        return self._pool.free

    def refuse_if_never(self, job: Job) -> None:
        """Raise BadInput for a request that no state of the pool can hold to its end."""
        needs, most = self.config.blocks_for(job.most), self.config.num_blocks
        if needs > most:
            raise BadInput(
                f"request {job.index + 1} of the workload needs {needs:,} blocks for its "
                f"{job.prompt:,} + {job.max_tokens:,} tokens, the pool has {most:,}: "
                "take a larger card or more of them."
            )

    # A step.

    def schedule(self) -> Step:
        """Decide the next step, and count it as computed."""
        config = self.config
        self._step = step = Step()
        self._batch = batch = []
        self._budget = config.step_tokens or NO_LIMIT
        most = config.chunk_tokens or NO_LIMIT
        for job in tuple(self.running):
            if not job.runs:  # preempted by one before it
                continue
            tokens = job.history - job.computed
            if tokens > most:
                tokens = most
            if tokens > self._budget:
                tokens = self._budget
            if not tokens:  # or its last output is being selected
                continue
            end = job.computed + tokens
            if end > job.room and not self._make_room(job, end):
                continue
            job.given = tokens
            self._budget -= tokens
            batch.append(job)
            if end >= job.full:
                self._remember(job, end)
        if step.preempted:
            step.kept = "preempted"
        else:
            step.kept = self._admit()
        self._compute()
        return step

    def end(self, job: Job) -> None:
        """Its last output was delivered: give back all that it holds."""
        if job.runs:
            self.running.remove(job)
            job.runs = False
        else:
            self.waiting.remove(job)
        self._release(job)
        self._host_free += self.config.blocks_for(job.host)
        job.host = 0

    def _compute(self) -> None:
        """What was given is computed; whose history it completes selects an output."""
        shape, firsts, lasts = self._step.shape, self._step.firsts, self._step.lasts
        for job in self._batch:
            tokens = job.given
            if not tokens:  # taken back
                continue
            job.given = 0
            start = job.computed
            job.computed = end = start + tokens
            if start < job.ever:
                again = min(end, job.ever) - start
                job.recomputed += again
                self.recomputed += again
            if end > job.ever:
                job.ever = end
            if tokens == 1:
                shape.decodes.append(end)
            else:
                shape.prefills.append((tokens, start))
            if end == job.history:
                job.recovers = job.spared = False
                job.selected += 1
                if job.selected == 1:
                    firsts.append(job)
                if job.selected == job.max_tokens:
                    lasts.append(job)
                else:
                    job.history = end + 1

    # Blocks.

    def _reserve(self, job: Job, upto: int) -> int:
        return max(upto, job.most) if self.config.allocation == "reserve_max" else upto

    def _grow(self, job: Job, upto: int) -> None:
        needs = self.config.blocks_for(self._reserve(job, upto)) - len(job.table)
        if needs > 0:
            job.table.extend(self._pool.allocate(needs))
            job.room = len(job.table) * self.config.block_size

    def _make_room(self, job: Job, end: int) -> bool:
        """Take the blocks for positions below `end`, preempting for them if need be."""
        needs = self.config.blocks_for(self._reserve(job, end)) - len(job.table)
        while needs > self._pool.free:
            victim = self._victim(job)
            if victim is None:
                return False
            self._preempt(victim)
            if victim is job:
                return False
        self._grow(job, end)
        return True

    def _release(self, job: Job) -> None:
        self._pool.release(job.table)
        job.table = []
        job.room = job.known = job.full = job.computed = 0

    def _key(self, job: Job, logical: int) -> bytes:
        """Names the full block: the workload's number for it, or the request's own.

        What follows a prompt that is numbered to its end is named after its last block, since equal
        prompts have equal outputs.
        """
        given = len(job.blocks)
        if logical < given:
            return b"%d" % job.blocks[logical]
        if given and given * self.config.block_size == job.prompt:
            return b"%d+%d" % (job.blocks[-1], logical)
        return b"%d:%d" % (job.index, logical)

    def _remember(self, job: Job, upto: int) -> None:
        """Blocks that positions below `upto` fill can be shared from now on."""
        size = self.config.block_size
        full = upto // size
        if self.config.prefix_cache:
            for logical in range(job.known, full):
                self._pool.remember(job.table[logical], self._key(job, logical))
            job.known = full
        job.full = (full + 1) * size

    # Preemption.

    def _victim(self, in_need: Job) -> Job | None:
        """Whom the policy chooses among those who would give up a block; None if nobody would."""
        if self._newest:
            for job in reversed(self.running):
                if self._pool.reclaimable(job.table):
                    return job
            return None
        candidates = [job for job in self.running if self._pool.reclaimable(job.table)]
        if not self._policy.steady:
            candidates = [job for job in candidates if not job.spared] or candidates[-1:]
        if not candidates:
            return None
        views = [self._candidate(job) for job in candidates]
        chosen = self._policy.choose(views, str(in_need.index))
        return next(job for job in candidates if str(job.index) == chosen)

    def _candidate(self, job: Job) -> Candidate:
        return Candidate(
            id=str(job.index),
            priority=0,
            computed=job.computed,
            outputs=job.selected,
            max_tokens=job.max_tokens,
            blocks=len(job.table),
            reclaimable=self._pool.reclaimable(job.table),
        )

    def _preempt(self, job: Job) -> None:
        """Out of the batch, to the front of the queue, its blocks given up."""
        if job.given:
            self._budget += job.given
            job.given = 0
            self._forget_unwritten(job)
        if self.config.method == "swap":
            self._copy_out(job)
        self._release(job)
        job.runs = False
        job.spared = job.spared or job.recovers
        job.recovers = False
        job.preemptions += 1
        self.running.remove(job)
        self.waiting.appendleft(job)
        self.preemptions += 1
        self._step.preempted += 1

    def _forget_unwritten(self, job: Job) -> None:
        full = job.computed // self.config.block_size
        for logical in range(full, job.known):
            self._pool.forget(job.table[logical])
        job.known = min(job.known, full)
        job.full = 0

    def _copy_out(self, job: Job) -> None:
        """Its KV goes to host blocks, if there is room; blocks without KV are given up before."""
        blocks = self.config.blocks_for(job.computed)
        if blocks and blocks <= self._host_free:
            self._host_free -= blocks
            job.host = job.computed
            self._count_copied(blocks)
            self._pool.release(job.table[blocks:])
            del job.table[blocks:]

    def _count_copied(self, blocks: int) -> None:
        positions = blocks * self.config.block_size
        self._step.shape.copied += positions
        self.copied += positions

    # Admission.

    def _admit(self) -> str:
        """Let in who fits, strictly from the head; returns why the next one still waits."""
        waiting, most = self.waiting, self.config.max_running or NO_LIMIT
        while waiting:
            if not self._budget:
                return "budget"
            if len(self.running) >= most:
                return "batch_full"
            job = waiting[0]
            if not (self._restore(job) if job.host else self._enter(job)):
                return "no_room"
        return ""

    def _enter(self, job: Job) -> bool:
        """Admit the head of the queue, fresh or to be computed again, if there is room."""
        config = self.config
        found = self._find_prefix(job)
        start = len(found) * config.block_size
        tokens = min(job.history - start, config.chunk_tokens or NO_LIMIT, self._budget)
        gate = start + tokens if config.admission == "first_chunk" else job.history
        taken = sum(map(self._pool.is_free, found))
        needs = config.blocks_for(self._reserve(job, gate)) - len(found) + taken
        if not self._fits(needs):
            return False
        self._join(job)
        if found:
            self._pool.share(found)
            job.table = found
            job.room = start
            job.known = len(found)
            job.computed = start
            job.ever = max(job.ever, start)
            job.from_cache += start
            self.from_cache += start
        self._give(job, tokens)
        return True

    def _find_prefix(self, job: Job) -> list[int]:
        """Blocks that already hold the start of its history, up to the first miss."""
        found: list[int] = []
        if self.config.prefix_cache:
            for logical in range((job.history - 1) // self.config.block_size):
                block = self._pool.find(self._key(job, logical))
                if block is None:
                    break
                found.append(block)
        return found

    def _restore(self, job: Job) -> bool:
        """Bring the head of the queue back from host memory, if there is room for its history."""
        config = self.config
        if not self._fits(config.blocks_for(self._reserve(job, job.history))):
            return False
        self._join(job)
        self._grow(job, job.host)
        blocks = config.blocks_for(job.host)
        self._host_free += blocks
        self._count_copied(blocks)
        job.computed, job.host = job.host, 0
        self._give(
            job, min(job.history - job.computed, config.chunk_tokens or NO_LIMIT, self._budget)
        )
        return True

    def _fits(self, needs: int) -> bool:
        margin = self.config.watermark_blocks if self.running else 0
        return needs + margin <= self._pool.free

    def _join(self, job: Job) -> None:
        self.waiting.popleft()
        self.running.append(job)
        job.runs = True
        job.recovers = job.preemptions > 0

    def _give(self, job: Job, tokens: int) -> None:
        end = job.computed + tokens
        self._grow(job, end)
        job.given = tokens
        self._budget -= tokens
        self._batch.append(job)
        self._remember(job, end)


def refuse_unpredictable(config: EngineConfig) -> None:
    """Raise BadInput for settings that the fast schedule does not follow."""
    if config.method == "swap" and config.prefix_cache:
        raise BadInput(
            "engine.method = swap together with engine.prefix_cache is not predicted; set "
            "engine.prefix_cache=false."
        )
    wrong = {
        "method": config.method not in ("recompute", "swap"),
        "victim": not isinstance(config.victim, str) or config.victim == "random",
        "copy_blocks_per_step": config.copy_blocks_per_step is not None,
        "preempt_for_priority": config.preempt_for_priority,
        "unsafe": bool(config.unsafe),
    }
    for name, is_wrong in wrong.items():
        if is_wrong:
            raise BadInput(f"engine.{name} = {getattr(config, name)!r} is not predicted.")
