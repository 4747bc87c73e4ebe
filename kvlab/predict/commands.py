"""What `kvlab predict` and `kvlab plan` do, apart from the command line's own part."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kvlab.errors import BadInput
from kvlab.predict import helped, outcome, plan
from kvlab.predict.as_scenario import scenario_of
from kvlab.predict.replay import Played
from kvlab.predict.server import Server, server_of
from kvlab.predict.workload import Workload, load_workload

MOST_TRACED = 250_000
"""Outputs of a run whose trace is written: a kilobyte each."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A workload and a server by their names, as a person gives them; `first`: of how many requests."""

    workload: str
    gpu: str
    model: str
    tp: int = 1
    rate: float = 1.0
    settings: Sequence[str] = ()
    first: int | None = None

    def load(self) -> tuple[Server, Workload]:
        """Raises BadInput, in one sentence."""
        server = server_of(self.gpu, self.model, self.tp, self.settings)
        workload = load_workload(self.workload).at_rate(self.rate)
        return server, workload.first(self.first or len(workload.requests))


@dataclass(frozen=True, slots=True)
class Predicted:
    """A run and the server that it was predicted for."""

    server: Server
    played: Played

    def told(self, *, as_json: bool) -> str:
        """What stdout gets."""
        if as_json:
            return json.dumps(outcome.summary(self.server, self.played), allow_nan=False)
        return outcome.report(self.server, self.played)

    def scenario(self) -> dict[str, Any]:
        """What the engine with its events runs in the same steps."""
        return scenario_of(self.server, self.played)


def predicted(asked: Asked, *, traced: bool = False) -> Predicted:
    """Predict. Raises BadInput, before the run, for one that is too long to be `traced`."""
    server, workload = asked.load()
    outputs = sum(one.output_tokens for one in workload.requests)
    if traced and outputs > MOST_TRACED:
        raise BadInput(
            f"--json: {outputs:,} outputs are more than the {MOST_TRACED:,} of a trace that can be "
            "opened; take the workload's first ones with --requests."
        )
    say = sayer()
    played = outcome.predict(server, workload, tick=lambda share: say(f"{share:.0%} are served"))
    say("")
    return Predicted(server, played)


def planned(asked: Asked, limits: Sequence[str], *, as_json: bool) -> str:
    """The largest rate and number of users within limits, as text or JSON."""
    wanted = [plan.limit_of(text) for text in limits]
    server, workload = asked.load()
    say = sayer()
    found = plan.plan(server, workload, wanted, say)
    say("")
    return json.dumps(plan.summary(found), allow_nan=False) if as_json else plan.report(found)


def what_helps(asked: Asked, *, as_json: bool) -> str:
    """Ten changes, predicted and ranked, as text or JSON."""
    server, workload = asked.load()
    say = sayer()
    found = helped.helped(server, workload, say)
    say("")
    return json.dumps(helped.summary(found), allow_nan=False) if as_json else helped.report(found)


def sayer() -> Callable[[str], None]:
    """Shows on a terminal what is going on, a few times a second; says nothing elsewhere."""
    if not sys.stderr.isatty():
        return lambda _: None
    last = 0.0

    def say(text: str) -> None:
        nonlocal last
        now = time.monotonic()
        if not text or now - last > 0.2:
            last = now
            print(f"\r\033[K{text[:78]}", end="", file=sys.stderr, flush=True)

    return say
