"""A scenario as a form, with the files that hold one: the browser draws it, Python judges it.

What a person types stays in the browser until a run is asked for, and in the tab (sessionStorage) when
the kernel is gone. Python takes a scenario or the text of a file as plain data of a bounded size; what
it means is checked by whoever gave the callbacks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from kvlab.draw.guard import guarded
from kvlab.errors import BadInput
from kvlab.trace.speech import Speech

HERE = Path(__file__).parent
LARGEST_SCENARIO = 200_000  # characters of JSON
LARGEST_FILE = 1_500_000  # characters; a server passes on messages of 4 MiB


class ScenarioForm(anywidget.AnyWidget):
    """The form. `put` shows a scenario in it; callbacks hear what the person did:

    on_edit(raw), on_run(raw), on_preset(name), on_file(name, text), and want(what), which gives the
    (name, text) of a file to save: "scenario" or "trace".
    """

    _esm = (HERE / "scenario_form.js").read_text("utf-8")
    _css = (HERE / "scenario_form.css").read_text("utf-8")

    spec = traitlets.Dict(help="Words, choices and bounds of the fields, and the presets.").tag(
        sync=True
    )
    faults = traitlets.Dict(help="What is wrong, by the field: `num_blocks`, `requests.0.id`.").tag(
        sync=True
    )
    given = traitlets.Dict(help="{scenario, preset, at}: what Python puts into the form.").tag(
        sync=True
    )
    busy = traitlets.Bool(False, help="Something runs: no other run can be asked for.").tag(
        sync=True
    )
    disabled = traitlets.Bool(False, help="The same, by the name that other controls have.")

    def __init__(
        self,
        spec: dict[str, Any],
        *,
        speech: Speech,
        on_edit: Callable[[dict[str, Any]], None],
        on_run: Callable[[dict[str, Any]], None],
        on_preset: Callable[[str], None],
        on_file: Callable[[str, str], None],
        want: Callable[[str], tuple[str, str]],
        fail: Callable[[str], None],
    ) -> None:
        super().__init__(spec={**spec, "largest_file": LARGEST_FILE})
        self.speech, self.fail = speech, fail
        self._on_edit, self._on_run, self._on_preset = on_edit, on_run, on_preset
        self._on_file, self._want = on_file, want
        self.on_msg(self._hear)

    def put(self, scenario: dict[str, Any], preset: str = "") -> None:
        """Show a scenario; `preset` names the shipped one that it is."""
        at = self.given.get("at", 0) + 1
        self.given = {"scenario": scenario, "preset": preset, "at": at}

    @traitlets.observe("disabled")
    def _follow(self, change: traitlets.Bunch) -> None:
        self.busy = change["new"]

    @guarded
    def _hear(self, _: Any, content: Any, buffers: Any) -> None:
        kind = content.get("type") if isinstance(content, dict) else None
        if kind == "edit":
            self._on_edit(bounded_scenario(content.get("scenario")))
        elif kind == "run":
            self._on_run(bounded_scenario(content.get("scenario")))
        elif kind == "preset":
            self._on_preset(str(content.get("name"))[:100])
        elif kind == "file":
            self._on_file(*bounded_file(**{k: content.get(k) for k in ("name", "text", "size")}))
        elif kind == "want":
            name, text = self._want(str(content.get("what"))[:20])
            self.send({"type": "file", "name": name, "text": text})


def bounded_scenario(raw: Any) -> dict[str, Any]:
    """A scenario as the page sent it, still to be checked. Raises BadInput for what is none, or is
    larger than a form's."""
    try:
        size = len(json.dumps(raw))
    except (TypeError, ValueError, RecursionError):
        size = LARGEST_SCENARIO + 1
    if not isinstance(raw, dict) or size > LARGEST_SCENARIO:
        raise BadInput(
            f"the form takes a scenario of up to {LARGEST_SCENARIO:,} characters; `kvlab run` takes "
            "larger ones from a file."
        )
    return raw


def bounded_file(name: Any, text: Any, size: Any = 0) -> tuple[str, str]:
    """Name and text of a file that was opened in the browser. The name is only shown. The browser
    sends no more than the size of a file that is too large. Raises BadInput."""
    if isinstance(size, int) and size > LARGEST_FILE:
        raise BadInput(f"the file has {size:,} bytes; {LARGEST_FILE:,} are taken here.")
    if not isinstance(name, str) or not isinstance(text, str):
        raise BadInput("that file could not be read as text.")
    if len(text) > LARGEST_FILE:
        raise BadInput(f"the file is larger than {LARGEST_FILE:,} characters.")
    return name[:80], text
