"""What `kvlab predict` and `kvlab plan` do, apart from the command line's own part."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvlab.predict import helped, outcome, plan
from kvlab.predict.replay import Played
from kvlab.predict.server import Server, server_of
from kvlab.predict.workload import Workload, load_workload


@dataclass(frozen=True, slots=True)
class Asked:
    """A workload and a server by their names, as a person gives them."""

    workload: str
    gpu: str
    model: str
    tp: int = 1
    rate: float = 1.0
    settings: Sequence[str] = ()

    def load(self) -> tuple[Server, Workload]:
        """Raises BadInput, in one sentence."""
        server = server_of(self.gpu, self.model, self.tp, self.settings)
        return server, load_workload(self.workload).at_rate(self.rate)


def predicted(asked: Asked, *, as_json: bool) -> tuple[str, Played]:
    """What stdout gets, and the run."""
    server, workload = asked.load()
    say = sayer()
    played = outcome.predict(
        server, workload, tick=lambda share: say(f"{share:.0%} of the requests")
    )
    say("")
    if as_json:
        return json.dumps(outcome.summary(server, played), allow_nan=False), played
    return outcome.report(server, played), played


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
