"""What the events say of each sample of a request's prompt: outputs and when they came, what was
counted, how it ended. A request without forks is its only sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvlab.trace.gaps import Gap, gaps

Event = Mapping[str, Any]


@dataclass(slots=True)
class Sample:
    """What the events say of one sample of a request's prompt."""

    arrived: int | None = None  # the step before its first chance to run
    outputs: list[int] = field(default_factory=list)
    text: str = ""
    delivered: list[int] = field(default_factory=list)  # steps
    counts: Counter[str] = field(default_factory=Counter)
    had_kv: int = 0  # positions below this had KV at some time
    finish_reason: str | None = None
    message: str | None = None
    parent: str | None = None  # of a fork
    gaps: list[Gap] = field(default_factory=list)

    def add(self, event: Event) -> None:
        kind = event["kind"]
        if kind == "token_delivered":
            self.outputs.append(event["token"])
            self.text += event["text"]
            self.delivered.append(event["step"])
        elif kind == "preempted":
            self.counts["preemptions"] += 1
        elif kind == "kv_written":
            self.had_kv = max(self.had_kv, event["last"] + 1)
            if event["why"] == "rebuilt":
                self.counts["recomputed"] += positions([event])
        elif kind in ("admitted", "resumed"):
            found = event["from_cache"]
            self.counts["from_cache"] += found
            self.counts["from_own_cache"] += min(found, self.had_kv)
            self.had_kv = max(self.had_kv, found)
        elif kind == "finished":
            self.finish_reason, self.message = event["why"], event["message"]

    @property
    def ttft(self) -> int | None:
        """Steps to the first token: served at once, 1."""
        return (
            self.delivered[0] - self.arrived
            if self.delivered and self.arrived is not None
            else None
        )


def samples(document: Mapping[str, Any]) -> dict[str, Sample]:
    """All samples by id, in the order of a trace's `requests`, from its events."""
    found = {request["id"]: Sample() for request in document["requests"]}
    for event in document["events"]:
        if event["kind"] == "arrived":
            found[event["id"]].arrived = event["step"] - 1
        elif event["kind"] == "forked":
            fork, parent = found[event["id"]], found[event["parent"]]
            fork.parent, fork.arrived = event["parent"], parent.arrived
            fork.had_kv = event["history"]  # its parent computed the prompt
        elif "id" in event:
            found[event["id"]].add(event)
    for id, of_sample in gaps(document["events"]).items():
        found[id].gaps = of_sample
    return found


def positions(written: Iterable[Event]) -> int:
    """Of `kv_written` events."""
    return sum(event["last"] - event["first"] + 1 for event in written)
