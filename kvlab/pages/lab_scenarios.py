"""What the Lab takes: presets, choices, the bounds of a run in a shared room, files and links."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from pathlib import Path
from typing import Any

from kvlab.course.chapters import CHAPTERS
from kvlab.engine.config import ADMISSIONS, ALLOCATIONS, FREE_ORDERS, METHODS, VICTIMS
from kvlab.errors import BadInput
from kvlab.files.plain_data import parse
from kvlab.models.cache import cached_models
from kvlab.pages.scenario_form import LARGEST_SCENARIO
from kvlab.runs.limits import MOST_SLOTS, MOST_TOKENS, refuse_too_large
from kvlab.runs.scenario import AUTO, Scenario, load_scenario, scenario_from, scenario_names
from kvlab.trace.document import FORMAT, Trace
from kvlab.trace.speech import ENGLISH, Speech

Raw = dict[str, Any]
PRESETS = tuple(scenario_names())
LONGEST_LINK = 6_000  # characters of the packed scenario
UNSAFE = ("write_before_copy_out", "reuse_before_copied", "read_before_copy_in")
PROMPTS = ("Tom and Nora share a bench", "Leo waits in the hall", "Mia keeps her books")
"""What the model can go on with: it was trained on sentences like these."""

BOUNDS: dict[str, tuple[int, int]] = {
    "num_blocks": (1, MOST_SLOTS),
    "block_size": (1, 4_096),
    "host_blocks": (0, MOST_SLOTS),
    "copy_blocks_per_step": (1, MOST_SLOTS),
    "max_running": (1, 4_096),
    "watermark_blocks": (0, MOST_SLOTS),
    "step_tokens": (1, 1_000_000),
    "chunk_tokens": (1, 1_000_000),
    "max_tokens": (1, MOST_TOKENS),
    "arrival_step": (0, 100_000),
    "n": (1, 64),
    "priority": (-1_000, 1_000),
}
"""What each number of the form may be."""
NEEDED = ("num_blocks", "block_size", "max_tokens")
OF_REQUEST = ("max_tokens", "arrival_step", "n", "priority")


def models(speech: Speech) -> dict[str | None, str]:
    """The models that a visitor may run: our own and what the owner of this machine has fetched. Never
    a path of the visitor's."""
    found: dict[str | None, str] = {"story": speech("lab.story_model")}
    found |= {name: name for name, _, _ in cached_models()}
    return found | {None: speech("lab.no_model")}


def spec(speech: Speech) -> dict[str, Any]:
    """Words, choices and bounds of the form. The bounds guide; `faults` and `checked` judge."""

    def choices(names: tuple[str, ...]) -> list[list[str]]:
        return [[name, speech(f"choice.{name}")] for name in names]

    known = models(speech)
    return {
        "words": {**speech.text("lab"), "field": speech.text("field")},
        "presets": [[name, *about(name, speech)] for name in PRESETS],
        "methods": choices(METHODS),
        "victims": choices(VICTIMS),
        "allocations": choices(ALLOCATIONS),
        "admissions": choices(ADMISSIONS),
        "orders": choices(FREE_ORDERS),
        "unsafe": choices(UNSAFE),
        "models": [[name, label] for name, label in known.items()],
        "model_note": speech("lab.one_model") if len(known) == 2 else "",
        "prompts": list(PROMPTS),
        "bounds": {name: list(ends) for name, ends in BOUNDS.items()},
    }


def about(name: str, speech: Speech = ENGLISH) -> tuple[str, str]:
    """Title of a shipped scenario, and what it shows."""
    for one in CHAPTERS:
        if one.scenario == name:
            return one.heading(speech), one.text("question", speech)
    document = load_scenario(name).document
    told = str(document["lesson"].get("about", ""))
    return speech.shipped(document["title"]), speech.shipped(told)


# What is wrong with what was typed.


