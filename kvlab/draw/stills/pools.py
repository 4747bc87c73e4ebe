"""The GPU pool and the CPU pool: physical blocks keep their place, owners come and go."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvlab.draw.stills.marks import Owner, badge, badge_width, hatch, hue, tinted
from kvlab.draw.stills.scene import Scene
from kvlab.draw.stills.svg import Drawing

ICONS: dict[str, str] = json.loads(
    (Path(__file__).parents[1] / "js" / "src" / "icons.json").read_text("utf-8")
)
"""Paths on a 20 × 20 grid by name; the player has them from the same file."""

MOST_NUMBERED = 16  # blocks, and slots of a block, whose cells have room for a number
MOST_DRAWN = 256  # blocks; more are counted, not drawn
HEAD = 30  # height of a part's heading


@dataclass(frozen=True, slots=True)
class Look:
    """Sizes of a block's parts in pixels: cell height, gaps, and the room inside its border."""

    cell: float
    gap: float
    side: float
    numbers: bool = True


NUMBERED = Look(cell=32, gap=4, side=8)
PANEL = Look(cell=28, gap=4, side=8)
SMALL = Look(cell=20, gap=2, side=6)
PLAIN = Look(cell=10, gap=1, side=4, numbers=False)


def icon(
    drawing: Drawing, name: str, x: float, y: float, size: float, color: str, width: float = 2.2
) -> None:
    filled = name == "damaged"
    drawing.add(
        "path",
        d=ICONS[name],
        transform=f"translate({x:.2f} {y:.2f}) scale({size / 20:.3f})",
        fill=color if filled else "none",
        stroke=color,
        stroke_width=1.4 if filled else width,
        stroke_linecap="round",
        stroke_linejoin="round",
    )


def heading(drawing: Drawing, x: float, y: float, w: float, title: str, right: str = "") -> None:
    """A part's title, and at its right end a fact in bold."""
    drawing.text(x, y + 15, title, bold=True, soft=True)
    if right:
        drawing.text(x + w, y + 15, right, 14, bold=True, anchor="end")


