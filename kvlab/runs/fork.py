"""What if: a run again, with one thing changed from the start of a step on.

A fork is a scenario like another: the run's own, with one more action (or, for the pool, another
size). So it can be saved, run again and shared, and nothing in it is hidden. Since the engine is
deterministic, the forked run repeats the first one up to its step; `departure` checks that event for
event, because a trace may come from other hardware, or from method `auto`, which measures.

A change takes effect when the scheduler decides, at the start of a step: nothing acts within one. The
pool's size is no setting that changes while a server runs: with another one the run differs from its
first step on.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvlab.engine.actions import CHANGEABLE
from kvlab.engine.config import ENGINE_PRESETS, FREE_ORDERS, METHODS, MOST_BLOCKS, VICTIMS
from kvlab.errors import BadInput
from kvlab.runs.run import Run
from kvlab.runs.scenario import (
    DEFAULTS,
    ENGINE_DEFAULTS,
    REQUEST_DEFAULTS,
    SET,
    Scenario,
    scenario_from,
)
from kvlab.trace.differences import first_difference
from kvlab.trace.document import Trace

NEXT_VICTIM, NUM_BLOCKS = "next_victim", "num_blocks"
SETTINGS = ("victim", NEXT_VICTIM, "method", "free_order", NUM_BLOCKS)

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fork:
    """From the start of `step` on, `setting` (one of SETTINGS) is `value`.

    victim, method, free_order: a name that the engine's setting may have; next_victim: the id of the
    request that is paused for the next need; num_blocks: a number of blocks, from step 1 on.
    """

    step: int
    setting: str
    value: str | int

    @property
    def from_start(self) -> bool:
        """The run differs from its first step on, whatever `step` is."""
        return self.setting == NUM_BLOCKS

    def scenario(self, base: Scenario) -> Scenario:
        """The forked run as a scenario. Raises BadInput for a value that does not fit it."""
        document = copy.deepcopy(base.raw)
        if self.from_start:
            document["engine"][NUM_BLOCKS] = self.value
        else:
            actions = document.setdefault("actions", [])
            actions.insert(place_in(actions, self.step), self.action())
        title = document.get("title") or document["name"]
        document["name"] = f"{document['name'][:80]}-what-if"
        document["title"] = f"{title}, what if: {self}"
        forked = scenario_from(document, base.base, "what if")
        return forked.with_victim(base.victim) if base.victim else forked

    def action(self) -> dict[str, Any]:
        """The entry in a scenario's `actions`. Raises BadInput for a setting that is none of these."""
        if self.setting == NEXT_VICTIM:
            return {"step": self.step, NEXT_VICTIM: self.value}
        if self.setting not in CHANGEABLE:
            raise BadInput(f"what if: {self.setting!r} is none of {', '.join(SETTINGS)}.")
        return {"step": self.step, SET: {self.setting: self.value}}

    def __str__(self) -> str:
        when = "from the start" if self.from_start else f"from step {self.step} on"
        return f"{self.setting} {self.value} {when}"


def place_in(actions: Sequence[dict[str, Any]], step: int) -> int:
    """Where a new change goes: before what else happens in its step, behind other changes in it."""
    changes = [at for at, action in enumerate(actions) if action["step"] == step and SET in action]
    if changes:
        return changes[-1] + 1
    others = (at for at, action in enumerate(actions) if action["step"] == step)
    return next(others, len(actions))


def scenario_of(made: Run | Trace) -> Scenario:
    """The scenario of a run, as it would be written down: defaults left out, lesson left out.

    Raises BadInput where a trace's scenario is not one.
    """
    trace = made.trace if isinstance(made, Run) else made
    base = made.scenario.base if isinstance(made, Run) else Path()
    victim = made.scenario.victim if isinstance(made, Run) else None
    try:
        document = written(trace.document["scenario"])
        if victim:
            del document["engine"]["victim"]
        found = scenario_from(document, base, f"scenario of run {trace.name}")
        return found.with_victim(victim) if victim else found
    except (AttributeError, KeyError, TypeError):
        raise BadInput(f"run {trace.name}: its scenario is not one that can be run.") from None


