"""The kinds of questions: each reads the answer off a run. None where it makes no sense there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvlab.course.question import Said, Situation, Text
from kvlab.trace.facts import longest_gap

MOST_OPTIONS = 8


@dataclass(frozen=True, slots=True)
class Asked:
    """What a kind makes of a situation."""

    text: Text
    options: tuple[str, ...]
    answer: str
    look: Text


Make = Callable[[Situation], Asked | None]


@dataclass(frozen=True, slots=True)
class Kind:
    """`make` does the work. `place` names the first event that has these fields: the question is put
    just before it, with `end` at the end of its step; an empty one means the end of the run."""

    make: Make
    place: Mapping[str, Any] = field(default_factory=dict)
    end: bool = False
    is_number: bool = False
    """A number is to be given; there are no options."""


def around(answer: int, others: Iterable[int], most: int = 3) -> tuple[str, ...]:
    """The answer among others, in order, so that its place gives nothing away."""
    near = [n for n in others if n >= 0 and n != answer]
    few = sorted([answer, *list(dict.fromkeys(near))[:most]])
    return tuple(map(str, few))


def outputs(indices: Iterable[int]) -> str:
    """x0, x1, …: the ends where there are many."""
    names = [f"x{index}" for index in indices]
    return f"{names[0]} … {names[-1]}" if len(names) > 4 else ", ".join(names) or "–"


def who_is_paused(now: Situation) -> Asked | None:
    """The request of the next preemption or pause."""
    found = now.next("preempted", "paused")
    if found is None:
        return None
    at, gone = found
    runs = [id for id, one in now.requests.items() if one["state"] in ("running", "paused")]
    few = [id for id in runs if id != gone["id"]][: MOST_OPTIONS - 1]
    text = Said("who_is_paused")
    if gone["need_of"] is not None:
        text = Said("who_is_paused_for", {"need_of": gone["need_of"], "free": now.free})
    return Asked(text, tuple(sorted([*few, gone["id"]])), gone["id"], at)


def free_after(now: Situation) -> Asked:
    """Blocks that are free after the event."""
    id, after = now.event.get("id"), now.free_after
    own = len(now.of(id)["table"]) if id in now.requests else 1
    key = {"block_released": "free_after_release", "paused": "free_after_pause"}
    text = Said(key.get(now.event["kind"], "free_after"), {"id": id})
    options = around(after, (now.free, own, 0, now.total, after + 1, after + 2))
    return Asked(text, options, str(after), now.at)


def tokens_processed(now: Situation) -> Asked | None:
    """Tokens of the event's request that go through the model when it runs next."""
    id = now.event.get("id")
    found = now.next("scheduled", id=id)
    if id is None or found is None:
        return None
    at, ran = found
    tokens, history = (
        ran["tokens"],
        int(now.of(id)["history"]) if now.of(id) else int(ran["tokens"]),
    )
    # After a swap the return of the KV is the reason, not the one decoded token.
    look = now.at if ran["why"] == "decode" and now.event["kind"] == "resumed" else at
    options = around(tokens, (1, history - 1, history, tokens + 1, tokens + 2))
    return Asked(
        Said("tokens_processed", {"id": id, "history": history}), options, str(tokens), look
    )


def tokens_sent(now: Situation) -> Asked | None:
    """Outputs that the user of the event's request receives in the step."""
    id, step = now.event.get("id"), now.event["step"]
    sent = [
        (at, event["index"])
        for at, event in enumerate(now.trace.events[now.at :], now.at)
        if event["kind"] == "token_delivered" and event["step"] == step and event["id"] == id
    ]
    if not sent:
        return None
    new = [index for _, index in sent]
    old = list(range(now.of(str(id)).get("delivered", 0)))
    options = sorted({outputs(some) for some in (new, [*old, *new], old, [])})
    return Asked(Said("tokens_sent", {"id": id}), tuple(options), outputs(new), sent[-1][0])


def blocks_allocated(now: Situation) -> Asked | None:
    """Blocks that the event's request is given next."""
    found = now.next("block_allocated", id=now.event.get("id"))
    if found is None:
        return None
    at, given = found
    count = len(given["blocks"])
    options = around(count, (0, 1, count + 1, count + 2))
    return Asked(Said("blocks_allocated", {"id": given["id"]}), options, str(count), at)


# Of the chapters.


def slots_left(now: Situation) -> Asked | None:
    """Slots that each request still has after the first step: the fewest of all."""
    held = {id: one for id, one in now.requests.items() if one["table"]}
    found = now.next("block_needed")
    if not held or found is None:
        return None
    size = now.trace.document["pool"]["block_size"]
    left = min(len(one["table"]) * size - one["kv"] for one in held.values())
    first = next(iter(held.values()))
    values = {"kv": first["kv"], "blocks": len(first["table"]), "slots": size, "free": now.free}
    look = Said("slots_left_look", {"left": left, "position": found[1]["position"]})
    return Asked(Said("slots_left", values), around(left, (0, 1, 2)), str(left), look)


