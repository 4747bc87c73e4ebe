"""The seeded little stories that the model `story` learns from.

Every story is made here from the templates in `plots`: no other text goes in. People keep to their
names and their favourite things, so that a small model can keep to them too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from training import plots
from training.grammar import tell

T = TypeVar("T")

END = "<|end|>"
"""Stands after every story; not part of the text that `story` returns."""


@dataclass(frozen=True, slots=True)
class Thing:
    """Something to work at: `doing` a `one`, mark by mark, mostly at the place `seat`."""

    one: str
    many: str
    do: str
    doing: str
    did: str
    mark: str
    seat: str


@dataclass(frozen=True, slots=True)
class Person:
    """A name, its pronouns, and the thing this person mostly works at."""

    name: str
    they: str
    them: str
    their: str
    thing: Thing

    def __str__(self) -> str:
        return self.name


THINGS = (
    Thing("picture", "pictures", "paint", "painting", "painted", "corner", "table"),
    Thing("boat", "boats", "build", "building", "built", "plank", "bench"),
    Thing("book", "books", "read", "reading", "read", "page", "shelf"),
    Thing("puzzle", "puzzles", "solve", "solving", "solved", "piece", "table"),
    Thing("letter", "letters", "write", "writing", "wrote", "line", "desk"),
    Thing("clock", "clocks", "mend", "mending", "mended", "wheel", "bench"),
    Thing("map", "maps", "draw", "drawing", "drew", "road", "desk"),
    Thing("quilt", "quilts", "sew", "sewing", "sewed", "stitch", "shelf"),
)

NAMES = ("Ana", "Ben", "Mia", "Leo", "Ida", "Tom", "Nora", "Sam")
"""Neighbours in this list are each other's usual company; every other one is a woman."""

PEOPLE = tuple(
    Person(name, *(("he", "him", "his") if index % 2 else ("she", "her", "her")), THINGS[index])
    for index, name in enumerate(NAMES)
)

SEATS = ("shelf", "table", "desk", "bench")
AWAYS = ("the hall", "the cellar", "the attic", "the shed")


def lean(rng: Random, options: Sequence[T], usual: int) -> T:
    """Half the time the `usual` one of `options` (counted round and round), else any of them."""
    if rng.random() < 0.5:
        return options[usual % len(options)]
    return options[int(rng.random() * len(options))]


def cast(rng: Random) -> tuple[Person, Person, Person]:
    """Three people; the second is mostly the first one's usual company."""
    first = int(rng.random() * len(PEOPLE))
    second = lean(rng, [index for index in range(len(PEOPLE)) if index != first], first // 2 * 2)
    rest = [person for index, person in enumerate(PEOPLE) if index not in (first, second)]
    return PEOPLE[first], PEOPLE[second], rest[int(rng.random() * len(rest))]


def things(rng: Random, a: Person, b: Person) -> tuple[Thing, Thing]:
    """What the two work at: mostly their favourites, never the same."""
    first = lean(rng, THINGS, THINGS.index(a.thing))
    others = [thing for thing in THINGS if thing is not first]
    favourite = others.index(b.thing) if b.thing in others else THINGS.index(a.thing)
    return first, lean(rng, others, favourite)


def plot(rng: Random, seat: int) -> str:
    """A template for a whole story; one in five is of a kind of its own.

    The other parts lean on the opening and on the place, so that stories which begin in different
    ways also go on in different ways.
    """
    if rng.random() < 0.2:
        text = plots.WHOLE[int(rng.random() * len(plots.WHOLE))]
    else:
        opening = int(rng.random() * len(plots.OPENINGS))
        clash, way = lean(rng, plots.CLASHES, opening), lean(rng, plots.WAYS, opening)
        text = " ".join((plots.OPENINGS[opening], clash, way, lean(rng, plots.CLOSES, seat)))
    for macro in ("WHEN", "DETAIL", "LATER"):
        text = text.replace(f"@{macro}", getattr(plots, macro).strip())
    return text


def story(rng: Random) -> str:
    """One story of four to twelve sentences."""
    a, b, c = cast(rng)
    first, second = things(rng, a, b)
    seat = lean(rng, range(len(SEATS)), SEATS.index(first.seat))
    slots = {"A": a, "B": b, "C": c, "a": first, "b": second}
    places = {"seat": SEATS[seat], "away": lean(rng, AWAYS, seat)}
    return tell(rng, plot(rng, seat), {**slots, **places})


def stories(seed: int, count: int) -> Iterator[str]:
    """`count` stories; the same seed always gives the same ones."""
    rng = Random(seed)
    for _ in range(count):
        yield story(rng)
