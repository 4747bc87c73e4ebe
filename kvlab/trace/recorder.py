"""Turns an engine's reports into a trace document while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import kvlab
from kvlab.engine.engine import Engine
from kvlab.engine.events import Event
from kvlab.engine.report import StepReport
from kvlab.trace.document import FORMAT, VERSION, Trace
from kvlab.trace.narration import key
from kvlab.trace.summary import RunFacts, summarise


class ValueProbe(Protocol):
    """Looks at the values that really lie in the KV pool."""

    def look(self, event: Event) -> list[dict[str, Any]]:
        """What can be measured at the event, an entry a block: {block, checksum, …}."""
        ...


class Recorder:
    """Collects a run step by step. `probe` is None when values are not looked at (no model, or a
    run too large for it)."""

    def __init__(self, engine: Engine, probe: ValueProbe | None) -> None:
        self._engine = engine
        self._probe = probe
        self._events: list[dict[str, Any]] = []
        self._steps: list[dict[str, Any]] = []
        self._measurements: list[dict[str, Any]] = []
        self._looked: dict[int, list[dict[str, Any]]] = {}  # by id() of this step's events
        if probe is not None:
            engine.watch(self._look)

    def _look(self, event: Event) -> None:
        assert self._probe is not None
        self._looked[id(event)] = self._probe.look(event)

    def record(self, report: StepReport, seconds: float, scheduling: float) -> None:
        """Add one step, right after it was made: its seconds, and how many of them were neither the
        model's nor a copy's."""
        first = len(self._events)
        for event in report.events:
            at = len(self._events)
            self._measurements += [
                {"event": at} | entry for entry in self._looked.pop(id(event), [])
            ]
            self._events.append(event_json(event))
        self._steps.append(
            {
                "step": report.step,
                "first": first,
                "end": len(self._events),
                "seconds": seconds,
                "scheduling_seconds": scheduling,
            }
        )

    def _spent(self, kind: str) -> float:
        return sum(step[kind] for step in self._steps)

    def trace(
        self,
        scenario: dict[str, Any],
        run: dict[str, Any],
        model: dict[str, Any],
        token_text: Callable[[int], str],
        bytes_per_block: int,
    ) -> Trace:
        """The document of all that was recorded. `run` and `model` are its parts of those names."""
        config, costs = self._engine.config, self._engine.costs
        requests = list(self._engine.requests.values())
        tokens = sorted({token for request in requests for token in request.history})
        facts = RunFacts(
            scenario=scenario["name"],
            model=scenario["model"],
            device=run["device"],
            dtype=run["dtype"],
            seconds=self._spent("seconds"),
            scheduling_seconds=self._spent("scheduling_seconds"),
            batch=self._engine.queues.order,
            logprobs={request.id: request.logprobs for request in requests},
            costs=None if costs is None else costs.as_json(),
        )
        document = {
            "format": FORMAT,
            "version": VERSION,
            "kvlab": kvlab.__version__,
            "recorded": False,
            "scenario": scenario,
            "run": run,
            "model": model,
            "pool": {
                "num_blocks": config.num_blocks,
                "block_size": config.block_size,
                "host_blocks": config.host_blocks,
                "kv_bytes_per_block": bytes_per_block,
            },
            "requests": [
                {"id": r.id, "prompt": list(r.prompt), "max_tokens": r.max_tokens} for r in requests
            ],
            "tokens": {str(token): token_text(token) for token in tokens},
            "events": self._events,
            "steps": self._steps,
            "measurements": self._measurements,
        }
        return Trace(document | {"summary": summarise(facts, document)})


def event_json(event: Event) -> dict[str, Any]:
    """An event as it stands in a trace, with the key of its narration."""
    facts = event.as_json()
    return facts | {"say": key(facts)}
