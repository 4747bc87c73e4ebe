"""Two runs beside each other, for the page: what if, and recompute against swap. The words are made
here, so that the page only shows them."""

from __future__ import annotations

from typing import Any

from kvlab.draw.packed import packed
from kvlab.runs.fork import (
    NEXT_VICTIM,
    NUM_BLOCKS,
    Departure,
    Fork,
    choices,
    departure,
    step_of,
)
from kvlab.runs.scenario import Scenario
from kvlab.trace.differences import difference_table
from kvlab.trace.document import Trace
from kvlab.trace.narration import Words, fill, load_words

WAYS = ("recompute", "swap")


def offers(trace: Trace, cursor: int, language: str) -> dict[str, Any]:
    """What could be changed at a cursor: settings with their labels, and values with theirs."""
    words, step = load_words(language), step_of(trace, cursor)
    blocks = trace.document["pool"]["num_blocks"]
    sizes = [n for n in (blocks - 1, blocks + 1, blocks + 2, 2 * blocks) if n > 0]
    found = {**choices(trace, step), NUM_BLOCKS: sorted({*sizes} - {blocks})}
    return {
        "step": step,
        "settings": [
            [
                setting,
                words["what_if"][setting],
                [[value, label_of(setting, value, words)] for value in values],
            ]
            for setting, values in found.items()
        ],
    }


def label_of(setting: str, value: str | int, words: Words) -> str:
    if setting in (NEXT_VICTIM, NUM_BLOCKS):
        return str(value)
    return fill(f"{{value:{setting}}}", {"value": value}, words)


def forked(old: Trace, new: Trace, fork: Fork, language: str) -> dict[str, Any]:
    """Both runs from the fork on."""
    words = load_words(language)
    told = words["what_if"]
    what = {"step": fork.step, "value": fork.value}
    left = departure(old, new, fork)
    return pair(old, new, words) | {
        "fork": 1 if fork.from_start else fork.step,
        "title": fill(told[f"change_{fork.setting}"], what, words),
        "note": fill(told["departed"], parted(left, old, new), words) if left else "",
    }


def parted(left: Departure, old: Trace, new: Trace) -> dict[str, Any]:
    was, now = old.document["run"], new.document["run"]
    return {
        "event": left.event + 1,
        "step": left.step,
        **{f"was_{key}": was[key] for key in ("device", "dtype")},
        **{f"now_{key}": now[key] for key in ("device", "dtype")},
    }


def by_method(scenario: Scenario, method: str) -> Scenario:
    """The scenario with another method; swap gets a CPU pool where there is none."""
    engine = scenario.document["engine"]
    settings = [f"engine.method={method}"]
    if method == "swap" and not engine["host_blocks"] and not scenario.sized_at_run:
        settings.append(f"engine.host_blocks={engine['num_blocks']}")
    return scenario.with_settings(settings)


def by_both(one: Trace, other: Trace, language: str) -> dict[str, Any]:
    """Two runs in their own right, named by their methods."""
    words = dict(load_words(language))
    names = [fill("{value:method}", {"value": way}, words) for way in WAYS]
    named = dict(zip(("before", "after"), names, strict=True))
    words["pair"] = {
        **words["pair"],
        **named,
        "differences": words["pair"]["differences_between"],
    }
    return pair(one, other, words) | {"fork": 0, "title": " / ".join(names), "note": "", **named}


def pair(one: Trace, other: Trace, words: Words) -> dict[str, Any]:
    table = difference_table(one, other, words)
    return {
        "pictures": [packed(one.document), packed(other.document)],
        "table": {
            "caption": table.caption,
            "head": list(table.head),
            "rows": [list(row) for row in table.rows],
            "note": table.note,
        },
    }
