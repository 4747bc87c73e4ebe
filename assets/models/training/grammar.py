"""A small template language: `[one|another]` chooses, `[maybe|]` may leave out, `{slot}` fills in.

Choices nest. The first alternative is twice as likely as each of the others, so that a model
trained on the text has a clear favourite at most choices. Only `Random.random` is used: what it
yields for a seed is the same on every Python.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import TypeVar

T = TypeVar("T")

START = re.compile(r'((?:^|[.!?] |\." )"?)([a-z])')


@dataclass(frozen=True, slots=True)
class Choice:
    """Alternatives, each a run of plain text and further choices."""

    options: tuple[tuple[str | Choice, ...], ...]


def pick(rng: Random, options: Sequence[T]) -> T:
    """One of `options`: the first with twice the chance of each of the others."""
    return options[max(0, int(rng.random() * (len(options) + 1)) - 1)]


@cache
def parse(template: str) -> Choice:
    """The tree of `template`, itself a choice with a single alternative."""
    tokens = iter([*re.findall(r"[\[\]|]|[^\[\]|]+", template), "]"])

    def choice() -> Choice:
        options: list[tuple[str | Choice, ...]] = []
        run: list[str | Choice] = []
        for token in tokens:
            if token == "[":
                run.append(choice())
            elif token in "|]":
                options.append(tuple(run))
                run = []
                if token == "]":
                    return Choice(tuple(options))
            else:
                run.append(token)
        raise ValueError(f"unbalanced brackets in {template!r}")

    return choice()


def render(rng: Random, choice: Choice) -> str:
    """Choose through `choice` at random; slots are left as they stand."""
    run = pick(rng, choice.options)
    return "".join(part if isinstance(part, str) else render(rng, part) for part in run)


def tell(rng: Random, template: str, slots: Mapping[str, object]) -> str:
    """The text of `template`: choices made, slots filled, spaces evened, sentences capitalised."""
    text = " ".join(render(rng, parse(template)).format_map(slots).split())
    return START.sub(lambda match: match[1] + match[2].upper(), text)
