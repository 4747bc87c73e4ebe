"""Whether a trace tells one story: numbers that are numbers, events that each fit the state before
them, steps that cut them into spans, and a summary that says what they lead to.

What passes can be shown at every cursor. All raise BadInput, naming the place.
"""

from __future__ import annotations

import json
from typing import Any

from kvlab.engine.config import MOST_SLOTS
from kvlab.errors import BadInput
from kvlab.files.plain_data import refuse_what_json_lacks
from kvlab.trace import replay

Document = dict[str, Any]
EventJson = dict[str, Any]

LARGEST = (1 << 53) - 1
"""The largest whole number that every reader of JSON takes as it is."""


class Misfit(ValueError):
    """An event that the state before it does not allow, and why."""


def need(condition: bool, why: str) -> None:
    if not condition:
        raise Misfit(why)


def check_data(document: Document, what: str) -> None:
    """Nothing that JSON lacks: NaN, infinity, half a character, keys that are no text."""
    try:
        json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError):  # quick to find; the place takes longer
        try:
            refuse_what_json_lacks(document)
        except BadInput as error:
            raise BadInput(f"{what}: {error}") from None
        raise BadInput(f"{what}: holds what JSON has no form for.") from None


def check_story(document: Document, what: str) -> None:
    """The events, the steps and the summary of a document that fits the schema."""
    pool, ids = document["pool"], [request["id"] for request in document["requests"]]
    for name in ("num_blocks", "host_blocks"):
        if pool[name] * pool["block_size"] > MOST_SLOTS:
            raise BadInput(
                f"{what}: pool.{name} = {pool[name]} of {pool['block_size']} slots each is more than "
                f"the {MOST_SLOTS:,} slots that can be shown."
            )
    if len(set(ids)) < len(ids):
        raise BadInput(f"{what}: requests holds an id twice.")
    check_steps(document, what)
    entries = document["summary"]["per_step"]
    if [entry["step"] for entry in entries] != [step["step"] for step in document["steps"]]:
        raise BadInput(f"{what}: summary.per_step has other steps than the trace.")
    story = EventsChecked(document)
    for place, step in enumerate(document["steps"]):
        story.begin()
        for at in range(step["first"], step["end"]):
            story.tell(at, what)
        for name, value in story.found().items():
            if entries[place][name] != value:
                raise BadInput(
                    f"{what}: summary.per_step.{place}.{name} is not what the events of step "
                    f"{step['step']} lead to ({value})."
                )
    outputs = {id: request["outputs"] for id, request in story.state["requests"].items()}
    for id, request in document["summary"]["requests"].items():
        if request["output"] != outputs.get(id, []):
            raise BadInput(f"{what}: summary.requests.{id}.output is not what its events deliver.")
    if not document["model"]["stand_in"]:  # a stand-in's tokens are shown without a text
        told = [request["prompt"] for request in document["requests"]] + list(outputs.values())
        for token in (token for tokens in told for token in tokens):
            if str(token) not in document["tokens"]:
                raise BadInput(f"{what}: tokens has no text for token {token}.")


def check_steps(document: Document, what: str) -> None:
    """The steps cut the events into spans, in order and each of its own."""
    events, end, number = document["events"], 0, 0
    for place, step in enumerate(document["steps"]):
        if step["first"] != end or step["end"] < step["first"] or step["step"] <= number:
            raise BadInput(f"{what}: steps.{place} does not follow the one before it.")
        end, number = step["end"], step["step"]
        span = events[step["first"] : end]
        if any(event["step"] != number for event in span):
            raise BadInput(f"{what}: steps.{place} covers events of another step than {number}.")
        if sum(event["kind"] == "step_started" for event in span) != 1:
            raise BadInput(f"{what}: steps.{place} does not have one step_started.")
    if end != len(events):
        raise BadInput(f"{what}: the steps cover {end} of {len(events)} events.")