def written(document: dict[str, Any]) -> dict[str, Any]:
    """What a person would write for a scenario with all defaults filled in."""
    preset = ENGINE_PRESETS.get(document["engine"].get("preset") or "", {})
    engine = without(document["engine"], {**ENGINE_DEFAULTS, **preset})
    top = {key: document[key] for key in document if key not in ("lesson", "engine", "requests")}
    requests = [without(request, REQUEST_DEFAULTS) for request in document["requests"]]
    return without(top, DEFAULTS) | {"engine": engine, "requests": requests}


def without(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    missing = object()
    return {
        key: copy.deepcopy(value)
        for key, value in values.items()
        if defaults.get(key, missing) != value or type(defaults[key]) is not type(value)
    }


def step_of(trace: Trace, cursor: int) -> int:
    """The step in which the last event before the cursor happened; the first one at cursor 0."""
    before = [step["step"] for step in trace.steps if step["first"] < cursor]
    return int(before[-1]) if before else 1


def choices(trace: Trace, step: int) -> dict[str, list[str]]:
    """For each setting the values that could make a difference from a step on, as far as that can be
    told from the run; a setting without any is left out. The pool's sizes are not listed.

    What was the same up to a moment at which the setting is asked for is the same up to there.
    """
    scenario = trace.document["scenario"]
    engine = settings_at(scenario, step)
    ahead = [event for event in trace.events if event["step"] >= step]
    kinds = {event["kind"] for event in ahead}
    found: dict[str, list[str]] = {}
    if kinds & {"block_needed", "preempted"}:
        if "block_needed" in kinds:
            equal = len({request["priority"] for request in scenario["requests"]}) < 2
            useless = {engine["victim"], *(["lowest_priority"] if equal else [])}
            found["victim"] = [name for name in VICTIMS if name not in useless]
            running = who_runs(trace, step)
            found[NEXT_VICTIM] = running if len(running) > 1 else []
        no_host = {"swap", "auto"} if not engine["host_blocks"] else set()
        found["method"] = [m for m in METHODS if m != engine["method"] and m not in no_host]
    if any(event.get("freed") for event in ahead[:-1]):
        found["free_order"] = [name for name in FREE_ORDERS if name != engine["free_order"]]
    return {name: found[name] for name in SETTINGS if found.get(name)}


def settings_at(scenario: dict[str, Any], step: int) -> dict[str, Any]:
    """The engine's settings as they are when a step begins, before what the scenario does in it."""
    engine = dict(scenario["engine"])
    for action in sorted(scenario.get("actions", []), key=lambda action: action["step"]):
        if action["step"] <= step:
            engine |= action.get(SET, {})
    return engine


def who_runs(trace: Trace, step: int) -> list[str]:
    """The requests that are in the batch when a step begins, in the order of their admission."""
    for event in trace.events:
        if event["kind"] == "step_started" and event["step"] == step:
            return [*event["running"], *event["paused"]]
    return []


def checked_size(value: object) -> int:
    """A number of blocks. Raises BadInput."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not 1 <= value <= MOST_BLOCKS:  # type: ignore[operator]
        raise BadInput(f"num_blocks = {str(value)[:20]} must be from 1 to {MOST_BLOCKS:,}.")
    return value  # type: ignore[return-value]


# What two runs have in common.


@dataclass(frozen=True, slots=True)
class Departure:
    """The first event before the fork in which a run does not repeat the one that it forks."""

    event: int  # index
    step: int
    was: Event | None
    now: Event | None


def departure(old: Trace, new: Trace, fork: Fork) -> Departure | None:
    """Where the new run left the old one before its fork; None: it did not, as it should be.

    With another pool there is nothing before the fork.
    """
    if fork.from_start:
        return None
    before = [
        [event for event in trace.events if event["step"] < fork.step] for trace in (old, new)
    ]
    at = first_difference(*before)
    if at is None:
        return None
    was, now = (events[at] if at < len(events) else None for events in before)
    return Departure(at, (was or now or {"step": fork.step})["step"], was, now)
