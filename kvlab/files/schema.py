"""The published JSON Schemas: what a scenario file and a trace file may hold.

Most of what is given fits. That is told apart in plain Python first, which takes a fraction of what a
validator takes to be loaded; the verdict on everything else, and its words, are jsonschema's.
"""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from kvlab.errors import BadInput

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError


@cache
def schema(name: str) -> dict[str, Any]:
    """`kvlab/files/schemas/<name>.schema.json`."""
    file = files("kvlab.files").joinpath("schemas", f"{name}.schema.json")
    rules: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return rules


def validator(rules: dict[str, Any]) -> Any:
    """jsonschema's validator of a schema."""
    # It would parse a grammar for a format that no schema here uses: seconds, where that package
    # happens to be installed. Marked as missing, it is left out.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    # The specification counts 4.0 among the integers; Python would carry it on as another type.
    integers = Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    )
    return extend(Draft202012Validator, type_checker=integers)(rules)


def without(rules: dict[str, Any], part: str) -> dict[str, Any]:
    """The same schema without the rule for one part of the document."""
    properties = {key: rule for key, rule in rules["properties"].items() if key != part}
    return rules | {"properties": properties}


def check(document: Any, name: str, what: str, *, apart: str | None = None) -> None:
    """Raise BadInput, naming the place, unless `document` fits the schema. `apart`: a part that is
    known to fit."""
    rules = schema(name) if apart is None else without(schema(name), apart)
    if surely_fits(document, rules):
        return
    from jsonschema.exceptions import best_match

    error = best_match(validator(rules).iter_errors(document))
    if error is not None:
        raise BadInput(f"{what}: {describe(error, document)}")


def check_trace(document: Any, what: str) -> None:
    """`check` for a trace, quick for one with very many events.

    The schema's choice of a definition by `kind` costs a validator thirty tries an event. Events that
    plainly fit are told apart first; only the first that does not goes through the schema. So does
    the summary, which grows with the steps.
    """
    events = document.get("events") if isinstance(document, dict) else None
    if isinstance(events, list):
        misfit = next((at for at, event in enumerate(events) if not plainly_fits(event)), None)
        if misfit is not None:
            check(document | {"events": events[: misfit + 1]}, "trace", what)
        document = document | {"events": []}
    rule = schema("trace")["properties"]["summary"]
    quick = isinstance(document, dict) and surely_fits(document.get("summary"), rule)
    check(document, "trace", what, apart="summary" if quick else None)


TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
}
"""What the schema's types are in Python; a bool is an int there, which the schema tells apart."""


KNOWN_RULES = {
    *("$schema", "$defs", "$comment", "title", "description"),  # these judge nothing by themselves
    *("type", "enum", "oneOf", "pattern", "minLength", "maxLength"),
    *("minimum", "exclusiveMinimum", "maximum"),
    *("items", "minItems", "maxItems", "uniqueItems"),
    *("required", "properties", "additionalProperties", "minProperties"),
}


def surely_fits(value: Any, rule: dict[str, Any] | bool) -> bool:
    """True only for a value that the rule of a schema accepts; False leaves the verdict to the
    schema. Lists of numbers, of which there are very many, are gone through at once."""
    if isinstance(rule, bool):
        return rule
    if not rule.keys() <= KNOWN_RULES or ("enum" in rule and not among(value, rule["enum"])):
        return False
    if "type" in rule and type(value) not in python_types(rule):
        return False
    if "oneOf" in rule:  # of which each names its type, so that no other can fit as well
        of_type = [one for one in rule["oneOf"] if type(value) in python_types(one)]
        return len(of_type) == 1 and surely_fits(value, of_type[0])
    if isinstance(value, str):
        return len_fits(value, rule, "Length") and bool(re.search(rule.get("pattern", ""), value))
    if isinstance(value, int | float):
        above = rule.get("exclusiveMinimum")
        return (above is None or value > above) and bool(
            rule.get("minimum", value) <= value <= rule.get("maximum", value)
        )
    if isinstance(value, list):
        items = rule.get("items", {})
        if not len_fits(value, rule, "Items") or (
            rule.get("uniqueItems") and len({json.dumps(item) for item in value}) < len(value)
        ):
            return False
        if items.keys() == {"type", "minimum", "maximum"} and value:
            types = python_types(items)
            return all(type(item) in types for item in value) and bool(
                items["minimum"] <= min(value) and max(value) <= items["maximum"]
            )
        return all(surely_fits(item, items) for item in value)
    if isinstance(value, dict):
        named, others = rule.get("properties", {}), rule.get("additionalProperties", {})
        return (
            len_fits(value, rule, "Properties")
            and all(key in value for key in rule.get("required", ()))
            and all(surely_fits(part, named.get(key, others)) for key, part in value.items())
        )
    return True


