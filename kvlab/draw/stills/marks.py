"""How a request is recognised: a short name in a shape, a hue and a pattern, all together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from kvlab.draw.stills.svg import Drawing, element, mix, text_width

HUES = PATTERNS = 6
SHAPES = 3
BADGE = 20  # pixels high


@dataclass(frozen=True, slots=True)
class Owner:
    """One request's marks: `short` name, indices of hue, pattern and shape."""

    id: str
    short: str
    hue: int
    pattern: int
    shape: int


def owners_of(ids: Sequence[str]) -> dict[str, Owner]:
    """Every request's marks: of one with a letter by its place in the alphabet, so that B is the same
    B in every run; of others by their place in the trace."""
    heads = [id[:3] for id in ids]
    shorts = [
        head if heads.count(head) == 1 else id[0] + id[-2:]
        for id, head in zip(ids, heads, strict=True)
    ]
    letters = all(id in ascii_uppercase and len(id) == 1 for id in ids)
    places = [ascii_uppercase.index(id) if letters else at for at, id in enumerate(ids)]
    return {
        id: Owner(id, short, at % HUES, (at + at // HUES) % PATTERNS, at % SHAPES)
        for at, id, short in zip(places, ids, shorts, strict=True)
    }


def hue(drawing: Drawing, owner: Owner) -> str:
    return drawing.theme.hues[owner.hue]


def tinted(drawing: Drawing, owner: Owner) -> str:
    """The ground of the owner's cells."""
    theme = drawing.theme
    return mix(hue(drawing, owner), theme.tint, theme.bg)


def hatch(drawing: Drawing, owner: Owner) -> str:
    """A fill with the owner's hue and pattern, defined in the drawing once."""
    name = f"owner{owner.hue}-{owner.pattern}"
    if name not in drawing.definitions:
        drawing.definitions[name] = pattern(drawing, owner, name)
    return f"url(#{name})"


def pattern(drawing: Drawing, owner: Owner, name: str) -> str:
    own, ground = hue(drawing, owner), tinted(drawing, owner)
    mark = mix(own, drawing.theme.stroke, ground)
    size = {1: 6, 5: 6}.get(owner.pattern, 5.4)
    turn = {0: 45, 3: -45, 4: 90, 5: 45}.get(owner.pattern)
    stripe = element("rect", width=size, height=1.4 if size < 6 else 1, fill=mark)
    inside = {
        1: element("circle", cx=3, cy=3, r=1.4, fill=mark),
        5: stripe + element("rect", width=1, height=size, fill=mark),
    }.get(owner.pattern, stripe)
    return element(
        "pattern",
        element("rect", width=size, height=size, fill=ground) + inside,
        id=name,
        width=size,
        height=size,
        patternUnits="userSpaceOnUse",
        patternTransform=None if turn is None else f"rotate({turn})",
    )


def badge_width(owner: Owner) -> float:
    padding = 14 if owner.shape == 2 else 10
    return max(BADGE, text_width(owner.short, 12, bold=True) + padding)


def badge(drawing: Drawing, owner: Owner, x: float, y: float) -> float:
    """The request's badge with its upper left corner at (x, y); returns its width."""
    width = badge_width(owner)
    own = hue(drawing, owner)
    if owner.shape == 2:
        points = ((0.25, 0), (0.75, 0), (1, 0.5), (0.75, 1), (0.25, 1), (0, 0.5))
        corners = " ".join(f"{x + a * width:.1f},{y + b * BADGE:.1f}" for a, b in points)
        drawing.add("polygon", points=corners, fill=own)
    else:
        drawing.rect(x, y, width, BADGE, rx=5 if owner.shape == 0 else 10, fill=own)
    ink = drawing.theme.own_ink
    drawing.text(x + width / 2, y + 14.3, owner.short, bold=True, anchor="middle", fill=ink)
    return width
