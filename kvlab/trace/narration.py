"""What an event says: a key for the trace, and the sentence that a catalogue has for the key.

Words live in `words/<language>.json` alone. A trace stores the key (`say`), so that it can be read
in any language; the player's twin of `narrate` is kvlab/draw/js/src/words.js, and a test holds
the two equal. A template is plain text with fields of the event in braces:

    {id}              the field as it is
    {blocks:P}        one id or a list of them, each with the letters before it: "P2 and P3"
    {running:list}    a list: "A and B"; what joins it is the catalogue's affair (grammar.list)
    {free:block}      a count in the words of forms.block, by the plural rule in grammar.plural; its
                      digits stand in groups of three (grammar.thousands)
    {why:victim}      a code in the words of maps.victim; of one that is not there `*` speaks as {n}

Besides the event's own fields a template may use the ones of `arguments`.

The plural rule is a list of {form, is | mod10 | mod100 | not100}; the first entry of which all
conditions list the number (its last digit, its last two, none of its last two) names the form. A
form that a count does not have, and no match, is "other".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kvlab.errors import BadInput

FOLDER = Path(__file__).parent / "words"
OWN_RELEASES = ("preempted", "swapped_out", "copy_unfinished")
"""Whoever gives up blocks for these reasons waits itself."""
FIELD = re.compile(r"\{([a-z_]+)(?::([A-Za-z_]+))?\}")

Event = Mapping[str, Any]
Words = Mapping[str, Any]


def languages() -> list[str]:
    """Every language that has a catalogue."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load_words(language: str = "en") -> Words:
    """The catalogue of a language: narration and all strings of the player."""
    if language not in languages():
        known = ", ".join(languages())
        raise BadInput(f"language {language!r}: there are no words for it (there are: {known})")
    return _read(language)


@cache
def _read(language: str) -> Words:
    words: Words = json.loads((FOLDER / f"{language}.json").read_text("utf-8"))
    return words


def key(event: Event) -> str:
    """Which sentence an event gets: its kind, then the variants that its fields choose."""
    return ".".join([event["kind"], *_variants(event)])


def narrate(event: Event, words: Words) -> str:
    """The sentence for an event. A key that the catalogue lacks falls back to a shorter one."""
    say = known_key(event.get("say") or key(event), words)
    return fill(words["events"][say], arguments(event), words)


@cache
def fields_of(say: str) -> list[str]:
    """The values that the sentence of a key needs, in any language."""
    found: dict[str, None] = {}
    for language in languages():
        words = _read(language)
        names = FIELD.findall(words["events"][known_key(say, words)])
        found |= dict.fromkeys(name for name, _ in names)
    return list(found)


def known_key(say: str, words: Words) -> str:
    """The key, or the longest part of it that the catalogue has a sentence for; else `unknown`."""
    while say not in words["events"]:
        if "." not in say:
            return "unknown"
        say = say.rpartition(".")[0]
    return say


def arguments(event: Event) -> dict[str, Any]:
    """The event's fields and what follows from them.

    last: last position scheduled; fresh: positions that are computed for the first time;
    logicals: table indices of new blocks; kept: blocks that others still use; count: damaged
    layers; before: index of the output before.
    """
    found = dict(event)
    kind = event["kind"]
    if kind == "scheduled":
        found["last"] = event["start"] + event["tokens"] - 1
        found["fresh"] = event["tokens"] - event["again"]
    elif kind == "resumed":
        found["fresh"] = event["history"] - event["kv"] - event["rebuild"]
    elif kind == "block_allocated":
        first = event["logical"]
        found["logicals"] = list(range(first, first + len(event["blocks"])))
    elif kind == "block_released":
        found["kept"] = len(event["blocks"]) - len(event["freed"])
    elif kind == "damage_found":
        found["count"] = len(event["layers"])
    elif kind == "token_delivered":
        found["before"] = event["index"] - 1
    return found


def fill(template: str, values: Mapping[str, Any], words: Words) -> str:
    """A template with its fields replaced, in one pass: values are never read as templates."""
    return FIELD.sub(lambda match: _field(values.get(match[1]), match[2], words), template)