def among(value: Any, choices: list[Any]) -> bool:
    """True is not 1 here, as it is to Python's `in`."""
    return any(value == choice and type(value) is type(choice) for choice in choices)


def len_fits(value: Any, rule: dict[str, Any], what: str) -> bool:
    size = len(value)
    return bool(rule.get(f"min{what}", size) <= size <= rule.get(f"max{what}", size))


@cache
def event_types() -> dict[str, dict[str, tuple[tuple[type, ...], tuple[type, ...]]]]:
    """For each kind of event, its fields' Python types and those of their items, from the schema."""
    kinds = schema("trace")["$defs"]
    return {
        kind: {
            field: (python_types(rule), python_types(rule.get("items", {})))
            for field, rule in definition["properties"].items()
        }
        for kind, definition in kinds.items()
    }


def python_types(rule: dict[str, Any]) -> tuple[type, ...]:
    names = rule.get("type", "string")
    found = [TYPES[name] for name in ([names] if isinstance(names, str) else names)]
    return tuple(t for entry in found for t in (entry if isinstance(entry, tuple) else (entry,)))


def plainly_fits(event: Any) -> bool:
    """True only for an event that the schema accepts; False leaves the verdict to the schema."""
    kind = event.get("kind") if isinstance(event, dict) else None
    fields = event_types().get(kind) if isinstance(kind, str) else None
    if fields is None or fields.keys() != event.keys():
        return False
    for field, (types, items) in fields.items():
        value = event[field]
        if type(value) not in types:
            return False
        if type(value) is list and not all(type(item) in items for item in value):
            return False
    return bool(event["step"] >= 1)


def describe(error: ValidationError, document: Any) -> str:
    """One sentence: the place in the document and what does not fit there."""
    place = place_of(list(error.absolute_path), document)
    message = error.message if len(error.message) < 200 else f"{error.message[:200]} …"
    if error.validator == "additionalProperties":
        known = sorted(error.schema.get("properties", {}))
        unknown = sorted(map(str, set(error.instance) - set(known)))
        where = ".".join(filter(None, [place, unknown[0]]))
        return f"{where} is not a known key; known here: {', '.join(known)}."
    if error.validator == "enum":
        choices = ", ".join(json.dumps(value) for value in error.validator_value)
        return f"{place} = {short(error.instance)} must be one of {choices}."
    if error.validator in ("pattern", "oneOf") and "description" in error.schema:
        return f"{place} = {short(error.instance)} must be {error.schema['description']}."
    if error.validator == "minItems":
        return f"{place} is empty; give at least {error.validator_value}."
    if error.validator == "maxItems":
        held, most = len(error.instance), error.validator_value
        return f"{place} has {held:,} entries and takes at most {most:,}."
    if error.validator == "required":
        return f"{place or 'the document'}: {message}."
    return f"{place or 'the document'}: {message}."


def place_of(path: list[Any], document: Any) -> str:
    """`requests.B.seed` rather than `requests.1.seed`; other lists count from 0."""
    names: list[str] = []
    for key in path:
        document = document[key]
        inside = names[-1:] == ["requests"] and isinstance(document, dict)
        id = str(document.get("id", "")) if inside else ""
        names.append(id if id and id.isprintable() else str(key))
    return ".".join(names)


def short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) < 80 else f"{text[:80]} …"
