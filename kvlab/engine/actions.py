"""What a scenario does to a run from outside, at the start of a step: nothing acts within one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kvlab.engine.config import EngineConfig
from kvlab.engine.events import ActionTaken, SettingChanged
from kvlab.engine.forks import Forks
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


class Actions:
    """The actions to come. `requests` are all that the engine knows, by id."""

    def __init__(self, requests: Mapping[str, Request], forks: Forks, scheduler: Scheduler) -> None:
        self._requests = requests
        self._forks = forks
        self._scheduler = scheduler
        self._to_come: list[Action | SettingChange] = []

    def __len__(self) -> int:
        return len(self._to_come)

    def add(self, action: Action | SettingChange) -> None:
        """Raises BadInput for an unknown id, and for a setting or a value that cannot be."""
        if isinstance(action, SettingChange):
            action.applied(self._scheduler.config)
        elif action.id not in self._requests:
            raise BadInput(f"action at step {action.step}: no request has the id {action.id!r}.")
        self._to_come.append(action)

    def act(self, step: int) -> None:
        """Carry out what is asked for this step, and say what came of it."""
        due = [action for action in self._to_come if action.step <= step]
        self._to_come = [action for action in self._to_come if action.step > step]
        for action in due:
            if isinstance(action, SettingChange):
                self._change(action)
                continue
            samples = [self._requests[action.id], *self._forks.of(action.id)]
            meant = [sample for sample in samples if sample.state in APPLIES_TO[action.action]]
            live = any(sample.state is not RequestState.FINISHED for sample in samples)
            why = "taken" if meant else "not_running" if live else "ended"
            self._scheduler.log.record(ActionTaken(id=action.id, action=action.action, why=why))
            self._carry_out(action, meant)

    def _change(self, change: SettingChange) -> None:
        config = self._scheduler.config
        before = getattr(config, change.setting)
        self._scheduler.log.record(
            SettingChanged(
                setting=change.setting,
                value=change.value,
                before=before if isinstance(before, str) else "function",
                why="same" if before == change.value else "taken",
            )
        )
        self._scheduler.follow(change.applied(config))

    def _carry_out(self, action: Action, samples: Sequence[Request]) -> None:
        scheduler = self._scheduler
        if action.action == "next_victim":
            scheduler.victims.named = list(samples)
        elif action.action == "preempt":
            for sample in reversed(samples):  # each goes to the front of the queue
                scheduler.preempt(sample, need_of=None, why="action", method=action.method)
        for sample in samples:
            if action.action == "abort":
                scheduler.finish(sample, "aborted")
            elif action.action == "pause":
                scheduler.pause(sample, need_of=None)
            elif action.action == "resume":
                scheduler.pausing.resume(sample)
