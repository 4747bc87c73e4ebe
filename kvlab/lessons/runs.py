"""Running a lesson's scenario: the same for notebooks, the dashboard and the comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kvlab.run import Run, run_scenario
from kvlab.scenario import Scenario, load_scenario

if TYPE_CHECKING:
    from kvlab.engine.report import StepReport
    from kvlab.models.loading import LoadedModel


def run_lesson(
    name: str,
    settings: Sequence[str] = (),
    model: LoadedModel | None = None,
    on_step: Callable[[StepReport], None] | None = None,
) -> Run:
    """Run a shipped scenario with `PATH=VALUE` settings. Raises BadInput for what cannot run."""
    return run_scenario(load_scenario(name, settings), on_step, model)


def load_for(scenario: Scenario) -> LoadedModel | None:
    """The scenario's model, to be used for many runs; None where it names none."""
    if scenario.model is None:
        return None
    from kvlab.models.loading import load_model  # late: brings torch

    document = scenario.document
    return load_model(
        scenario.model,
        device=document["device"],
        dtype=document["dtype"],
        base=scenario.base,
    )
