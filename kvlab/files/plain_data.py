"""YAML and JSON that people wrote, read as plain data: what JSON has a form for, and no more."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import yaml

from kvlab.errors import BadInput

MOST_VALUES = 2_000_000
"""Aliases repeat a part of a document: a small file could stand for more than any memory holds."""

DEEPEST = 100
BIGGEST = 1 << 63


Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the former is ten times as fast


class PlainLoader(Loader):
    """Safe, and stricter than YAML: dates stay text, and no key is written twice."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._mappings: dict[int, Any] = {}

    def flatten_mapping(self, node: Any) -> None:
        """Called before a mapping is read, and again wherever `<<` merges it into another."""
        if id(node) not in self._mappings:
            self._mappings[id(node)] = node
            refuse_twice(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        super().flatten_mapping(node)


PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def refuse_twice(keys: Iterable[str]) -> None:
    for key, times in Counter(keys).items():
        if times > 1 and key != "<<":
            raise ValueError(f"the key {key!r} is written twice")


def unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    refuse_twice(key for key, _ in pairs)
    return dict(pairs)


def parse(text: str, *, as_json: bool = False) -> Any:
    """The data in a YAML or JSON text. Raises BadInput, in one sentence without a subject."""
    try:
        if as_json:
            data = json.loads(text, object_pairs_hook=unique_pairs)
        else:
            data = yaml.load(text, PlainLoader)
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        RecursionError,
        yaml.YAMLError,
    ) as error:  # PyYAML's constructors raise what they come across
        reason = " ".join(str(error).split())
        raise BadInput(f"not valid YAML or JSON ({reason[:200]}).") from None
    refuse_what_json_lacks(data)
    return data


def refuse_what_json_lacks(data: Any) -> None:
    """Raise BadInput for values without a form in JSON, and for more of them than can be meant."""
    weigh(data, (), {})


def weigh(value: Any, place: tuple[str, ...], known: dict[int, int]) -> int:
    """Values in `value`, itself included; `known` has those of containers already seen."""
    if id(value) in known:
        return known[id(value)]
    where = ".".join(place[:20]) or "the document"
    if len(place) > DEEPEST:
        raise BadInput(f"{where} is nested deeper than {DEEPEST} levels.")
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise BadInput(f"{where} has the key {key!r}, which is not text.")
            refuse_scalar(key, where)
        parts: Iterable[tuple[str, Any]] = value.items()
    elif isinstance(value, list) and not all(type(item) is int for item in value):
        parts = ((str(at), item) for at, item in enumerate(value))
    elif isinstance(value, list):
        if not all(-BIGGEST <= item < BIGGEST for item in value):
            raise BadInput(f"{where} holds a whole number of more than 64 bits.")
        return 1 + len(value)
    else:
        refuse_scalar(value, where)
        return 1
    total = 1
    for name, item in parts:
        total += weigh(item, (*place, name), known)
        if total > MOST_VALUES:
            raise BadInput(f"the document holds more than {MOST_VALUES:,} values.")
    known[id(value)] = total
    return total


def refuse_scalar(value: Any, where: str) -> None:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadInput(f"{where} holds half a character (a lone surrogate).") from None
    elif type(value) is int and not -BIGGEST <= value < BIGGEST:
        raise BadInput(f"{where} is a whole number of more than 64 bits.")
    elif isinstance(value, float) and not math.isfinite(value):
        raise BadInput(f"{where} is {value}, which is not a number.")
    elif not (value is None or isinstance(value, bool | int | float)):
        raise BadInput(f"{where} holds a {type(value).__name__}, which JSON has no form for.")
