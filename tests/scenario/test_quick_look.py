"""A scenario that plainly fits its schema is taken without jsonschema; everything else is judged by it.

The verdict to compare with is jsonschema's own, on scenarios changed at one random place.
"""

from __future__ import annotations

import copy
import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from kvlab.files import schema as schemas
from kvlab.runs.scenario import load_scenario, scenario_names

ROOT = Path(__file__).resolve().parents[2]
RICH: dict[str, Any] = {
    "name": "rich",
    "title": "All kinds of keys",
    "model": None,
    "device": "cpu",
    "engine": {
        "num_blocks": 8,
        "block_size": 4,
        "preset": "vllm_v1",
        "prefix_cache": True,
        "step_tokens": None,
        "unsafe": ["reuse_before_copied", "read_before_copy_in"],
    },
    "requests": [
        {"id": "A", "prompt": [1, 2, 3], "max_tokens": 3, "stop": ["x", 7], "temperature": 0.5},
        {"id": "B", "prompt": "Ana", "max_tokens": 1, "top_p": 0.1, "logprobs": True, "seed": -4},
    ],
    "actions": [{"step": 2, "set": {"method": "swap"}}, {"step": 3, "pause": "A"}],
    "lesson": {"about": "anything"},
}
OTHERS: list[Any] = [
    *(None, True, False, -1, 0, 1, 3, 1.0, 1.5, 10**30, math.inf, 1_000_001),
    *("", "x", "auto", "auto\n", "a.b", "x" * 301, "swap", "\u200b"),
    *([], {}, [0], [0, True], ["x", "x"], [""], [[1]], {"unknown": 1}),
]


def changed(document: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """A copy with one value deleted, doubled, put under an unknown key or exchanged."""
    copied = copy.deepcopy(document)
    places: list[tuple[Any, Any]] = []

    def gather(value: Any) -> None:
        keys = value if isinstance(value, dict) else range(len(value))
        for key in list(keys):
            places.append((value, key))
            if isinstance(value[key], dict | list):
                gather(value[key])

    gather(copied)
    place, key = draw.choice(places)
    how = draw.choice(["delete", "unknown", "twice", "other", "other", "other", "other"])
    if how == "delete":
        del place[key]
    elif how == "unknown" and isinstance(place, dict):
        place[f"{key}s"] = place[key]
    elif how == "twice" and isinstance(place, list):
        place.append(copy.deepcopy(place[key]))
    else:
        place[key] = draw.choice(OTHERS)
    return copied


def test_the_quick_look_and_jsonschema_agree() -> None:
    """Not only may it accept nothing that does not fit: it knows every rule of this schema."""
    rules = schemas.schema("scenario")
    judge = schemas.validator(rules)
    shipped = [load_scenario(name).raw for name in scenario_names()]
    draw = random.Random(0)
    verdicts = []
    for document in [RICH, *shipped] * 60:
        one = changed(document, draw)
        quick = schemas.surely_fits(one, rules)
        assert quick == judge.is_valid(one), one
        verdicts.append(quick)
    assert 100 < sum(verdicts) < len(verdicts) - 100
    assert schemas.surely_fits(RICH, rules)


def test_the_shipped_scenarios_are_read_without_jsonschema() -> None:
    code = """
import sys
from kvlab.runs.scenario import load_scenario, scenario_names
for name in scenario_names():
    load_scenario(name)
print([name for name in sys.modules if name in ("jsonschema", "referencing", "rpds")])
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