def plural(number: int, words: Words) -> str:
    """The form that the catalogue's rule gives a number."""
    for rule in words["grammar"]["plural"]:
        if (
            number in rule.get("is", [number])
            and number % 10 in rule.get("mod10", [number % 10])
            and number % 100 in rule.get("mod100", [number % 100])
            and number % 100 not in rule.get("not100", [])
        ):
            form: str = rule["form"]
            return form
    return "other"


def _field(value: Any, spec: str | None, words: Words) -> str:
    if spec is None:
        return _text(value)
    if spec in words["forms"]:
        forms = words["forms"][spec]
        digits = f"{value:,}" if isinstance(value, int) else _text(value)
        count = digits.replace(",", words["grammar"]["thousands"])
        return _text(forms.get(plural(value, words), forms["other"])).replace("{n}", count)
    if spec in words["maps"]:
        code, known = _text(value), words["maps"][spec]
        if code in known:
            return _text(known[code])
        return _text(known["*"]).replace("{n}", code) if "*" in known else code.replace("_", " ")
    items = value if isinstance(value, (list, tuple)) else [value]
    return _join([("" if spec == "list" else spec) + _text(item) for item in items], words)


def _join(items: Sequence[str], words: Words) -> str:
    grammar = words["grammar"]["list"]
    if not items:
        return _text(grammar["none"])
    if len(items) > grammar["most"]:
        kept = grammar["most"] - 2
        items = [*items[:kept], grammar["more"].replace("{n}", str(len(items) - kept))]
    if len(items) == 1:
        return items[0]
    return grammar["between"].join(items[:-1]) + _text(grammar["last"]) + items[-1]


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _variants(event: Event) -> list[str]:
    """The parts of a key after the kind, from general to special."""
    kind, why = event["kind"], event.get("why")
    match kind:
        case "step_started":
            found = {(True, True): "both", (True, False): "running", (False, True): "waiting"}
            who = found.get((bool(event["running"]), bool(event["waiting"])), "empty")
            return [who, *(["paused"] if event.get("paused") else [])]
        case "action_taken":
            return [event["action"] if why == "taken" else str(why)]
        case "setting_changed":
            return [event["setting"] if why == "taken" else str(why)]
        case "forked":
            return [] if event["blocks"] else ["waits"]
        case "admitted":
            return ["cache"] if event["from_cache"] else []
        case "resumed":
            cache, shared = why == "recompute" and event["from_cache"], event["stays"]
            return [str(why), *(["cache"] if cache else []), *(["shared"] if shared else [])]
        case "block_needed":
            if event["free"]:
                return ["some"]
            return ["none"] if event["logical"] else ["none", "first"]
        case "block_released":
            return [str(why), *_released(event)]
        case "preempted":
            need_of = event["need_of"]
            whose = "action" if need_of is None else "self" if need_of == event["id"] else "need"
            whose = "priority" if event["why"] == "priority" else whose
            fallback, shared = event["fallback"], event["stays"]
            more = [*([fallback] if fallback else []), *(["shared"] if shared else [])]
            return [whose, event["method"], *more]
        case "scheduled":
            return [str(why), *_scheduled(event)]
        case "kv_written":
            return [str(why), *(["one"] if event["first"] == event["last"] else [])]
        case "token_delivered":
            gap = event["gap"]
            return ["first"] if gap is None else ["late"] if gap > 1 else []
        case "swap_out_finished" | "swap_in_finished":
            return [] if event["kv"] else ["nothing"]
        case "damage_found":
            return ["restored" if event["restored"] else "overwritten"]
        case "finished":
            return [str(why), *(["message"] if event["message"] else [])]
    return [] if why is None else [str(why)]


def _released(event: Event) -> list[str]:
    found = ["shared"] if len(event["freed"]) < len(event["blocks"]) else []
    if event["next_id"] is None:
        return found
    # Who is preempted waits at the head of the queue itself.
    own = event["next_id"] == event["id"] and event["why"] in OWN_RELEASES
    return [*found, "self" if own else "next"]


def _scheduled(event: Event) -> list[str]:
    if event["why"] in ("prefill", "recompute") and not event["samples"]:
        return ["part"]
    return ["one"] if event["why"] == "prefill" and event["tokens"] == 1 else []
