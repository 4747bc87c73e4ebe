"""What a picture is drawn from: a trace, a cursor, and what follows from the two."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kvlab.draw.stills.marks import Owner, owners_of
from kvlab.trace.changes import State
from kvlab.trace.document import Trace
from kvlab.trace.narration import Words, fill, narrate
from kvlab.trace.timeline import Timeline
from kvlab.trace.touched import Touched, touched


@dataclass(frozen=True)
class Scene:
    """One trace at one cursor, in one language. Pure: equal arguments give equal pictures."""

    trace: Trace
    cursor: int
    words: Words
    most: int = 8
    """Requests that have room; of more, those at work are shown."""
    about: int | None = None
    """Index of the event to speak of and to ring; None: the last one before the cursor."""

    @cached_property
    def state(self) -> State:
        return self.trace.state_at(self.cursor)

    @cached_property
    def event(self) -> dict[str, Any] | None:
        if self.about is not None:
            return self.trace.events[self.about]
        return self.trace.events[self.cursor - 1] if self.cursor else None

    @cached_property
    def prompts(self) -> dict[str, list[int]]:
        """Prompt tokens by request, those of forks included."""
        return {entry["id"]: entry["prompt"] for entry in self.trace.document["requests"]}

    @cached_property
    def ids(self) -> list[str]:
        return list(self.prompts)

    @cached_property
    def owners(self) -> dict[str, Owner]:
        return owners_of(self.ids)

    @cached_property
    def timeline(self) -> Timeline:
        return Timeline.of(self.trace)

    @cached_property
    def touched(self) -> Touched:
        return touched(self.event, self.prompts)

    @cached_property
    def recovered(self) -> set[str]:
        """Requests that have rebuilt or restored KV on the GPU."""
        return {
            cell["id"]
            for block in self.state["blocks"].touched.values()
            for cell in block["cells"]
            if cell and cell["live"] and cell["how"] != "first"
        }

    @property
    def sentence(self) -> str:
        """What happened, as the player says it."""
        return narrate(self.event, self.words) if self.event else self.say("before_first")

    @property
    def step(self) -> int:
        return int(self.event["step"]) if self.event else 0

    @property
    def uses_host(self) -> bool:
        """Something is copied to the host pool in this run, so that it is worth its place."""
        return any(event["kind"] == "swap_out_started" for event in self.trace.events)

    def say(self, key: str, /, **values: Any) -> str:
        """A string of the player's catalogue."""
        return fill(self.words["player"][key], values, self.words)

    def where(self) -> str:
        """`step 3 of 8 · event 34 of 72`."""
        key = "step_of" if self.cursor else "before_step"
        step = self.say(key, step=self.step, steps=len(self.trace.steps))
        return f"{step} · {self.say('event_of', event=self.cursor, events=len(self.trace.events))}"

    def origin(self) -> str:
        """Where the run was made, and what ran in it: `recorded run, made on cpu · model story`."""
        document = self.trace.document
        run, model = document["run"], document["model"]
        made = "recorded" if document["recorded"] else "just_now"
        parts = [self.say(made, device=run["device"], made=run.get("made"))]
        if model["stand_in"]:
            parts.append(self.say("stand_in"))
        else:
            parts += [self.say("model", name=model["name"]), run["dtype"]]
        return " · ".join(parts)

    def free(self) -> str:
        """`1 of 4 blocks free`."""
        state = self.state
        text = self.say("free_of", free=state["free"], total=len(state["blocks"]))
        if state["in_flight"]:
            text += self.say("and_in_flight", blocks=state["in_flight"])
        return text

    def numbers(self, id: str) -> dict[str, int]:
        """The four numbers that people confuse, of one request."""
        request = self.state["requests"].get(id)
        return {
            "history": request["history"] if request else 0,
            "kv": request["kv"] if request else 0,
            "blocks": len(request["table"]) if request else 0,
            "sent": request["delivered"] if request else 0,
        }

    def state_words(self, id: str) -> str:
        """A request's state in words."""
        request = self.state["requests"].get(id)
        if request is None:
            return self.say("state_absent")
        if request["state"] == "finished":
            return self.say(f"state_finished_{request['finish']}")
        if request["state"] == "running" and request["unmet"]:
            return self.say("state_unmet")
        return self.say(f"state_{request['state']}", method=request["method"])

    def described(self) -> str:
        """The picture in sentences, for whoever does not see it."""
        rows = []
        for id in self.ids:
            numbers = ", ".join(
                f"{self.say(f'number_{name}')} {value}" for name, value in self.numbers(id).items()
            )
            request = self.state["requests"].get(id)
            table = "".join(f" P{block}" for block in request["table"]) if request else ""
            rows.append(f"{id}: {self.state_words(id)}, {numbers}{table}.")
        return " ".join([f"{self.where()}.", self.sentence, f"{self.free()}.", *rows])
