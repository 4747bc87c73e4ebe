"""The published JSON Schemas: what a scenario file and a trace file may hold."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match

from kvlab.errors import BadInput


@cache
def validator(name: str) -> Draft202012Validator:
    """The validator of `kvlab/schemas/<name>.schema.json`."""
    text = files("kvlab.schemas").joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    return Draft202012Validator(json.loads(text))


def check(document: Any, name: str, what: str) -> None:
    """Raise BadInput, naming the place, unless `document` fits the schema."""
    error = best_match(validator(name).iter_errors(document))
    if error is not None:
        raise BadInput(f"{what}: {describe(error, document)}")


def describe(error: ValidationError, document: Any) -> str:
    """One sentence: the place in the document and what does not fit there."""
    place = place_of(list(error.absolute_path), document)
    message = error.message if len(error.message) < 200 else f"{error.message[:200]} …"
    if error.validator == "additionalProperties":
        known = sorted(error.schema.get("properties", {}))
        unknown = sorted(set(error.instance) - set(known))
        where = ".".join(filter(None, [place, str(unknown[0])]))
        return f"{where} is not a known key; known here: {', '.join(known)}."
    if error.validator == "enum":
        choices = ", ".join(json.dumps(value) for value in error.validator_value)
        return f"{place} = {short(error.instance)} must be one of {choices}."
    if error.validator == "required":
        return f"{place or 'the document'}: {message}."
    return f"{place or 'the document'}: {message}."


def place_of(path: list[Any], document: Any) -> str:
    """`requests.B.seed` rather than `requests.1.seed`, where a list's items carry an id."""
    names: list[str] = []
    for key in path:
        document = document[key]
        named = isinstance(key, int) and isinstance(document, dict) and "id" in document
        names.append(str(document["id"]) if named else str(key))
    return ".".join(names)


def short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) < 80 else f"{text[:80]} …"
