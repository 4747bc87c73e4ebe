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
from kvlab.runs.limits import MORE, refuse_too_large
from kvlab.runs.scenario import Scenario, load_scenario, scenario_from, scenario_names
from kvlab.trace.document import FORMAT, Trace

Raw = dict[str, Any]
PRESETS = tuple(scenario_names())
LONGEST_LINK = 6_000  # characters of the packed scenario

WORDS = {
    "recompute": "recompute",
    "swap": "swap",
    "auto": "whichever is cheaper",
    "pause_only": "pause only, release nothing",
    "newest": "the newest",
    "oldest": "the oldest",
    "random": "any, by chance",
    "lowest_priority": "the lowest priority",
    "least_computed": "the least computed",
    "most_computed": "the most computed",
    "most_reclaimable": "the most blocks freed",
    "cost_score": "by a cost score",
    "on_demand": "when they are needed",
    "reserve_max": "all at the start",
    "whole_sequence": "its whole history",
    "first_chunk": "its first chunk",
    "head_first": "released blocks last, head first",
    "tail_first": "released blocks last, tail first",
}
UNSAFE = {
    "write_before_copy_out": "write before the copy out is done",
    "reuse_before_copied": "reuse blocks before they are copied",
    "read_before_copy_in": "read before the copy in is done",
}


def models() -> dict[str | None, str]:
    """The models that a visitor may run: our own and what the owner of this machine has fetched. Never
    a path of the visitor's."""
    found: dict[str | None, str] = {"story": "story (bundled)"}
    found |= {name: name for name, _, _ in cached_models()}
    return found | {None: "none: prompts are token ids"}


def spec() -> dict[str, Any]:
    """Choices and bounds of the form. The bounds guide; `checked` judges."""

    def choices(names: tuple[str, ...]) -> list[list[str]]:
        return [[name, WORDS[name]] for name in names]

    return {
        "presets": [[name, *about(name)] for name in PRESETS],
        "methods": choices(METHODS),
        "victims": choices(VICTIMS),
        "allocations": choices(ALLOCATIONS),
        "admissions": choices(ADMISSIONS),
        "orders": choices(FREE_ORDERS),
        "unsafe": [[name, label] for name, label in UNSAFE.items()],
        "models": [[name, label] for name, label in models().items()],
        "prompts": ["Tom and Nora share a bench", "Leo waits in the hall", "Mia keeps her books"],
        "bounds": {
            "blocks": [1, 4096],
            "blocks0": [0, 4096],
            "block_size": [1, 256],
            "count": [1, 4096],
            "max_tokens": [1, 2000],
            "arrival_step": [0, 1000],
            "n": [1, 8],
            "priority": [-10, 10],
        },
    }


def about(name: str) -> tuple[str, str]:
    """Title of a shipped scenario, and what it shows."""
    document = load_scenario(name).document
    for one in CHAPTERS:
        if one.scenario == name:
            return f"Figure {one.number}: {document['title']}", one.question
    return document["title"], str(document["lesson"].get("about", ""))


def checked(raw: Raw) -> Scenario:
    """A scenario that may run here. Raises BadInput for one that does not fit the contract, names a
    model that is not ours to lend, or is larger than a visitor's run may be."""
    model = raw.get("model", "story")
    known = models()
    if isinstance(model, dict | list) or model not in known:
        names = ", ".join("none" if name is None else name for name in known)
        raise BadInput(f"model {str(model)[:40]!r}: this page runs {names}. {MORE}")
    scenario = scenario_from(raw, Path(), "scenario")
    refuse_too_large(scenario)
    return scenario


# Files


def is_trace(text: str) -> bool:
    """Whether a file is meant to be a trace; a scenario has no such key."""
    return f'"{FORMAT}"' in text[:2000]


def read_trace(name: str, text: str) -> Trace:
    """Raises BadInput, naming the file, for what is no trace, or cannot be replayed."""
    return Trace.from_json(read_data(name, text, as_json=True), name)


def read_scenario(name: str, text: str) -> Raw:
    """A raw scenario from YAML or JSON, fit to be shown in the form. Raises BadInput."""
    if len(text) > LARGEST_SCENARIO:
        raise BadInput(f"{name}: a scenario may have {LARGEST_SCENARIO:,} characters here. {MORE}")
    raw = read_data(name, text, as_json=name.endswith(".json"))
    if not isinstance(raw, dict):
        raise BadInput(f"{name}: must be a mapping with name, engine and requests.")
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


def unpack(packed: str) -> Raw:
    """The raw scenario of a link, never longer than the form's. Raises BadInput for what is none."""
    try:
        data = base64.urlsafe_b64decode(packed.encode("ascii") + b"=" * (-len(packed) % 4))
        inflate = zlib.decompressobj()
        text = inflate.decompress(data, LARGEST_SCENARIO)
        if inflate.unconsumed_tail or not inflate.eof:
            raise ValueError
        raw = parse(text.decode("utf-8"), as_json=True)
    except (ValueError, UnicodeError, binascii.Error, zlib.error):
        raise BadInput("this link’s scenario is damaged: parts of it are missing.") from None
    if not isinstance(raw, dict):
        raise BadInput("this link holds no scenario.")
    return raw
