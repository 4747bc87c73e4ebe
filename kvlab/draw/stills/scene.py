"""What a picture is drawn from: a trace, a cursor, and what follows from the two."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kvlab.draw.stills.marks import Owner, owners_of
from kvlab.trace.changes import State
from kvlab.trace.document import Trace
from kvlab.trace.narration import Words, fill, narrate


@dataclass(frozen=True, slots=True)
class Touched:
    """What the event at a cursor changed, to be ringed. The twin of `touched` in model.js.

    `slots` is (block, first slot, last slot); `entries` and `positions` are (first, last).
    """

    id: str | None = None
    blocks: frozenset[int] = frozenset()
    hosts: frozenset[int] = frozenset()
    slots: tuple[int, int, int] | None = None
    entries: tuple[int, int] | None = None
    unmet: str | None = None
    positions: tuple[int, int] | None = None


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
        found = {entry["id"]: entry["prompt"] for entry in self.trace.document["requests"]}
        for event in self.trace.events:
            if event["kind"] == "forked":
                found.setdefault(event["id"], found.get(event["parent"], []))
        return found

    @cached_property
    def ids(self) -> list[str]:
        return list(self.prompts)

    @cached_property
    def owners(self) -> dict[str, Owner]:
        return owners_of(self.ids)

    @cached_property
    def touched(self) -> Touched:
        return touched(self.event, self.prompts)

    @cached_property
    def copies(self) -> dict[int, tuple[str, str]]:
        """(request, out or in) by GPU block, for copies under way at the cursor."""
        found: dict[int, tuple[str, str]] = {}
        ended: set[int] = set()
        for event in reversed(self.trace.events[: self.cursor]):
            if event["kind"] in ("swap_in_finished", "block_released"):
                ended |= {block for block in event["blocks"] if block not in found}
            elif event["kind"] in ("swap_out_started", "swap_in_started"):
                way = "out" if event["kind"] == "swap_out_started" else "in"
                for block in event["blocks"]:
                    if block not in ended:
                        found.setdefault(block, (event["id"], way))
        return found

    @cached_property
    def recovered(self) -> set[str]:
        """Requests that have rebuilt or restored KV on the GPU."""
        return {
            cell["id"]
            for block in self.state["blocks"]
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


def touched(event: dict[str, Any] | None, prompts: dict[str, list[int]]) -> Touched:
    """What an event changed."""
    if event is None:
        return Touched()
    id, blocks = event.get("id"), set(event.get("blocks") or ())
    hosts = frozenset(event.get("host_blocks") or ())
    more: dict[str, Any] = {}
    match event["kind"]:
        case "block_allocated" | "block_shared":
            more["entries"] = (event["logical"], event["logical"] + len(event["blocks"]) - 1)
        case "swap_in_finished":
            more["entries"] = (0, len(event["blocks"]) - 1)
        case "block_copied":
            blocks.add(event["block"])
            more["entries"] = (event["logical"], event["logical"])
        case "damage_found":
            blocks.add(event["block"])
        case "block_needed":
            more["unmet"] = id
        case "kv_written":
            last = event["slot"] + event["last"] - event["first"]
            more["slots"] = (event["block"], event["slot"], last)
            more["positions"] = (event["first"], event["last"])
        case "scheduled":
            more["positions"] = (event["start"], event["start"] + event["tokens"] - 1)
        case "token_sampled" | "token_delivered":
            position = len(prompts.get(event["id"], ())) + event["index"]
            more["positions"] = (position, position)
    return Touched(id=id, blocks=frozenset(blocks), hosts=hosts, **more)
