"""The part of a run that a reader has come to, as a run of its own."""

from __future__ import annotations

from kvlab.trace.document import Trace
from kvlab.trace.facts import ran_until


def until(trace: Trace, cursor: int) -> Trace:
    """The steps whose pass of the model lies before a cursor, whole, for charts and numbers per step;
    all of the run when the cursor is at its end. Totals of the summary stay the whole run's."""
    if cursor >= len(trace.events):
        return trace
    steps = [step for step in trace.steps if ran_until(trace, step) <= cursor]
    end = steps[-1]["end"] if steps else 0
    summary = trace.summary | {"per_step": trace.summary["per_step"][: len(steps)]}
    cut = {"events": trace.events[:end], "steps": steps, "summary": summary}
    return Trace(trace.document | cut)
