"""The published schemas list exactly what the code reads and writes.

The event classes are the one list of events; the schema of a trace must say the same of each field,
and the schema of a scenario the same as the contract with the outside (restated here).
"""

from __future__ import annotations

import json
import types
import typing
from importlib.resources import files
from typing import Any

import jsonschema
import pytest

from kvlab.engine import config
from kvlab.engine.events import Event, event_kinds

NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema(name: str) -> dict[str, Any]:
    text = files("kvlab.files").joinpath(f"schemas/{name}.schema.json").read_text(encoding="utf-8")
    return json.loads(text)


def as_schema(hint: Any) -> dict[str, Any]:
    """What JSON Schema calls a field with this annotation."""
    if typing.get_origin(hint) is tuple:
        item, rest = typing.get_args(hint)
        assert rest is ...
        return {"type": "array", "items": as_schema(item)}
    if isinstance(hint, types.UnionType):
        return {"type": [NAMES[part] for part in typing.get_args(hint)]}
    return {"type": NAMES[hint]}


def fields_of(cls: type[Event]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls).items()
    return {name: hint for name, hint in hints if typing.get_origin(hint) is not typing.ClassVar}


@pytest.mark.parametrize("name", ["trace", "scenario"])
def test_a_schema_is_a_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(name))


def test_the_schema_has_every_kind_of_event_and_no_other() -> None:
    events = schema("trace")["properties"]["events"]["items"]
    kinds = set(event_kinds())
    assert set(schema("trace")["$defs"]) == kinds
    assert set(events["properties"]["kind"]["enum"]) == kinds
    chosen = {
        rule["if"]["properties"]["kind"]["const"]: rule["then"]["$ref"] for rule in events["allOf"]
    }
    assert chosen == {kind: f"#/$defs/{kind}" for kind in kinds}


@pytest.mark.parametrize("kind", sorted(event_kinds()))
def test_an_events_fields_and_types_are_those_of_its_class(kind: str) -> None:
    definition = schema("trace")["$defs"][kind]
    fields = {name: as_schema(hint) for name, hint in fields_of(event_kinds()[kind]).items()}
    expected = {"kind": {"const": kind}, "say": {"type": "string"}} | fields
    for name, rule in definition["properties"].items():
        shown = {key: value for key, value in rule.items() if key in ("type", "items", "const")}
        wanted = expected[name]
        if isinstance(shown.get("type"), list):
            assert set(shown["type"]) == set(wanted["type"]), name
        else:
            items = shown.get("items")
            if items:
                shown["items"] = {"type": items["type"]}
            assert shown == wanted, name
    assert set(definition["properties"]) == set(expected)
    assert sorted(definition["required"]) == sorted(expected)
    assert definition["additionalProperties"] is False


def test_a_kind_is_its_classes_name_in_snake_case() -> None:
    """A few by hand, so that the rule itself is held."""
    kinds = event_kinds()
    for kind, name in (
        ("swap_out_started", "SwapOutStarted"),
        ("kv_written", "KvWritten"),
        ("finished", "Finished"),
    ):
        assert kinds[kind].__name__ == name


CHOICES = {
    "method": ["recompute", "swap", "auto", "pause_only"],
    "victim": [
        "newest",
        "oldest",
        "random",
        "lowest_priority",
        "least_computed",
        "most_computed",
        "most_reclaimable",
        "cost_score",
    ],
    "free_order": ["head_first", "tail_first"],
    "allocation": ["on_demand", "reserve_max"],
    "admission": ["whole_sequence", "first_chunk"],
    "preset": [None, "vllm_v1"],
}
UNSAFE = ["write_before_copy_out", "reuse_before_copied", "read_before_copy_in"]


@pytest.mark.parametrize("key", CHOICES)
def test_the_choices_of_a_scenario_are_the_contracts(key: str) -> None:
    engine = schema("scenario")["properties"]["engine"]["properties"]
    assert engine[key]["enum"] == CHOICES[key]


def test_the_engine_knows_the_same_choices() -> None:
    engine = schema("scenario")["properties"]["engine"]["properties"]
    assert engine["unsafe"]["items"]["enum"] == UNSAFE == list(config.UNSAFE)
    assert list(config.METHODS) == CHOICES["method"]
    assert list(config.VICTIMS) == CHOICES["victim"]
    assert list(config.FREE_ORDERS) == CHOICES["free_order"]
    assert list(config.ALLOCATIONS) == CHOICES["allocation"]
    assert list(config.ADMISSIONS) == CHOICES["admission"]


KEYS = {
    "": "name title model device dtype engine requests actions lesson",
    "engine": "num_blocks block_size host_blocks method victim free_order prefix_cache allocation "
    "preset step_tokens chunk_tokens max_running watermark_blocks admission copy_blocks_per_step "
    "async_scheduling preempt_for_priority unsafe",
    "requests": "id prompt max_tokens arrival_step priority temperature top_p top_k seed n stop "
    "logprobs ignore_eos",
    "actions": "step abort preempt pause resume next_victim set method",
}


def test_the_keys_of_a_scenario_are_the_contracts() -> None:
    properties = schema("scenario")["properties"]
    for place, keys in KEYS.items():
        part = properties[place] if place else schema("scenario")
        assert set(part.get("items", part)["properties"]) == set(keys.split()), place
    assert properties["engine"]["required"] == ["num_blocks", "block_size"]
    assert schema("scenario")["required"] == ["name", "engine", "requests"]
    assert properties["requests"]["items"]["required"] == ["id", "prompt", "max_tokens"]
