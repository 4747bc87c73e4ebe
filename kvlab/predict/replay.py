"""A workload played through the fast schedule by a clock: when each request's outputs came."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from kvlab.engine.config import EngineConfig
from kvlab.predict.clock import FIRST_STEP, HOST_STEP, Clock
from kvlab.predict.fast import FastEngine, Job, Step
from kvlab.predict.workload import BLOCK, Workload

TICK = 256
"""Steps between two calls of `tick`."""
AHEAD = 2
"""Steps in flight with asynchronous scheduling: one runs, the next is decided."""

Tick = Callable[[float], None]
"""Told the share of requests that have ended. Whoever wants to stop raises in it."""


@dataclass(slots=True)
class Timeline:
    """What could be seen at the end of each step."""

    seconds: array[float] = field(default_factory=lambda: array("d"))
    running: array[int] = field(default_factory=lambda: array("i"))
    waiting: array[int] = field(default_factory=lambda: array("i"))
    free: array[int] = field(default_factory=lambda: array("i"))  # blocks
    preempted: array[int] = field(default_factory=lambda: array("i"))  # in this step
    tokens: array[int] = field(default_factory=lambda: array("i"))  # computed in this step
    kept: list[str] = field(
        default_factory=list
    )  # why the head of the queue waits; "": nobody does


@dataclass(slots=True)
class Played:
    """How a run went. Times in seconds, one for each request, in the workload's order.

    `taken` is when the engine took a request up, `joined` the number of the step before that in which
    it could first run. `decided` has the seconds of every step that was decided; in some there is
    nothing to do, those are 0 and not in the timeline.
    """

    workload: Workload
    jobs: list[Job]
    taken: list[float]
    joined: list[int]
    decided: array[float]
    first: list[float]
    last: list[float]
    engine: FastEngine
    timeline: Timeline
    closed: bool  # requests came when others ended, not at their arrivals

    @property
    def steps(self) -> int:
        return len(self.timeline.seconds)


def play(
    workload: Workload,
    config: EngineConfig,
    clock: Clock,
    *,
    users: int | None = None,
    tick: Tick | None = None,
) -> Played:
    """Serve the workload to its end.

    With `config.async_scheduling` a step is decided while the one before it runs, so that the card
    never waits for the host and a request that comes waits for one step more. `users`: that many
    requests in flight, the next comes when one ends, whatever their arrivals say. Raises BadInput for
    a request that can never fit.
    """
    return _Player(workload, config, clock, users, tick).play()


class _Player:
    def __init__(
        self,
        workload: Workload,
        config: EngineConfig,
        clock: Clock,
        users: int | None,
        tick: Tick | None,
    ) -> None:
        shares = config.block_size == BLOCK
        jobs = [
            Job(at, asked.prompt_tokens, asked.output_tokens, asked.blocks if shares else ())
            for at, asked in enumerate(workload.requests)
        ]
        engine = FastEngine(config)
        for job in jobs:
            engine.refuse_if_never(job)
        count = len(jobs)
        self._run = Played(
            workload,
            jobs,
            taken=[0.0] * count,
            joined=[0] * count,
            decided=array("d"),
            first=[0.0] * count,
            last=[0.0] * count,
            engine=engine,
            timeline=Timeline(),
            closed=users is not None,
        )
        self._clock = clock
        self._most = AHEAD if config.async_scheduling else 1
        self._tick = tick
        arrivals = [asked.arrival_s for asked in workload.requests]
        if users is not None:
            arrivals = [0.0 if at < users else float("inf") for at in range(count)]
        self._arrivals = arrivals
        self._next = 0  # of the requests to come
        self._ended = 0

    def play(self) -> Played:
        run, engine = self._run, self._run.engine
        flying: deque[tuple[Step, float]] = deque()  # steps and when they end
        now = busy_until = 0.0
        while self._ended < len(run.jobs):
            self._receive(now)
            step = engine.schedule()
            if step.shape.tokens or step.shape.copied:
                start = max(busy_until, now + HOST_STEP)
                if not run.steps:
                    start += FIRST_STEP
                    now = start  # the host is held up, too
                seconds = self._clock.seconds(step.shape)
                busy_until = start + seconds
                run.decided.append(seconds)
                flying.append((step, busy_until))
                self._note(step, busy_until)
                if len(flying) < self._most:
                    continue
            else:
                run.decided.append(0.0)
            if flying:
                step, end = flying.popleft()
                now = max(now, end)
                self._deliver(step, now)
            else:
                now = max(now, self._arrivals[self._next])
        return run

    def _receive(self, now: float) -> None:
        run = self._run
        while self._next < len(run.jobs) and self._arrivals[self._next] <= now:
            at = self._next
            run.taken[at] = now
            run.joined[at] = len(run.decided)
            run.engine.waiting.append(run.jobs[at])
            self._next += 1

    def _deliver(self, step: Step, now: float) -> None:
        run = self._run
        for job in step.firsts:
            run.first[job.index] = now
        for job in step.lasts:
            run.last[job.index] = now
            run.engine.end(job)
            self._ended += 1
            if run.closed:
                self._let_in(now)

    def _let_in(self, now: float) -> None:
        """Somebody has left: the next one comes."""
        waits = self._next
        while waits < len(self._arrivals) and self._arrivals[waits] <= now:
            waits += 1
        if waits < len(self._arrivals):
            self._arrivals[waits] = now

    def _note(self, step: Step, end: float) -> None:
        line, engine = self._run.timeline, self._run.engine
        line.seconds.append(end)
        line.running.append(len(engine.running))
        line.waiting.append(len(engine.waiting))
        line.free.append(engine.free)
        line.preempted.append(step.preempted)
        line.tokens.append(step.shape.tokens)
        line.kept.append(step.kept)
        if self._tick is not None and self._run.steps % TICK == 0:
            self._tick(self._ended / len(self._run.jobs))
