"""An SVG picture as PNG: by resvg, which is part of the install and asks for no network."""

from __future__ import annotations

import re
from functools import cache

import resvg_py

from kvlab.errors import BadInput

ZOOM = 2.0  # pixels of the image for one of the picture
MOST_PIXELS = 80_000_000
SIZE = re.compile(r'width="([\d.]+)" height="([\d.]+)"')
LETTERS = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><text y="15">kv</text></svg>'
)


def as_png(svg: str) -> bytes:
    """The picture twice as large, less where that would be too many pixels.

    Raises BadInput where this machine has no font to write with.
    """
    if not has_font():
        raise BadInput(
            "PNG: this machine has no font to write with; install one (Debian: fonts-dejavu-core) "
            "or take the picture as .svg."
        )
    found = SIZE.search(svg)
    pixels = float(found[1]) * float(found[2]) if found else 1.0
    zoom = min(ZOOM, (MOST_PIXELS / pixels) ** 0.5)
    return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=zoom))


@cache
def has_font() -> bool:
    """Whether letters leave anything on the picture."""
    empty = LETTERS.replace("kv", "")
    return resvg_py.svg_to_bytes(svg_string=LETTERS) != resvg_py.svg_to_bytes(svg_string=empty)
