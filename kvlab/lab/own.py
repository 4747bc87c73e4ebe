"""What a learner brings: scenarios that may be wrong, and models that may not be there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvlab.course.checks import Verdict
from kvlab.errors import BadInput
from kvlab.runs.run import run_lesson
from kvlab.trace.table import Table


def texts(settings: Sequence[str]) -> Sequence[str]:
    """The settings as they are. Raises BadInput for one that is no text."""
    for setting in settings:
        if not isinstance(setting, str):
            raise BadInput(
                f'{setting!r:.60}: write a setting as text, as in "engine.num_blocks=5".'
            )
    return settings


def attempt(name: str, settings: Sequence[str]) -> Verdict:
    """Run, and tell in one sentence how it went: what was wrong, or how long the run is."""
    try:
        made = run_lesson(name, texts(settings))
    except BadInput as error:
        return Verdict(False, str(error))
    return Verdict(True, f"It ran: {made.summary['steps']} steps, nothing to complain about.")


@dataclass(frozen=True, slots=True)
class Choice:
    """The model to go on with, and why it is this one; shows the reason in a notebook."""

    name: str
    text: str

    def __str__(self) -> str:
        return self.name

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        return Verdict(None, self.text)._repr_mimebundle_()


def model_or_story(name: str) -> Choice:
    """The model of this name if it is on this machine, else the bundled one. Fetches nothing."""
    from kvlab.models.places import find_model

    try:
        find_model(name)
    except BadInput as error:
        return Choice("story", f"{str(error).removeprefix('model: ')} Until then: story.")
    return Choice(name, f"{name} is on this machine.")


def fits(model: str, length: int | None = None) -> Table:
    """How many blocks, tokens and requests of a model fit here: what `kvlab memory` prints."""
    from kvlab.runtime.memory import report

    rows = report(model, block_size=16, length=length, share=None, dtype="float32", device="auto")
    return Table(f"Room for KV: {model}", ("", "how it comes about"), tuple(rows))
