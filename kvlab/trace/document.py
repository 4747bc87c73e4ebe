"""A trace: the recorded run as one JSON document, enough to replay it without torch.

Its parts are described in kvlab/files/schemas/trace.schema.json. Events are facts that are the same on
every machine; seconds and measured values (checksums, norms) lie apart from them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvlab.errors import BadInput
from kvlab.files.schema import check_trace
from kvlab.files.write import write_whole
from kvlab.trace import replay
from kvlab.trace.changes import State
from kvlab.trace.check import check_data, check_story

FORMAT = "kvlab-trace"
VERSION = 2
LARGEST_FILE = 200_000_000  # bytes


@dataclass(frozen=True, slots=True, repr=False)
class Trace:
    """A checked trace document. `document["recorded"]` tells a file from a run just made."""

    document: dict[str, Any]

    def __repr__(self) -> str:
        """A line: a run of thousands of events fills no screen."""
        summary, run = self.summary, self.document["run"]
        return (
            f"<Trace {self.name}: {len(self.steps)} steps, {len(self.events)} events, "
            f"{summary['preemptions']} preemptions, {summary['tokens_processed']} tokens processed, "
            f"on {run['device']}>"
        )

    def __getitem__(self, part: str) -> Any:
        """A part of the document: `trace["events"]`."""
        return self.document[part]

    @property
    def events(self) -> list[dict[str, Any]]:
        return self.document["events"]

    @property
    def steps(self) -> list[dict[str, Any]]:
        return self.document["steps"]

    @property
    def summary(self) -> dict[str, Any]:
        return self.document["summary"]

    @property
    def name(self) -> str:
        return self.document["scenario"]["name"]

    def state_at(self, cursor: int) -> State:
        """The state after the first `cursor` events."""
        return replay.state_at(self.document, cursor)

    def cursor_of(self, step: int, kind: str | None = None, **fields: Any) -> int:
        """The cursor right after the last event of `step` that fits, or at the step's end.

        Raises BadInput when the run has no such step or event.
        """
        for entry in self.steps:
            if entry["step"] == step:
                if kind is None:
                    return entry["end"]
                for at in range(entry["end"] - 1, entry["first"] - 1, -1):
                    event = self.events[at]
                    if event["kind"] == kind and fields.items() <= event.items():
                        return at + 1
                raise BadInput(f"trace {self.name}: step {step} has no event {kind} like {fields}.")
        raise BadInput(f"trace {self.name}: there is no step {step}.")

    def write(self, path: str | Path) -> None:
        """Write the document, whole or not at all. Raises BadInput when it cannot be written."""
        write_whole(path, self.as_text())

    def as_text(self) -> str:
        """The document as it stands in a file: a run just made is a recorded one from then on."""
        return json.dumps(self.document | {"recorded": True}, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, path: str | Path) -> Trace:
        """Read and check a trace file. Raises BadInput, naming file and place."""
        path = Path(path)
        what = f"trace {path}"
        try:
            if path.stat().st_size > LARGEST_FILE:
                raise BadInput(f"{what}: larger than {LARGEST_FILE:,} bytes.")
            document = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise BadInput(f"{what}: cannot be read ({error.strerror}).") from None
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{what}: not valid JSON ({error}).") from None
        return cls.from_json(document, what)

    @classmethod
    def from_json(cls, document: Any, what: str = "trace") -> Trace:
        """Check a parsed document: form, version, and that it tells one story to its end."""
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise BadInput(f'{what}: not a kvlab trace (its "format" is not {FORMAT!r}).')
        version = document.get("version")
        if type(version) is int and version > VERSION:
            raise BadInput(
                f"{what}: version {version} is newer than {VERSION}, the newest that this "
                "kvlab reads; update kvlab."
            )
        if type(version) is not int or version < 1:
            said = f"the version {version!r}" if "version" in document else "no version"
            raise BadInput(f"{what}: has {said} where a trace has a whole number from 1 on.")
        if version < VERSION:
            raise BadInput(
                f"{what}: version {version} was recorded by an older kvlab and lacks what this one "
                "shows; run its scenario again (it stands in the file under `scenario`)."
            )
        check_data(document, what)
        check_trace(document, what)
        check_story(document, what)
        return cls(document)
