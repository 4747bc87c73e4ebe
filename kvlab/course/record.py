"""The recorded traces of the lessons: `assets/traces/<scenario>.json`, made again by one command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import load_scenario, scenario_names
from kvlab.trace.document import Trace

TRACES = Path(__file__).resolve().parents[2] / "assets" / "traces"


def recorded(name: str) -> Trace:
    """The recorded trace of a shipped scenario. Raises BadInput when it is missing or broken."""
    return Trace.read(TRACES / f"{name}.json")


def record_all(folder: Path = TRACES, say: Callable[[str], None] = print) -> None:
    """Run every shipped scenario on the CPU and write its trace into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in scenario_names():
        run = run_scenario(load_scenario(name, ["device=cpu"]))
        run.trace.write(folder / f"{name}.json")
        say(f"{name}: {len(run.trace.steps)} steps, {len(run.trace.events)} events")


def facts(trace: Trace) -> dict[str, object]:
    """All of a trace that must be the same on every machine: no seconds, no measured values."""
    same = ("format", "version", "scenario", "model", "pool", "requests", "tokens", "events")
    return {key: trace.document[key] for key in same} | {
        "steps": [(step["step"], step["first"], step["end"]) for step in trace.steps]
    }
