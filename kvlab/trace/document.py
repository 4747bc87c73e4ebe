"""A trace: the recorded run as one JSON document, enough to replay it without torch.

Its parts are described in kvlab/schemas/trace.schema.json. Events are facts that are the same on
every machine; seconds and measured values (checksums, norms) lie apart from them.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvlab.errors import BadInput
from kvlab.schemas import check_trace
from kvlab.trace import replay

FORMAT = "kvlab-trace"
VERSION = 1
LARGEST_FILE = 200_000_000  # bytes


@dataclass(frozen=True, slots=True)
class Trace:
    """A checked trace document. `document["recorded"]` tells a file from a run just made."""

    document: dict[str, Any]

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

    def state_at(self, cursor: int) -> replay.State:
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
        path = Path(path)
        text = json.dumps(self.document | {"recorded": True}, ensure_ascii=False, indent=None)
        if path.is_symlink():  # the file that it leads to is replaced, whole or not at all
            path = path.resolve()
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            if path.is_symlink() or (path.exists() and not path.is_file()):  # /dev/stdout, say
                path.write_text(text + "\n", encoding="utf-8")
                return
            temporary.write_text(text + "\n", encoding="utf-8")
            temporary.replace(path)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise BadInput(f"{path} cannot be written ({reason}).") from None
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

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
        """Check a parsed document: form, version, and that it can be replayed to its end."""
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise BadInput(f'{what}: not a kvlab trace (its "format" is not {FORMAT!r}).')
        version = document.get("version")
        if not isinstance(version, int) or version > VERSION:
            raise BadInput(
                f"{what}: version {version!r} is newer than {VERSION}, the newest that this "
                "kvlab reads; update kvlab."
            )
        check_trace(document, what)
        check_replays(document, what)
        return cls(document)


PLACES = ("block", "blocks", "host_blocks", "source", "logical", "slot", "first")
"""Fields that count from 0; Python would take a negative one from the end."""


def check_replays(document: dict[str, Any], what: str) -> None:
    """Raise BadInput at the first event that does not fit the state before it."""
    pool = document["pool"]
    state = replay.empty_state(pool["num_blocks"], pool["block_size"], pool["host_blocks"])
    for at, event in enumerate(document["events"]):
        try:
            refuse_negative(event)
            replay.apply(state, event)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(
                f"{what}: event {at} ({event['kind']}, step {event['step']}) does not fit the "
                f"state before it ({error!r})."
            ) from None
    check_steps(document, what)


def refuse_negative(event: dict[str, Any]) -> None:
    for field in PLACES:
        value = event.get(field, 0)
        if (min(value, default=0) if isinstance(value, list) else value) < 0:
            raise IndexError(f"{field} = {value}")


def check_steps(document: dict[str, Any], what: str) -> None:
    """Raise BadInput unless the steps cut the events into spans, in order and each of its own."""
    events, end, number = document["events"], 0, 0
    for place, step in enumerate(document["steps"]):
        if step["first"] != end or step["end"] < step["first"] or step["step"] <= number:
            raise BadInput(f"{what}: steps.{place} does not follow the one before it.")
        end, number = step["end"], step["step"]
        if any(event["step"] != number for event in events[step["first"] : end]):
            raise BadInput(f"{what}: steps.{place} covers events of another step than {number}.")
    if end != len(events):
        raise BadInput(f"{what}: the steps cover {end} of {len(events)} events.")