def gpu_pool(drawing: Drawing, scene: Scene, x: float, y: float, w: float, look: Look) -> float:
    """The pool in a column `w` wide; returns its height."""
    blocks = scene.state["blocks"]
    slots = scene.trace.document["pool"]["block_size"]
    heading(drawing, x, y, w, scene.say("gpu_pool"), scene.free())
    numbered = len(blocks) <= MOST_NUMBERED and slots <= MOST_NUMBERED
    look = look if numbered else PLAIN
    row_of = min(slots, 8 if numbered else 16)
    least = row_of * 30 + 22 if numbered else 84
    most = 2 if len(blocks) == 4 else 4 if numbered else 64
    across = max(1, min(most, int((w + 8) // (least + 8))))
    size = (w - 8 * (across - 1)) / across
    high = block_height(look, slots, row_of)
    shown = blocks[:MOST_DRAWN]
    for at, block in enumerate(shown):
        left, top = x + at % across * (size + 8), y + HEAD + at // across * (high + 8)
        gpu_block(drawing, scene, at, block, (left, top, size, high), look, row_of)
    rows = -(-len(shown) // across)
    end = HEAD + rows * (high + 8) - 8
    return end + more(drawing, scene, x, y + end, len(blocks) - len(shown))


def host_pool(drawing: Drawing, scene: Scene, x: float, y: float, w: float) -> float:
    """The pool that blocks are copied to, small; returns its height."""
    blocks = scene.state["host_blocks"]
    slots = scene.trace.document["pool"]["block_size"]
    free = scene.say("free_of", free=scene.state["host_free"], total=len(blocks))
    heading(drawing, x, y, w, scene.say("host_pool"), free)
    look = SMALL if slots <= 8 and len(blocks) <= 32 else PLAIN
    row_of = min(slots, 16)
    across = max(1, min(len(blocks), int((w + 8) // (max(74, 14 * min(row_of, 8)) + 8))))
    size = (w - 8 * (across - 1)) / across
    high = block_height(look, slots, row_of)
    shown = blocks[:MOST_DRAWN]
    for at, block in enumerate(shown):
        left, top = x + at % across * (size + 8), y + HEAD + at // across * (high + 8)
        host_block(drawing, scene, at, block, (left, top, size, high), look, row_of)
    end = HEAD + -(-len(shown) // across) * (high + 8) - 8
    return end + more(drawing, scene, x, y + end, len(blocks) - len(shown))


def more(drawing: Drawing, scene: Scene, x: float, y: float, left_out: int) -> float:
    if left_out <= 0:
        return 0
    drawing.text(x, y + 18, scene.say("more_entries", more=left_out), soft=True)
    return 24


def block_height(look: Look, slots: int, row_of: int) -> float:
    rows = -(-slots // row_of)
    return 4 + 22 + 4 + rows * (look.cell + look.gap) - look.gap + look.side


def frame(
    drawing: Drawing, box: tuple[float, ...], color: str, dashes: str | None, ringed: bool
) -> None:
    x, y, w, h = box
    if ringed:
        drawing.rect(x - 2.5, y - 2.5, w + 5, h + 5, rx=10, stroke=color, stroke_width=1.6)
    drawing.rect(
        x, y, w, h, rx=8, stroke=color, stroke_width=1.5, stroke_dasharray=dashes,
        fill=drawing.theme.bg,
    )  # fmt: skip


def gpu_block(
    drawing: Drawing,
    scene: Scene,
    at: int,
    block: dict[str, Any],
    box: tuple[float, float, float, float],
    look: Look,
    row_of: int,
) -> None:
    x, y, w, _ = box
    status, copy = block["status"], block["copy"]
    flying = status == "in_flight"
    holders = [copy["id"]] if flying and copy else block["owners"]
    owner = scene.owners.get(holders[0]) if holders else None
    empty = not any(cell and cell["live"] for cell in block["cells"])
    dashes = "1.5 3" if status == "held" and empty else "5 3" if status != "held" else None
    color = hue(drawing, owner) if owner else drawing.theme.edge
    ringed = at in scene.touched.blocks
    frame(drawing, box, color if owner or not ringed else drawing.theme.ink, dashes, ringed)
    drawing.text(x + look.side, y + 19, f"P{at}", bold=True)
    if block["damaged"] and status != "free":
        icon(drawing, "damaged", x + look.side + 24, y + 6, 16, drawing.theme.hues[1])
    right = x + w - look.side
    if status == "free":
        if look.numbers:
            word = "free_cached" if block["cached"] else "free"
            drawing.text(right, y + 19, scene.say(word), soft=True, anchor="end")
    else:
        right = badges(drawing, scene, holders, right, y + 5)
        if flying and look.numbers:
            drawing.text(right - 4, y + 19, scene.say("in_flight"), soft=True, anchor="end")
        if flying and copy:
            icon(drawing, copy["way"], x + look.side + 22, y + 7, 16, color)
    cells(drawing, scene, block["cells"], (x, y, w), look, row_of, flying=flying, block=at)


def host_block(
    drawing: Drawing,
    scene: Scene,
    at: int,
    block: dict[str, Any],
    box: tuple[float, float, float, float],
    look: Look,
    row_of: int,
) -> None:
    x, y, w, _ = box
    owner = scene.owners.get(block["owner"]) if block["owner"] else None
    request = scene.state["requests"].get(block["owner"]) if block["owner"] else None
    flying = bool(request and request["state"] in ("swapping_out", "swapping_in"))
    color = hue(drawing, owner) if owner else drawing.theme.edge
    dashes = "5 3" if flying or owner is None else None
    frame(drawing, box, color, dashes, at in scene.touched.hosts)
    drawing.text(x + look.side, y + 19, f"H{at}", bold=True)
    if owner:
        badges(drawing, scene, [owner.id], x + w - look.side, y + 5)
    else:
        drawing.text(x + w - look.side, y + 19, scene.say("free"), soft=True, anchor="end")
    cells(drawing, scene, block["cells"], (x, y, w), look, row_of, flying=flying)


def badges(drawing: Drawing, scene: Scene, holders: list[str], right: float, y: float) -> float:
    """Up to two badges and a count, ending at `right`; returns where they begin."""
    known = [scene.owners[id] for id in holders[:2] if id in scene.owners]
    if len(holders) > 1:
        drawing.text(right, y + 14, f"×{len(holders)}", bold=True, anchor="end")
        right -= 24
    left = right - sum(badge_width(owner) + 3 for owner in known) + 3
    at = left
    for owner in known:
        at += badge(drawing, owner, at, y) + 3
    return left


def cells(
    drawing: Drawing,
    scene: Scene,
    contents: list[dict[str, Any] | None],
    box: tuple[float, float, float],
    look: Look,
    row_of: int,
    *,
    flying: bool,
    block: int | None = None,
) -> None:
    x, y, w = box
    wide = (w - 2 * look.side - look.gap * (row_of - 1)) / row_of
    written = scene.touched.slots
    for slot, cell in enumerate(contents):
        left = x + look.side + slot % row_of * (wide + look.gap)
        top = y + 30 + slot // row_of * (look.cell + look.gap)
        now = written is not None and written[0] == block and written[1] <= slot <= written[2]
        one_cell(drawing, scene, cell, (left, top, wide, look.cell), look, flying=flying, now=now)


def one_cell(
    drawing: Drawing,
    scene: Scene,
    cell: dict[str, Any] | None,
    box: tuple[float, float, float, float],
    look: Look,
    *,
    flying: bool,
    now: bool,
) -> None:
    """Empty: an outline. Live: the owner's hatch. A ghost: a pale number in a dashed outline."""
    x, y, w, h = box
    round_, theme = min(5, h / 5), drawing.theme
    if cell is None:
        drawing.rect(x, y, w, h, rx=round_, stroke=theme.line)
        return
    middle = y + h / 2 + 4.6
    size = 14 if h > 24 else 12
    if not cell["live"]:
        drawing.rect(
            x, y, w, h, rx=round_, stroke=theme.edge, stroke_width=0.8, stroke_dasharray="3 3"
        )
        if look.numbers:
            drawing.text(x + w / 2, middle, str(cell["position"]), size, soft=True, anchor="middle")
        return
    owner = scene.owners[cell["id"]]
    own = hue(drawing, owner)
    if now:
        drawing.rect(x - 2.5, y - 2.5, w + 5, h + 5, rx=7, stroke=own, stroke_width=3)
    drawing.rect(
        x, y, w, h, rx=round_, stroke=own, fill=hatch(drawing, owner),
        stroke_dasharray="4 2" if flying else None,
    )  # fmt: skip
    if look.numbers:
        number_patch(drawing, owner, cell["position"], x + w / 2, y + h / 2, size)
    if look.numbers and h > 24 and (cell["how"] != "first" or cell["id"] in scene.recovered):
        how_sign(drawing, cell["how"], x + w - 2, y + 1, own)


def number_patch(
    drawing: Drawing, owner: Owner, position: int, x: float, y: float, size: float
) -> None:
    """The number stands on a patch of ground, so that no pattern runs through it."""
    text = str(position)
    w = len(text) * size * 0.64 + 6
    drawing.rect(x - w / 2, y - size / 2 - 2, w, size + 4, rx=4, fill=tinted(drawing, owner))
    drawing.text(x, y + size * 0.36, text, size, bold=True, anchor="middle")


def how_sign(drawing: Drawing, how: str, x: float, y: float, own: str) -> None:
    """↻ computed again, an arrow for brought back, a dot for the first time beside such ones."""
    drawing.add("circle", cx=x, cy=y, r=7, fill=own)
    ink = drawing.theme.own_ink
    if how == "first":
        drawing.add("circle", cx=x, cy=y, r=2.5, fill=ink)
    else:
        icon(drawing, "rebuilt" if how == "rebuilt" else "in", x - 5, y - 5, 10, ink, 2.6)
