"""The front door: `kvlab.run(…)`, and what can be done with the run that it returns."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import EllipsisType
from typing import Any

from kvlab.draw.pair import Pair
from kvlab.draw.player import Player
from kvlab.engine.policies import Candidate, VictimFunction
from kvlab.errors import BadInput
from kvlab.files.plain_data import parse
from kvlab.runs.fork import Fork, scenario_of
from kvlab.runs.run import Run, run_scenario
from kvlab.runs.scenario import Scenario, load_scenario, scenario_from
from kvlab.trace.document import Trace
from kvlab.trace.ranges import lesson_range

Named = str | Path | dict[str, Any]
"""A scenario: the name of a shipped one, a file, YAML text, or the mapping itself."""


def run(
    scenario: Named,
    *settings: str,
    victim: str | VictimFunction | None = None,
    model: str | Path | EllipsisType | None = ...,
    device: str | None = None,
) -> LabRun:
    """Run a scenario to its end on the real engine, and record it.

    `scenario` is a shipped one's name, a file, YAML text or a dict. `settings` are `PATH=VALUE`
    texts, as after `--set`. `victim` says who is paused when a block is needed: a policy's name, or
    a function of (running, need) that returns one of `running`, or its id. `running` are the
    requests that could be paused, oldest admission first, each with id, arrived (its arrival step),
    priority, computed, outputs, max_tokens, blocks, reclaimable; `need` is the id of the request
    that needs a block. A function that raises or names nobody ends the request in need with one
    sentence, and nobody else's run. `model` is a name or a folder, None for scheduling alone;
    `device` auto, cpu or cuda.

    Raises BadInput, in one sentence, for what cannot run.

    >>> story = run("figure-5")
    >>> story
    figure-5: 8 steps, 1 preemption; A 6 tokens, B 4 tokens; story, float32 on cpu
    >>> story.summary["tokens_recomputed"]
    8
    >>> def latest(running, need):
    ...     return max(running, key=lambda request: request.arrived)
    >>> run("victims", victim=latest).trace["scenario"]["engine"]["victim"]
    'latest'
    """
    return LabRun.of(run_scenario(scenario_for(scenario, settings, victim, model, device)))


def scenario_for(
    named: Named,
    settings: Sequence[str] = (),
    victim: str | VictimFunction | None = None,
    model: str | Path | EllipsisType | None = ...,
    device: str | None = None,
) -> Scenario:
    """The scenario that `run` runs. Raises BadInput."""
    for setting in settings:
        if not isinstance(setting, str):
            raise BadInput(
                f'{setting!r:.60}: write a setting as text, as in "engine.num_blocks=5".'
            )
    changes = [*settings]
    if not isinstance(model, EllipsisType):
        changes.append(f"model={json.dumps(None if model is None else str(model))}")
    if device is not None:
        changes.append(f"device={json.dumps(device)}")
    if isinstance(victim, str):
        changes.append(f"engine.victim={json.dumps(victim)}")
    elif victim is not None and not callable(victim):
        raise BadInput(
            f"victim = {victim!r:.60}: give a policy's name or a function of (running, need)."
        )
    found = _read(named, changes)
    return found.with_victim(victim) if callable(victim) else found


def _read(named: Named, changes: Sequence[str]) -> Scenario:
    if isinstance(named, dict):
        return scenario_from(named, Path.cwd(), "scenario").with_settings(changes)
    if isinstance(named, str) and ("\n" in named or named.lstrip().startswith("{")):
        try:
            document = parse(named)
        except BadInput as error:
            raise BadInput(f"scenario: {error}") from None
        if not isinstance(document, dict):
            raise BadInput("scenario: must be a mapping with name, engine and requests.")
        return scenario_from(document, Path.cwd(), "scenario").with_settings(changes)
    if not isinstance(named, str | Path):
        raise BadInput(
            f"scenario {named!r:.60}: give a shipped one's name, a file, YAML text or a dict."
        )
    return load_scenario(str(named), changes)


@dataclass(frozen=True, slots=True, repr=False)
class LabRun(Run):
    """A finished run: `summary` (a dict, as `kvlab run --summary` prints it), `trace` (the recorded
    events; `trace["events"]` and `trace.events` are the same), `engine` and `runner` as the run left
    them. In a notebook it shows itself as a player."""

    @classmethod
    def of(cls, made: Run) -> LabRun:
        """The same run with these methods."""
        return cls(made.scenario, made.trace, made.engine, made.runner)

    def player(self, **traits: Any) -> Player:
        """The picture, opened on its lesson's part of the run; `traits` are the player's."""
        start, stop = lesson_range(self.trace)
        return Player(self.trace, **({"start": start, "stop": stop} | traits))

    def compare(self, other: Run | Trace, *, title: str = "") -> Pair:
        """This run and another, side by side on one axis of steps, with their differences named.

        Raises BadInput for what is no run.
        """
        if not isinstance(other, Run | Trace):
            raise BadInput(f"compare takes a run and got {other!r:.60}.")
        return Pair(self.trace, other.trace if isinstance(other, Run) else other, title=title)

    def what_if(self, step: int = 1, **change: str | int | Callable[..., Any]) -> LabRun:
        """The run again with one thing changed from the start of `step` on: method, victim (a
        policy's name), next_victim (a request's id), free_order, or num_blocks (from step 1 on).

        Raises BadInput for anything else.

        >>> run("figure-5").what_if(step=3, method="swap").summary["tokens_recomputed"]
        0
        """
        if len(change) != 1:
            raise BadInput(
                'what_if takes one change, as in what_if(step=3, method="swap"); '
                f"it got {', '.join(change) or 'none'}."
            )
        ((setting, value),) = change.items()
        if isinstance(step, bool) or not isinstance(step, int) or step < 1:
            raise BadInput(f"what_if: step = {step!r:.60} must be a whole number from 1 on.")
        if not isinstance(value, str | int):
            raise BadInput(
                f"what_if: {setting} = {value!r:.60} must be a name or a number; "
                "a function goes to kvlab.run(…, victim=…)."
            )
        forked = Fork(step, setting, value).scenario(scenario_of(self))
        return LabRun.of(run_scenario(forked))

    def __repr__(self) -> str:
        """One line: what ran, how long, what each request got."""
        found, run = self.summary, self.trace.document["run"]
        on = f"{found['model']}, {run['dtype']} on {run['device']}"
        each = [(id, len(one["output"])) for id, one in found["requests"].items()]
        sent = ", ".join(f"{id} {_counted(tokens, 'token')}" for id, tokens in each[:4])
        more = f" and {len(each) - 4} more" if len(each) > 4 else ""
        steps, times = (
            _counted(found["steps"], "step"),
            _counted(found["preemptions"], "preemption"),
        )
        where = on if found["model"] else "no model, scheduling alone"
        return f"{found['scenario']}: {steps}, {times}; {sent}{more}; {where}"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return self.player()._repr_mimebundle_(**kwargs)

    def _ipython_display_(self) -> None:
        self.player()._ipython_display_()


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


__all__ = ["Candidate", "LabRun", "run", "scenario_for"]
