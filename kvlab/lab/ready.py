"""One check before the course begins: does everything that a notebook needs work here?"""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path

from kvlab.errors import BadInput
from kvlab.launcher.needs import LAB, installed_here, missing, read_pins
from kvlab.runs.run import Run, run_lesson
from kvlab.trace.table import Table

ROOT = Path(__file__).resolve().parents[2]
WELL, LOOK = "✓ well", "✗ look"
ADVICE = "`python3 -m kvlab doctor` in a terminal tells more"


def all_well() -> Table:
    """Look at every part, one sentence each; what is wrong with one hides nothing of the others."""
    rows = []
    for part, look in PARTS.items():
        try:
            mark, sentence = WELL, look()
        except BadInput as error:
            mark, sentence = LOOK, str(error)
        except Exception as error:
            mark, sentence = LOOK, f"{type(error).__name__}: {error}; {ADVICE}."
        rows.append((part, mark, sentence))
    bad = sum(mark == LOOK for _, mark, _ in rows)
    verdict = "All is well: you can begin." if not bad else f"{bad} of {len(rows)} need a look."
    return Table("Does everything work here?", ("part", "", "what was found"), tuple(rows), verdict)


def kernel() -> str:
    return f"Python {platform.python_version()} runs the cells; this is the kernel."


def packages() -> str:
    """Raises BadInput when something has another version than it was tested with, or is absent."""
    pins = read_pins(ROOT, [LAB])
    absent = missing(pins, installed_here(pins))
    if absent:
        names = ", ".join(str(pin) for pin in absent)
        raise BadInput(f"{names} should be here as in {LAB}; {ADVICE}.")
    return f"All {len(pins)} packages have the version that the lab was tested with."


def engine() -> str:
    made = run_lesson("figure-5")
    run, tokens = made.trace.document["run"], made.summary["tokens_processed"]
    where = "the CPU, which is enough for this course" if run["device"] == "cpu" else "the GPU"
    return f"The engine put {tokens} tokens through the story model, on {where}."


def pausing() -> str:
    """Raises BadInput unless a pause leaves the outputs as they would be without one."""
    tight, roomy = run_lesson("figure-5"), run_lesson("figure-5", ["engine.num_blocks=64"])
    if outputs(tight) != outputs(roomy):
        raise BadInput("a paused request said something else than one that was never paused.")
    return "A request that was paused and resumed said the same as one that never was."


def swapping() -> str:
    """Raises BadInput unless every block comes back with the checksum it went out with."""
    trace = run_lesson("figure-4").trace
    out, back = (
        [
            found["checksum"]
            for found in trace.document["measurements"]
            if trace.events[found["event"]]["kind"] == kind
        ]
        for kind in ("swap_out_started", "swap_in_finished")
    )
    if not out or out != back:
        raise BadInput(f"checksums before a swap {out}, after it {back}: they should be the same.")
    return f"A swap brought {len(out)} blocks back, byte for byte."


def memory() -> str:
    from kvlab.runtime.memory import report  # late: brings torch

    rows = dict(
        report("story", block_size=16, length=None, share=None, dtype="float32", device="auto")
    )
    return f"A pool for KV could be as large as {rows['pool'].rpartition('= ')[2]}."


def outputs(made: Run) -> list[list[int]]:
    return [request["output"] for request in made.summary["requests"].values()]


PARTS: dict[str, Callable[[], str]] = {
    "kernel": kernel,
    "packages": packages,
    "engine": engine,
    "pausing": pausing,
    "swap": swapping,
    "memory": memory,
}
