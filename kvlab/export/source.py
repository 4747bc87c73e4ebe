"""What is taken along: a shipped lesson, a scenario file that is run, or a recorded trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kvlab.course.compare import both_ways
from kvlab.course.record import recorded
from kvlab.errors import BadInput
from kvlab.runs.scenario import is_file, load_scenario, scenario_names
from kvlab.trace.document import FORMAT, Trace


def trace_of(source: str, settings: Sequence[str] = ()) -> Trace:
    """The trace of a lesson's recorded run; of a run made now, for a scenario file or with settings;
    or the one in a trace file.

    Raises BadInput, naming file and place, for what is missing or does not fit.
    """
    if source in scenario_names():
        return run(source, settings) if settings else recorded(source)
    if not is_trace(Path(source)):
        return run(source, settings)
    if settings:
        raise BadInput(f"--set {settings[0]}: {source} is a recorded trace; its run is over.")
    return Trace.read(source)


def both_of(source: str, settings: Sequence[str] = ()) -> tuple[Trace, Trace]:
    """A scenario by recompute and by swap: the story's recordings, or two runs made now.

    Raises BadInput, naming file and place, for what is missing, does not fit or is a trace.
    """
    if source not in scenario_names() and is_trace(Path(source)):
        raise BadInput(
            f"--race {source}: is a recorded trace, and a race needs two; give a scenario."
        )
    return both_ways(source, settings, now=False)


def run(source: str, settings: Sequence[str]) -> Trace:
    scenario = load_scenario(source, settings)
    from kvlab.runs.run import run_scenario  # late: brings torch

    return run_scenario(scenario).trace


def is_trace(path: Path) -> bool:
    """Whether a file says of itself that it is a trace. What cannot be read is none."""
    if not is_file(path):
        return False
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except (OSError, ValueError):
        return False
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and FORMAT.encode() in head
