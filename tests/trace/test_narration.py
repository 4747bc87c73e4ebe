"""Every event has a sentence, in the words of one catalogue."""

from __future__ import annotations

import re
from dataclasses import fields
from itertools import product
from typing import Any

import pytest

from kvlab.engine.config import UNSAFE
from kvlab.engine.events import event_kinds
from kvlab.errors import BadInput
from kvlab.trace.narration import fill, key, load_words, narrate, plural

WORDS = load_words()

SAMPLES = {
    "str": "B",
    "int": 2,
    "bool": True,
    "tuple[str, ...]": ["A", "B"],
    "tuple[int, ...]": [2, 3],
    "str | None": None,
    "int | None": None,
    "float | None": None,
}

# Fields besides `why` that choose among sentences.
CHOICES: dict[str, dict[str, list[Any]]] = {
    "step_started": {"running": [[], ["A"]], "waiting": [[], ["B"]], "paused": [[], ["C"]]},
    "action_taken": {"action": ["abort", "preempt", "pause", "resume", "next_victim"]},
    "setting_changed": {
        "setting": ["method", "victim", "free_order"],
        "why": ["taken", "same"],
    },
    "admitted": {"from_cache": [0, 4]},
    "resumed": {"from_cache": [0, 4], "stays": [0]},
    "block_needed": {"free": [0, 1], "logical": [0, 2], "needs": [1, 2]},
    "block_released": {"freed": [[2, 3], [3], []], "next_id": [None, "A", "B"], "next_needs": [3]},
    "preempted": {
        "need_of": [None, "A", "B"],
        "why": ["newest", "oldest", "action", "a_new_policy"],
        "method": ["recompute", "swap"],
        "fallback": [None],
        "stays": [0],
    },
    "forked": {"blocks": [[2, 3], []]},
    "swap_out_finished": {"kv": [0, 8]},
    "swap_in_finished": {"kv": [0, 8]},
    "scheduled": {"tokens": [1, 7], "samples": [True, False], "again": [0]},
    "kv_written": {"first": [4], "last": [4, 7]},
    "token_delivered": {"gap": [None, 1, 5]},
    "damage_found": {"why": list(UNSAFE), "restored": [True, False]},
    "finished": {"message": [None, "there is no room."]},
}


def reasons(doc: str) -> list[str]:
    """The codes that a docstring lists after "why:"."""
    found = re.search(r"why: ([a-z_]+(?:[^|.]*\|\s*[a-z_]+)*)", doc)
    return [re.match(r"\s*([a-z_]+)", part)[1] for part in found[1].split("|")] if found else []  # type: ignore[index]


def samples() -> list[dict[str, Any]]:
    """Events of every kind, in every variant that the vocabulary allows."""
    found = []
    for kind, cls in event_kinds().items():
        base = {field.name: SAMPLES[str(field.type)] for field in fields(cls)}
        if kind == "token_delivered":
            base["text"] = " there"
        choices = dict(CHOICES.get(kind, {}))
        if "why" in base and "why" not in choices:
            choices["why"] = reasons(cls.__doc__ or "")
            assert choices["why"], f"{kind}: its docstring names no reason"
        for values in product(*choices.values()):
            found.append({"kind": kind} | base | dict(zip(choices, values, strict=True)))
        if kind == "preempted":
            why = {"why": "newest", "method": "recompute"}
            for need in (None, "A", "B"):
                who = {"kind": kind} | base | why | {"need_of": need, "fallback": None, "stays": 0}
                found += [who | {"fallback": "host_full"}, who | {"method": "swap", "stays": 1}]
            makes_way = who | {"why": "priority"}  # for B, whoever that is
            found += [makes_way, makes_way | {"fallback": "host_full"}]
            found += [makes_way | {"method": "swap", "stays": stays} for stays in (0, 1)]
        if kind == "resumed":
            found.append({"kind": kind} | base | {"why": "swap", "from_cache": 0, "stays": 4})
    return found


@pytest.mark.parametrize("event", samples(), ids=lambda event: key(event))
def test_every_variant_has_words_of_its_own(event: dict[str, Any]) -> None:
    assert key(event) in WORDS["events"]
    sentence = narrate(event, WORDS)
    assert sentence
    assert not re.search(r"[{}!]|None|  ", sentence), sentence
    assert sentence[-1] == "."


def test_no_template_is_left_over() -> None:
    """A sentence that no event can get would never be read; shorter keys are the fallback."""
    used = {key(event) for event in samples()}
    prefixes = {name.rsplit(".", count)[0] for name in used for count in range(5)}
    assert set(WORDS["events"]) - prefixes == {"unknown"}


def test_the_sentence_that_the_design_gives() -> None:
    event = {
        "kind": "block_released", "step": 6, "id": "A", "why": "finished", "blocks": [0, 1, 2],
        "freed": [0, 1, 2], "cached": [], "free": 4, "next_id": "B", "next_needs": 3,
    }  # fmt: skip
    assert (
        narrate(event, WORDS)
        == "A finished and released P0, P1 and P2: 4 blocks are free, B needs 3."
    )


def test_an_unknown_key_falls_back_to_a_shorter_one() -> None:
    event = {"kind": "stalled", "say": "stalled.a_new_reason", "id": "A", "needs": 1, "free": 0}
    assert (
        narrate(event, WORDS)
        == "A cannot run in this step: it needs 1 block, and no block is free."
    )
    assert "a_new_kind" in narrate({"kind": "a_new_kind"}, WORDS)


def test_values_are_never_read_as_templates() -> None:
    event = {"kind": "token_delivered", "id": "{index}", "index": 3, "token": 1, "gap": 1}
    assert narrate(event, WORDS) == "The user of {index} receives x3."


def test_lists_and_plurals_are_the_catalogues_affair() -> None:
    assert fill("{ids:list}", {"ids": []}, WORDS) == "none"
    assert fill("{ids:list}", {"ids": ["A"]}, WORDS) == "A"
    assert fill("{blocks:P}", {"blocks": list(range(9))}, WORDS) == "P0, P1, P2, P3 and 5 more"
    slavic = {
        "grammar": {
            "plural": [
                {"form": "one", "mod10": [1], "not100": [11]},
                {"form": "few", "mod10": [2, 3, 4], "not100": [12, 13, 14]},
            ]
        }
    }
    assert [plural(n, slavic) for n in (1, 2, 5, 11, 12, 21, 22)] == [
        "one", "few", "other", "other", "other", "one", "few",
    ]  # fmt: skip


def test_a_language_without_words() -> None:
    with pytest.raises(BadInput, match="language 'xx'"):
        load_words("xx")
    with pytest.raises(BadInput):
        load_words("../words/en")