def faults(raw: Raw, speech: Speech) -> dict[str, str]:
    """What is wrong with the fields of the form, in the form's words, by the field's name:
    `num_blocks`, `requests.0.max_tokens`. What no field stands for is not looked at."""
    found: dict[str, str] = {}
    engine, requests = raw.get("engine"), raw.get("requests")
    engine = engine if isinstance(engine, dict) else {}
    for name in BOUNDS:
        if name not in OF_REQUEST:
            judge(found, name, name, engine, speech(f"field.{name}"), speech)
    if not isinstance(requests, list) or not requests:
        found["requests"] = speech("field.no_requests")
        return found
    ids: list[object] = []
    for at, request in enumerate(requests):
        if not isinstance(request, dict):
            continue
        id = request.get("id")
        label = {
            name: speech("field.of_request", id=id or at + 1, field=speech(f"field.{name}"))
            for name in ("id", "prompt", *OF_REQUEST)
        }
        for name in ("id", "prompt"):
            if request.get(name) in (None, "", []):
                found[f"requests.{at}.{name}"] = speech("field.empty", field=label[name])
        if id in ids:
            twice = speech("field.twice", field=speech("field.id"), value=id)
            found.setdefault(f"requests.{at}.id", twice)
        ids.append(id)
        for name in OF_REQUEST:
            judge(found, f"requests.{at}.{name}", name, request, label[name], speech)
    return found


def judge(
    found: dict[str, str], place: str, name: str, values: Raw, label: str, speech: Speech
) -> None:
    """Note in `found` when a value is no whole number within its bounds."""
    least, most = BOUNDS[name]
    value = values.get(name)
    if value is None and name not in NEEDED:
        return
    whole = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    if whole or (name == "num_blocks" and value == AUTO):
        return
    text = speech(
        "field.missing" if value is None else "field.whole",
        field=label,
        least=speech.number(least),
        most=speech.number(most),
        value=str(value)[:20],
    )
    found[place] = text[0].upper() + text[1:]


def checked(raw: Raw, speech: Speech = ENGLISH) -> Scenario:
    """A scenario that may run here. Raises BadInput for one that does not fit the contract, names a
    model that is not ours to lend, or is larger than a visitor's run may be."""
    model = raw.get("model", "story")
    known = models(speech)
    if isinstance(model, dict | list) or model not in known:
        names = [label if name is None else name for name, label in known.items()]
        wrong = speech("lab.wrong_model", name=str(model)[:40], names=names)
        raise BadInput(f"{wrong} {speech('lab.more_at_home')}")
    scenario = scenario_from(raw, Path(), "scenario")
    refuse_too_large(scenario, speech)
    return scenario


# Files


def is_trace(text: str) -> bool:
    """Whether a file is meant to be a trace; a scenario has no such key."""
    return f'"{FORMAT}"' in text[:2000]


def read_trace(name: str, text: str) -> Trace:
    """Raises BadInput, naming the file, for what is no trace, or cannot be replayed."""
    return Trace.from_json(read_data(name, text, as_json=True), name)


def read_scenario(name: str, text: str, speech: Speech) -> Raw:
    """A raw scenario from YAML or JSON, fit to be shown in the form. Raises BadInput."""
    if len(text) > LARGEST_SCENARIO:
        most = speech.number(LARGEST_SCENARIO)
        wrong = speech("lab.file_too_long", name=name, most=most)
        raise BadInput(f"{wrong} {speech('lab.more_at_home')}")
    raw = read_data(name, text, as_json=name.endswith(".json"))
    if not isinstance(raw, dict):
        raise BadInput(speech("lab.no_mapping", name=name))
    scenario_from(raw, Path(), name)
    return raw


def read_data(name: str, text: str, *, as_json: bool) -> Any:
    try:
        return parse(text, as_json=as_json)
    except BadInput as error:
        raise BadInput(f"{name}: {error}") from None


# Links


def pack(raw: Raw) -> str:
    """A scenario for a link: JSON, deflated, base64. Empty when it is too long for one."""
    text = json.dumps(raw, ensure_ascii=False, separators=(",", ":"))
    packed = base64.urlsafe_b64encode(zlib.compress(text.encode("utf-8", "replace"), 9))
    return packed.decode().rstrip("=") if len(packed) <= LONGEST_LINK else ""


def unpack(packed: str, speech: Speech = ENGLISH) -> Raw:
    """The raw scenario of a link, never longer than the form's. Raises BadInput for what is none."""
    try:
        data = base64.urlsafe_b64decode(packed.encode("ascii") + b"=" * (-len(packed) % 4))
        inflate = zlib.decompressobj()
        text = inflate.decompress(data, LARGEST_SCENARIO)
        if inflate.unconsumed_tail or not inflate.eof:
            raise ValueError
        raw = parse(text.decode("utf-8"), as_json=True)
    except (ValueError, UnicodeError, binascii.Error, zlib.error):
        raise BadInput(speech("page.damaged_link")) from None
    if not isinstance(raw, dict):
        raise BadInput(speech("lab.no_scenario"))
    return raw
