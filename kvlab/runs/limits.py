"""How large a run may be that a page makes for its visitor, and how far a run has got."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

from kvlab.engine.report import StepReport
from kvlab.errors import BadInput
from kvlab.runs.scenario import Scenario
from kvlab.trace.speech import ENGLISH, Speech

MOST_REQUESTS = 64
MOST_SLOTS = 65_536  # of the GPU pool, and of the CPU pool
MOST_TOKENS = 20_000  # prompts as written and outputs as asked for, over all samples
MOST_STEPS = 20_000
MOST_SECONDS = 600.0


def refuse_too_large(scenario: Scenario, speech: Speech = ENGLISH) -> None:
    """Raise BadInput, with the number, for a run that is larger than a visitor's may be."""
    document = scenario.document
    refuse_more(len(document["requests"]), MOST_REQUESTS, "requests", speech)
    tokens = sum(
        request["n"] * (len(request["prompt"]) + request["max_tokens"])
        for request in document["requests"]
    )
    refuse_more(tokens, MOST_TOKENS, "tokens", speech)
    engine = document["engine"]
    if not scenario.sized_at_run:
        slots = engine["num_blocks"] * engine["block_size"]
        refuse_more(slots, MOST_SLOTS, "slots", speech)
    slots = engine["host_blocks"] * engine["block_size"]
    refuse_more(slots, MOST_SLOTS, "host", speech)


def refuse_more(number: int, most: int, what: str, speech: Speech) -> None:
    if number > most:
        text = speech(
            "lab.too_many",
            number=speech.number(number),
            what=speech(f"lab.many_{what}"),
            most=speech.number(most),
        )
        raise BadInput(f"{text} {speech('lab.more_at_home')}")


class TooLong(BaseException):
    """A run has come to a bound that its caller set; the text says it. Not an Exception: the engine
    turns those that a model raises into requests that end with `error`."""

    def __init__(self, bound: str) -> None:
        super().__init__(
            f"The run was broken off after {bound}, before it came to its end: make it smaller."
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has got. `finished` of `requests` have ended; `tokens` were put out by all."""

    step: int
    events: int
    finished: int
    requests: int
    tokens: int
    seconds: float  # since the first step began

    def __str__(self) -> str:
        return (
            f"step {self.step}, {self.finished} of {self.requests} requests finished, "
            f"{self.tokens} tokens put out, {self.seconds:.1f} s"
        )

    def as_json(self) -> dict[str, float]:
        return asdict(self)


class Tally:
    """Counts a run's steps while it is made, from now on, and keeps it within its bounds."""

    def __init__(
        self,
        scenario: Scenario,
        most_steps: int = MOST_STEPS,
        most_seconds: float = MOST_SECONDS,
    ) -> None:
        self._most_steps, self._most_seconds = most_steps, most_seconds
        self._own = {request["id"] for request in scenario.document["requests"]}
        self._events = self._finished = self._tokens = 0
        self._began = time.perf_counter()

    def add(self, report: StepReport) -> Progress:
        """Count a step that was made. Raises TooLong at the bound of steps."""
        self._events += len(report.events)
        self._finished += len(self._own.intersection(report.finished))
        self._tokens += sum(map(len, report.emitted.values()))
        if report.step >= self._most_steps and self._finished < len(self._own):
            raise TooLong(f"{self._most_steps:,} steps")
        return Progress(
            step=report.step,
            events=self._events,
            finished=self._finished,
            requests=len(self._own),
            tokens=self._tokens,
            seconds=time.perf_counter() - self._began,
        )

    def refuse_too_long(self) -> None:
        """Raise TooLong at the bound of seconds; to be asked inside of a long step, too."""
        if time.perf_counter() - self._began > self._most_seconds:
            raise TooLong(f"{self._most_seconds:,.0f} seconds")
