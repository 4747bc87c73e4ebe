"""An SVG drawing, element by element, in the player's colours.

Lengths are CSS pixels. Everything that a run says goes through `escaped`; there is no script and no
reference to anything outside of the drawing, and only an animation has a style sheet.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from functools import cache
from xml.sax.saxutils import escape, quoteattr

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Theme:
    """The player's custom properties (kvlab/draw/js/src/player.css) in one of its two sets."""

    name: str
    bg: str
    raised: str
    ink: str
    soft: str
    line: str
    faint: str
    edge: str
    accent: str
    now: str
    own_ink: str
    hues: tuple[str, ...]
    tint: float
    stroke: float


LIGHT = Theme(
    name="light",
    bg="#ffffff",
    raised="#f3f5f8",
    ink="#171b21",
    soft="#545d6b",
    line="#d5dae1",
    faint="#e6e9ee",
    edge="#7d8694",
    accent="#0b57d0",
    now="#e4edfc",
    own_ink="#ffffff",
    hues=("#0072b2", "#b84a00", "#007a5a", "#a33b7a", "#846000", "#4b5564"),
    tint=0.11,
    stroke=0.24,
)
DARK = Theme(
    name="dark",
    bg="#14181d",
    raised="#20262e",
    ink="#eceff3",
    soft="#a9b2be",
    line="#3c444f",
    faint="#2a313a",
    edge="#7f8996",
    accent="#8ab4f8",
    now="#232f44",
    own_ink="#10141a",
    hues=("#63b4f0", "#ff9a52", "#3fcba2", "#eb9fcb", "#e6c84c", "#bcc6d2"),
    tint=0.18,
    stroke=0.34,
)


def mix(one: str, share: float, other: str) -> str:
    """`color-mix(in srgb, one share, other)` as a hex colour."""
    parts = [
        round(int(one[at : at + 2], 16) * share + int(other[at : at + 2], 16) * (1 - share))
        for at in (1, 3, 5)
    ]
    return "#" + "".join(f"{part:02x}" for part in parts)


@dataclass(slots=True)
class Drawing:
    """Elements in the order in which they are painted; definitions apart."""

    theme: Theme
    parts: list[str] = field(default_factory=list)
    definitions: dict[str, str] = field(default_factory=dict)

    def add(self, tag: str, inside: str = "", /, **attributes: object) -> None:
        """One element. `stroke_width=2` becomes `stroke-width`; None leaves an attribute out."""
        self.parts.append(element(tag, inside, **attributes))

    def rect(self, x: float, y: float, w: float, h: float, **more: object) -> None:
        attributes: dict[str, object] = {
            "fill": "none",
            "x": x,
            "y": y,
            "width": w,
            "height": h,
            **more,
        }
        self.add("rect", **attributes)

    def line(self, x1: float, y1: float, x2: float, y2: float, **more: object) -> None:
        self.add("path", d=f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}", **more)

    def text(self, x: float, y: float, text: str, size: float = 12, **more: object) -> None:
        """A line of text on its baseline. `anchor` start, middle or end; `bold`, `soft`, `italic`."""
        attributes: dict[str, object] = {
            "fill": self.theme.soft if more.pop("soft", False) else self.theme.ink,
            "font_weight": 700 if more.pop("bold", False) else None,
            "font_style": "italic" if more.pop("italic", False) else None,
            "font_size": None if size == 12 else size,
        }
        anchor = more.pop("anchor", "start")
        if anchor != "start":
            attributes["text_anchor"] = anchor
        self.add("text", escaped(text), x=x, y=y, **attributes | more)

    def as_svg(self, width: float, height: float, title: str, description: str) -> str:
        """The whole file: a ground, the definitions, title and description for screen readers."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{number(width)}" '
            f'height="{number(height)}" viewBox="0 0 {number(width)} {number(height)}" role="img" '
            f'aria-labelledby="title desc" font-family={quoteattr(FONT)} font-size="12">'
        )
        body = [
            element("title", escaped(title), id="title"),
            element("desc", escaped(description), id="desc"),
            element("defs", "".join(self.definitions.values())),
            element("rect", width=width, height=height, fill=self.theme.bg),
            *self.parts,
        ]
        return "\n".join([head, *filter(None, body), "</svg>"]) + "\n"


def element(tag: str, inside: str = "", **attributes: object) -> str:
    """An element as text; `inside` is markup."""
    given = "".join(
        f" {name.replace('_', '-')}={quoteattr(shown(value))}"
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{given}>{inside}</{tag}>" if inside else f"<{tag}{given}/>"


def shown(value: object) -> str:
    return number(value) if isinstance(value, int | float) else str(value)


def number(value: float) -> str:
    """At most two decimals and no trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def escaped(text: str) -> str:
    """Text that XML may hold; a sign that it may not becomes U+FFFD."""
    return escape(NOT_XML.sub("�", text))


NARROW = set("iljtf.,:;'|!()[] ·‘’")
WIDE = set("mwMW@%—…")


@cache
def text_width(text: str, size: float = 12, *, bold: bool = False) -> float:
    """An upper estimate of a text's width in pixels, for the wider of the usual system fonts."""
    em = 0.0
    for sign in text:
        if sign in NARROW:
            em += 0.36
        elif sign in WIDE:
            em += 1.0
        elif unicodedata.east_asian_width(sign) in "WF":
            em += 1.05
        elif unicodedata.combining(sign):
            continue
        else:
            em += 0.7 if sign.isupper() else 0.62
    return em * size * (1.08 if bold else 1.0)


def wrapped(text: str, width: float, size: float = 12, most: int | None = None) -> list[str]:
    """Lines that fit; a word that is too long is cut, and what is over `most` lines ends in “…”."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if text_width(longer, size) <= width:
            line = longer
            continue
        if line:
            lines.append(line)
        while text_width(word, size) > width and len(word) > 1:
            fits = next(
                n for n in range(len(word) - 1, 0, -1) if n == 1 or fit(word[:n], width, size)
            )
            lines.append(word[:fits])
            word = word[fits:]
        line = word
    lines += [line] if line else []
    if most is not None and len(lines) > most:
        lines = [*lines[: most - 1], cut(" ".join(lines[most - 1 :]), width, size)]
    return lines


def fit(text: str, width: float, size: float = 12) -> bool:
    return text_width(text, size) <= width


def cut(text: str, width: float, size: float = 12) -> str:
    """As much of a text as fits, with “…” where something is left out."""
    text = text[:2000]
    if fit(text, width, size):
        return text
    while text and not fit(text + "…", width, size):
        text = text[:-1]
    return text.rstrip() + "…"
