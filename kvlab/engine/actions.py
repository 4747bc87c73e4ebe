"""What a scenario does to a run from outside, at the start of a step."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvlab.engine.config import EngineConfig
from kvlab.errors import BadInput

CHANGEABLE = ("method", "victim", "free_order")
"""Settings that may change while an engine runs. The sizes of the pools may not: memory is taken when
a server starts, and no engine that we know of gives some back to another size between two steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something done to one request: abort, preempt, pause, resume, or next_victim.

    next_victim: the next time that a block is needed and the request could be paused for it, it is,
    whatever the policy says; once. `method` (recompute | swap | auto) goes with preempt; None leaves
    it to the engine.
    """

    step: int
    action: str
    id: str
    method: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
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
