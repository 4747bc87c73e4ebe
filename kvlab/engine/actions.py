"""What a scenario does to a run from outside, at the start of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvlab.engine.config import EngineConfig
from kvlab.engine.request import Request, RequestState
from kvlab.engine.scheduler import Scheduler
from kvlab.errors import BadInput

ALIVE = frozenset(RequestState) - {RequestState.FINISHED}
APPLIES_TO = {
    "abort": ALIVE,
    "next_victim": ALIVE,
    "preempt": {RequestState.RUNNING, RequestState.PAUSED},
    "pause": {RequestState.RUNNING},
    "resume": {RequestState.PAUSED},
}
"""The states in which an action means something."""

CHANGEABLE = ("method", "victim", "free_order")
"""Settings that may change while an engine runs. The sizes of the pools may not: memory is taken when
a server starts, and no engine that we know of gives some back to another size between two steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something done to a request, all samples of its prompt: abort, preempt, pause, resume, or
    next_victim.

    next_victim: the next time that a block is needed and the request could be paused for it, it is,
    whatever the policy says; once. `method` (recompute | swap | auto) goes with preempt; None leaves
    it to the engine.
    """

    step: int
    action: str
    id: str
    method: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """A setting (one of CHANGEABLE) that has another value from the start of a step on."""

    step: int
    setting: str
    value: str

    def applied(self, config: EngineConfig) -> EngineConfig:
        """The settings with the change. Raises BadInput for a value or a setting that cannot be."""
        if self.setting not in CHANGEABLE:
            raise BadInput(
                f"action at step {self.step}: {self.setting} cannot change while the engine runs; "
                f"{', '.join(CHANGEABLE)} can."
            )
        return replace(config, **{self.setting: self.value})  # type: ignore[arg-type]


def those_meant(action: Action, samples: Sequence[Request]) -> list[Request]:
    """The samples of the request on which the action can be carried out now."""
    return [sample for sample in samples if sample.state in APPLIES_TO[action.action]]


def carry_out(action: Action, samples: Sequence[Request], scheduler: Scheduler) -> None:
    """Do it to each of `samples`, which `those_meant` found."""
    if action.action == "next_victim":
        scheduler.named = list(samples)
    elif action.action == "preempt":
        for sample in reversed(samples):  # each goes to the front of the queue
            scheduler.preempt(sample, need_of=None, why="action", method=action.method)
    for sample in samples:
        if action.action == "abort":
            scheduler.finish(sample, "aborted")
        elif action.action == "pause":
            scheduler.pause(sample, need_of=None)
        elif action.action == "resume":
            scheduler.resume(sample)