class EventsChecked:
    """The state while the events are told, and what the current step has brought so far."""

    def __init__(self, document: Document) -> None:
        pool = document["pool"]
        self.events = document["events"]
        self.size = pool["block_size"]
        self.asked = {request["id"]: request for request in document["requests"]}
        self.state = replay.empty_state(pool["num_blocks"], self.size, pool["host_blocks"])
        self.copies: dict[int, EventJson] = {}
        """What each copy said when it started, and the blocks `done` since."""
        self.begin()

    def begin(self) -> None:
        self.scheduled: dict[str, int] = {}
        self.emitted: dict[str, list[int]] = {}
        self.lists: dict[str, list[str]] = {"admitted": [], "finished": []}
        self.broken: set[str] = set()  # the model run failed for these

    def tell(self, at: int, what: str) -> None:
        event = self.events[at]
        try:
            refuse_numbers(event)
            if "id" in event:
                self.refuse_stranger(event)
            if check := CHECKS.get(event["kind"]):
                check(self, event)
            replay.apply(self.state, event)
            for field in ("free", "host_free"):
                if field in event:
                    need(event[field] == self.state[field], f"{field} is {self.state[field]}")
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            why = error if isinstance(error, Misfit) else repr(error)
            raise BadInput(
                f"{what}: event {at} ({event['kind']}, step {event['step']}) does not fit the "
                f"state before it ({why})."
            ) from None

    def found(self) -> Document:
        """What the summary's entry of the step must say, too."""
        live = {id: r for id, r in self.state["requests"].items() if r["state"] != "finished"}
        entry: Document = {name: self.state[name] for name in ("free", "in_flight", "host_free")}
        entry["history"] = {id: request["history"] for id, request in live.items()}
        entry["blocks"] = {id: r["table"] for id, r in live.items() if r["table"]}
        entry["kv"] = {id: r["kv"] for id, r in live.items() if r["table"]}
        entry["host_blocks"] = {id: r["host_table"] for id, r in live.items() if r["host_table"]}
        entry["emitted"] = self.emitted
        entry["scheduled"] = {i: n for i, n in self.scheduled.items() if i not in self.broken}
        return entry | self.lists

    def refuse_stranger(self, event: EventJson) -> None:
        id, known = event["id"], self.state["requests"]
        if event["kind"] in ("arrived", "forked"):
            need(id in self.asked, f"requests has no {id!r}")
            need(id not in known, f"{id!r} is there already")
        elif event["kind"] == "action_taken":  # also before the arrival
            need(id in self.asked, f"requests has no {id!r}")
        else:
            need(id in known, f"{id!r} has not arrived")

    def request(self, event: EventJson) -> Document:
        found: Document = self.state["requests"][event["id"]]
        return found

    def blocks(self, ids: list[int]) -> list[Document]:
        need(len(set(ids)) == len(ids), "a block is named twice")
        return [self.state["blocks"][id] for id in ids]

    # What each kind of event needs of the state before it.

    def step_started(self, event: EventJson) -> None:
        states = {id: request["state"] for id, request in self.state["requests"].items()}
        queue = {"waiting", "preempted", "swapping_out", "swapped"}
        for name, those in (
            ("running", {"running", "swapping_in"}),
            ("waiting", queue),
            ("paused", {"paused"}),
        ):
            found = sorted(id for id, state in states.items() if state in those)
            need(sorted(event[name]) == found, f"{name} is {', '.join(found) or 'nobody'}")

    def arrived(self, event: EventJson) -> None:
        asked = self.asked[event["id"]]
        need(event["history"] == len(asked["prompt"]), f"the prompt has {len(asked['prompt'])}")
        need(event["max_tokens"] == asked["max_tokens"], "max_tokens is another one")

    def forked(self, event: EventJson) -> None:
        parent = self.state["requests"][event["parent"]]
        need(event["history"] == len(self.asked[event["id"]]["prompt"]), "history is another one")
        kv = parent["kv"] if event["blocks"] else 0
        need(event["kv"] == kv, "kv is not the parent's")
        need(event["blocks"] == parent["table"][: len(event["blocks"])], "blocks of nobody")

    def admitted(self, event: EventJson) -> None:
        need(self.request(event)["state"] == "waiting", "it does not wait")
        self.lists["admitted"].append(event["id"])

    def resumed(self, event: EventJson) -> None:
        states = ("paused", "preempted", "swapped")
        need(self.request(event)["state"] in states, "nothing to resume")

    def block_allocated(self, event: EventJson) -> None:
        for block in self.blocks(event["blocks"]):
            need(block["status"] == "free", "a block is not free")

    def block_shared(self, event: EventJson) -> None:
        request = self.request(event)
        for block in self.blocks(event["blocks"]):
            need(event["id"] not in block["owners"], "a block is its own already")
        need(event["tokens"] == len(event["blocks"]) * self.size, "tokens that no block has")
        need(request["kv"] + event["tokens"] <= request["history"], "more KV than history")

    def block_copied(self, event: EventJson) -> None:
        need(self.request(event)["table"][event["logical"]] == event["source"], "not in its table")
        need(self.state["blocks"][event["block"]]["status"] == "free", "the block is not free")

    def block_released(self, event: EventJson) -> None:
        request, copying = self.request(event), self.copying(event["id"])
        for id, block in zip(event["blocks"], self.blocks(event["blocks"]), strict=True):
            own = event["id"] in block["owners"] and id in request["table"]
            need(own or id in copying, f"P{id} is not its own")
            others = any(owner != event["id"] for owner in block["owners"])
            need(id not in event["freed"] or not others, f"others hold P{id}")
            need(block["status"] != "free", f"P{id} is free")
        need(set(event["cached"]) <= set(event["freed"]) <= set(event["blocks"]), "freed of nobody")

    def preempted(self, event: EventJson) -> None:
        request = self.request(event)
        need(request["state"] in ("running", "paused"), "it does not run")
        for name, value in (("held", len(request["table"])), ("delivered", request["delivered"])):
            need(event[name] == value, f"{name} is {value}")
        for name in ("history", "kv"):
            need(event[name] == request[name], f"{name} is {request[name]}")

    def paused(self, event: EventJson) -> None:
        need(self.request(event)["state"] == "running", "it does not run")

    def scheduled_(self, event: EventJson) -> None:
        request = self.request(event)
        need(request["state"] == "running", "it does not run")
        need(event["id"] not in self.scheduled, "it is scheduled already")
        need(event["start"] == request["kv"], f"the KV ends at {request['kv']}")
        end = event["start"] + event["tokens"]
        need(event["start"] < end <= request["history"], "tokens that the history does not have")
        self.scheduled[event["id"]] = event["tokens"]

    def unscheduled(self, event: EventJson) -> None:
        need(self.scheduled.pop(event["id"], None) == event["tokens"], "it is not scheduled")

    def kv_written(self, event: EventJson) -> None:
        request = self.request(event)
        logical, first, last = event["logical"], event["first"], event["last"]
        need(request["table"][logical] == event["block"], f"entry {logical} is another block")
        need(first == logical * self.size + event["slot"], "the position lies in another slot")
        need(first <= last < min(request["history"], (logical + 1) * self.size), "last is too far")
        need(event["slot"] < self.size and first == request["kv"], f"KV ends at {request['kv']}")

    def token_sampled(self, event: EventJson) -> None:
        count = len(self.request(event)["outputs"])
        need(event["index"] == count, f"the next output is x{count}")

    def token_delivered(self, event: EventJson) -> None:
        request = self.request(event)
        need(event["index"] == request["delivered"], f"the next one is x{request['delivered']}")
        need(request["outputs"][event["index"]] == event["token"], "another token was sampled")
        self.emitted.setdefault(event["id"], []).append(event["token"])

    def finished(self, event: EventJson) -> None:
        request = self.request(event)
        need(request["state"] != "finished", "it has ended already")
        need(event["outputs"] == len(request["outputs"]), f"it has {len(request['outputs'])}")
        self.lists["finished"].append(event["id"])
        if event["why"] == "error":
            self.broken.add(event["id"])

    # Copies.

    def copying(self, id: str) -> list[int]:
        """GPU blocks of the request's copies."""
        return [b for copy in self.copies.values() if copy["id"] == id for b in copy["blocks"]]

    def copy(self, event: EventJson, direction: str) -> EventJson:
        copy = self.copies[event["copy"]]
        need(copy["kind"] == f"{direction}_started" and copy["id"] == event["id"], "another copy")
        return copy

    def start(self, event: EventJson) -> None:
        need(event["copy"] not in self.copies, "the copy has started already")
        need(len(event["blocks"]) == len(event["host_blocks"]) > 0, "blocks without a partner")
        places = event["places"]
        need(len(places) == len(event["blocks"]), "blocks without a place")
        need(sorted(set(places)) == places, "places out of order")
        need(0 < event["kv"] <= len(event["blocks"]) * self.size, "kv of no block")
        self.blocks(event["blocks"])
        self.copies[event["copy"]] = event | {"done": 0}

    def swap_out_started(self, event: EventJson) -> None:
        request = self.request(event)
        need(set(event["blocks"]) <= set(request["table"]), "blocks are not of its table")
        need(event["kv"] <= request["kv"], f"kv is {request['kv']}")
        hosts = event["host_blocks"]
        need(len(set(hosts)) == len(hosts), "a host block is named twice")
        for host in hosts:
            need(self.state["host_blocks"][host]["status"] == "free", f"H{host} is not free")
        self.start(event)

    def swap_in_started(self, event: EventJson) -> None:
        request = self.request(event)
        need(sorted(event["host_blocks"]) == sorted(request["host_table"]), "host blocks of others")
        need(event["kv"] == request["host_kv"], f"kv is {request['host_kv']}")
        for block in self.blocks(event["blocks"]):
            need(block["status"] != "free", "a block is free")
        self.start(event)

    def advanced(self, event: EventJson) -> None:
        copy = self.copy(event, event["kind"].removesuffix("_advanced"))
        end = copy["done"] + len(event["blocks"])
        for name in ("blocks", "host_blocks"):
            need(event[name] == copy[name][copy["done"] : end], f"{name} are not the next ones")
        need(event["done"] == end and event["total"] == len(copy["blocks"]), f"{end} are done")
        copy["done"] = end

    def swap_out_finished(self, event: EventJson) -> None:
        if not event["kv"]:
            need(self.request(event)["state"] == "preempted", "it was not preempted")
            return
        copy = self.copy(event, "swap_out")
        need(self.request(event)["state"] == "swapping_out", "it is not being copied")
        need(copy["done"] == len(copy["blocks"]), "the copy is not complete")
        need(event["kv"] == copy["kv"], f"kv is {copy['kv']}")

    def swap_in_finished(self, event: EventJson) -> None:
        if not event["kv"]:
            need(event["table"] == self.request(event)["table"], "the table is another one")
            return
        copy = self.copy(event, "swap_in")
        need(self.request(event)["state"] == "swapping_in", "it is not being copied")
        need(copy["done"] == len(copy["blocks"]), "the copy is not complete")
        need(event["blocks"] == copy["blocks"], "other blocks were copied")
        need(event["kv"] == copy["kv"], f"kv is {copy['kv']}")
        entries = dict(enumerate(event["table"]))
        own = [entries.pop(place, None) for place in copy["places"]]
        need(own == copy["blocks"], "blocks stand in other places of the table")
        kept = [entries[place] for place in sorted(entries)]
        need(kept == self.request(event)["table"], "the rest of the table is another one")

    def reclaimed(self, event: EventJson) -> None:
        request = self.request(event)
        need(request["state"] == "swapped", "it does not wait with stored KV")
        need(set(event["blocks"]) <= set(request["table"]), "blocks are not of its table")

    def copy_failed(self, event: EventJson) -> None:
        self.copy(event, f"swap_{event['why']}")

    def host_block_released(self, event: EventJson) -> None:
        need(event["host_blocks"] == self.request(event)["host_table"] != [], "not its own")

    def damage_found(self, event: EventJson) -> None:
        need(event["block"] < len(self.state["blocks"]), "there is no such block")


def refuse_numbers(event: EventJson) -> None:
    """Counts and places start from 0 (Python would take a negative one from the end), and no number
    is larger than all readers take."""
    for field, value in event.items():
        for number in value if isinstance(value, list) else (value,):
            if isinstance(number, int | float):
                least = -LARGEST if field == "priority" else 0
                need(least <= number <= LARGEST, f"{field} = {number}")


CHECKS = {
    kind: getattr(EventsChecked, kind) for kind in replay.CHANGES if kind in vars(EventsChecked)
} | {
    "scheduled": EventsChecked.scheduled_,
    "unscheduled": EventsChecked.unscheduled,
    "swap_out_advanced": EventsChecked.advanced,
    "swap_in_advanced": EventsChecked.advanced,
}