def free_after_skip(now: Situation) -> Asked | None:
    """Blocks that are free after the step in which a request is left out and nothing else happens."""
    released = now.next("block_released")
    if now.event["kind"] != "paused" or released is None:
        return None
    gone, release = now.event, released[1]
    values = {"step": gone["step"], "id": gone["id"]}
    look = {"id": gone["id"], "held": gone["held"], "taker": gone["need_of"]}
    look |= {"step": release["step"], "free": release["free"]}
    answer = now.free_after
    return Asked(
        Said("free_after_skip", values),
        around(answer, (0, 1, 2)),
        str(answer),
        Said("free_after_skip_look", look),
    )


def tokens_on_return(now: Situation) -> Asked | None:
    """Tokens of the preempted request that go through the model in the step that resumes it."""
    gone, back = now.event, now.next("resumed")
    if gone["kind"] != "preempted" or back is None:
        return None
    ran = now.next("scheduled", id=back[1]["id"], step=back[1]["step"])
    if ran is None:
        return None
    tokens, again = ran[1]["tokens"], ran[1]["again"]
    values = {"id": gone["id"], "history": gone["history"], "kv": gone["kv"]}
    look = {"step": ran[1]["step"], "tokens": tokens, "again": again}
    look["history"] = back[1]["history"]
    return Asked(
        Said("tokens_on_return", values),
        around(tokens, (1, gone["kv"], gone["history"])),
        str(tokens),
        Said("tokens_on_return_look" if again else "tokens_on_return_look_none", look),
    )


def gap_of_the_preempted(now: Situation) -> Asked | None:
    """Steps of the longest gap of whoever is preempted first."""
    gone = now.event
    if gone["kind"] != "preempted" or not gone["delivered"]:
        return None
    gap = longest_gap(now.trace, gone["id"])
    before = gone["delivered"] - 1
    values = {"id": gone["id"], "step": gone["step"], "before": before, "after": before + 1}
    values["sent"] = gone["step"] - 1
    look = Said("gap_look", {"waiting": gap.waiting, "recovery": gap.recovery})
    options = around(gap.steps, (1, gap.waiting))
    return Asked(Said("gap", values), options, str(gap.steps), look)


# Of the notebooks: a number is to be given.


def number(
    name: str, answer: Callable[[Situation], int], *, end: bool = False, **place: Any
) -> Kind:
    """A question without options; its words are the catalogue's `name` and `name_look`."""

    def make(now: Situation) -> Asked:
        return Asked(Said(name), (), str(answer(now)), Said(f"{name}_look"))

    return Kind(make, place, end, is_number=True)


def entry(name: str) -> Callable[[Situation], int]:
    """The answer stands in the event."""
    return lambda now: int(now.event[name])


def longest_gap_of_b(part: str) -> Callable[[Situation], int]:
    return lambda now: int(getattr(longest_gap(now.trace, "B"), part))


KINDS: dict[str, Kind] = {
    "who_is_paused": Kind(who_is_paused, {"kind": "preempted"}),
    "free_after": Kind(free_after, {"kind": "block_released"}),
    "tokens_processed": Kind(tokens_processed, {"kind": "resumed"}),
    "tokens_sent": Kind(tokens_sent, {"kind": "token_delivered"}),
    "blocks_allocated": Kind(blocks_allocated, {"kind": "block_allocated"}),
    "slots_left": Kind(slots_left, {"step": 1}, end=True),
    "free_after_skip": Kind(free_after_skip, {"kind": "paused"}),
    "tokens_on_return": Kind(tokens_on_return, {"kind": "preempted"}),
    "gap_of_the_preempted": Kind(gap_of_the_preempted, {"kind": "preempted"}),
    "steps of the run": number("steps_of_run", lambda now: len(now.trace.steps)),
    "blocks in the pool": number("blocks_in_pool", lambda now: now.total),
    "slots filled": number(
        "slots_filled",
        lambda now: sum(one["kv"] for one in now.requests.values()),
        kind="block_needed",
    ),
    "position without a place": number(
        "position_without_place", entry("position"), kind="block_needed"
    ),
    "free after the release": number("free_after_b", entry("free"), kind="block_released", id="B"),
    "history while paused": number("history_paused", entry("history"), kind="preempted", id="B"),
    "positions rebuilt": number("positions_rebuilt", entry("rebuild"), kind="resumed", id="B"),
    "first output after the pause": number(
        "first_output", entry("delivered"), kind="preempted", id="B"
    ),
    "blocks copied out": number(
        "blocks_copied_out", lambda now: len(now.event["blocks"]), kind="swap_out_started"
    ),
    "blocks held after the return": number(
        "blocks_held", lambda now: len(now.of("B")["table"]), end=True, kind="resumed", id="B"
    ),
    "steps of waiting": number("steps_of_waiting", longest_gap_of_b("waiting")),
    "steps of recovery": number("steps_of_recovery", longest_gap_of_b("recovery")),
    "step of the pause": number("step_of_pause", entry("step"), kind="preempted"),
    "tokens computed again": number(
        "tokens_again", lambda now: int(now.trace.summary["tokens_recomputed"])
    ),
}
