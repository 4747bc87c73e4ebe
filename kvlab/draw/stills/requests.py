"""Block tables and request cards: what each request has, knows and still needs."""

from __future__ import annotations

from typing import Any

from kvlab.draw.stills.marks import BADGE, badge, badge_width, hue
from kvlab.draw.stills.pools import HEAD, heading, icon
from kvlab.draw.stills.scene import Scene
from kvlab.draw.stills.svg import Drawing, cut, text_width

MOST_ENTRIES = 32  # of a block table
MOST_CHIPS = 60  # a longer history is one bar and its newest tokens
NEWEST_CHIPS = 12
COPIED = {"preempted", "swapped", "swapping_out", "swapping_in", "paused"}


def shown_ids(scene: Scene) -> list[str]:
    """The requests that have room: all, or those that are at work, the event's own first."""
    if len(scene.ids) <= scene.most:
        return scene.ids
    requests = scene.state["requests"]
    last = {"finished": 2}

    def rank(id: str) -> tuple[bool, int]:
        state = requests[id]["state"] if id in requests else "absent"
        return id != scene.touched.id, last.get(state, 3 if state == "absent" else 1)

    chosen = set(sorted(scene.ids, key=rank)[: scene.most])
    return [id for id in scene.ids if id in chosen]


def tables(drawing: Drawing, scene: Scene, x: float, y: float, w: float) -> float:
    """Logical index to physical block, a row a request; returns the height."""
    heading(drawing, x, y, w, scene.say("tables"))
    top = y + HEAD - 2
    for at, id in enumerate(shown_ids(scene)):
        if at:
            drawing.line(x, top, x + w, top, stroke=drawing.theme.faint)
        top += table_row(drawing, scene, id, x, top + 4, w) + 8
    return top - y + left_out(drawing, scene, x, top)


def left_out(drawing: Drawing, scene: Scene, x: float, y: float) -> float:
    hidden = len(scene.ids) - len(shown_ids(scene))
    if not hidden:
        return 0
    drawing.text(x, y + 16, scene.say("more_entries", more=hidden), soft=True)
    return 22


def entries_of(scene: Scene, id: str) -> list[tuple[int, str, str]]:
    """(logical index, name, kind) of a request's table; kind: held, unmet or host."""
    request = scene.state["requests"].get(id)
    if request is None:
        return []
    found = [(at, f"P{block}", "held") for at, block in enumerate(request["table"])]
    if request["unmet"]:
        missing = min(request["unmet"]["needs"], 4)
        found += [(request["unmet"]["logical"] + at, "?", "unmet") for at in range(missing)]
    return found + [(at, f"H{block}", "host") for at, block in enumerate(request["host_table"])]


def table_row(drawing: Drawing, scene: Scene, id: str, x: float, y: float, w: float) -> float:
    theme, owner = drawing.theme, scene.owners[id]
    own = hue(drawing, owner)
    entries = entries_of(scene, id)
    left = x + badge(drawing, owner, x, y + 18) + 12
    if not entries:
        text = no_blocks(scene, id)
        drawing.text(left, y + 32, cut(text, x + w - left), soft=True)
        return 48
    start, top = left, y
    now = scene.touched
    for at, (logical, name, kind) in enumerate(entries):
        wide = max(36, text_width(name, 14, bold=True) + 10)
        if at >= MOST_ENTRIES or (left + wide > x + w and top > y + 100):
            text = scene.say("more_entries", more=len(entries) - at)
            drawing.text(left, top + 32, text, soft=True)
            break
        if left + wide > x + w:
            left, top = start, top + 48
        ringed = now.id == id and (
            (kind == "held" and now.entries and now.entries[0] <= logical <= now.entries[1])
            or (kind == "unmet" and now.unmet)
        )
        drawing.text(left + wide / 2, top + 8.5, str(logical), soft=True, anchor="middle")
        if ringed:
            drawing.rect(left - 2.5, top + 12.5, wide + 5, 33, rx=8, stroke=own, stroke_width=1.6)
        style: dict[str, Any] = {"stroke": own, "stroke_width": 1.5}
        if kind == "unmet":
            style["stroke_dasharray"] = "4 3"
        drawing.rect(left, top + 15, wide, 28, rx=6, **style)
        if kind == "host":  # a double border: stored, not on the GPU
            drawing.rect(left + 2.5, top + 17.5, wide - 5, 23, rx=4, stroke=own, stroke_width=0.8)
        fill = {"fill": own} if kind == "unmet" else {"fill": theme.ink}
        drawing.text(left + wide / 2, top + 34, name, 14, bold=True, anchor="middle", **fill)
        left += wide + 6
    return top - y + 48


def no_blocks(scene: Scene, id: str) -> str:
    request = scene.state["requests"].get(id)
    if request is None:
        return scene.say("not_arrived")
    if request["state"] in ("waiting", "running"):
        return scene.say("no_blocks_yet")
    if request["state"] == "finished":
        return scene.say("no_blocks_finished")
    return scene.say("no_blocks_kept", history=request["history"])


def cards(
    drawing: Drawing, scene: Scene, x: float, y: float, w: float, *, narrow: bool = False
) -> float:
    """A card a request: state in words, the four numbers, the history; returns the height."""
    heading(drawing, x, y, w, scene.say("requests"))
    top = y + HEAD
    for id in shown_ids(scene):
        top += card(drawing, scene, id, x, top, w, narrow=narrow) + 12
    return top - y + left_out(drawing, scene, x, top)


def card(
    drawing: Drawing, scene: Scene, id: str, x: float, y: float, w: float, *, narrow: bool
) -> float:
    owner, request = scene.owners[id], scene.state["requests"].get(id)
    badge(drawing, owner, x, y)
    left = x + badge_width(owner) + 8
    words = scene.state_words(id)
    waits = request is not None and request["state"] in COPIED
    fill = hue(drawing, owner) if waits else drawing.theme.ink
    drawing.text(left, y + 15, words, 14, bold=True, fill=fill)
    left += text_width(words, 14, bold=True) + 8
    numbers = numbers_width(scene, id)
    if owner.short != id:
        room = x + w - left - (0 if narrow else numbers)
        drawing.text(left, y + 15, cut(id, max(40, room)), soft=True)
        left += min(text_width(id), max(40, room))
    below = narrow or left + numbers > x + w
    four_numbers(drawing, scene, id, x + w if not narrow else x + numbers, y + (22 if below else 0))
    top = y + BADGE + 8 + (22 if below else 0)
    return top - y + history(drawing, scene, id, x, top, w)


def numbers_width(scene: Scene, id: str) -> float:
    return sum(
        text_width(scene.say(f"number_{name}")) + 5 + number_room(value) + 16
        for name, value in scene.numbers(id).items()
    )


def number_room(value: int) -> float:
    return max(2, len(str(value))) * 9.4


def four_numbers(drawing: Drawing, scene: Scene, id: str, right: float, y: float) -> None:
    """history, KV, blocks, sent, ending at `right`."""
    left = right - numbers_width(scene, id)
    for name, value in scene.numbers(id).items():
        word = scene.say(f"number_{name}")
        drawing.text(left, y + 15, word, soft=True)
        left += text_width(word) + 5
        drawing.text(left, y + 15, str(value), 14, bold=True)
        left += number_room(value) + 16


def history(drawing: Drawing, scene: Scene, id: str, x: float, y: float, w: float) -> float:
    """The tokens as chips: name and text, below them a bar (KV or none) and a tick (sent)."""
    request = scene.state["requests"].get(id)
    if not request or not request["history"]:
        drawing.text(x, y + 14, scene.say("no_history"), soft=True)
        return 20
    length = request["history"]
    first = length - NEWEST_CHIPS if length > MOST_CHIPS else 0
    top = y
    if first:
        long_bar(drawing, scene, id, x, y, w)
        drawing.text(x, y + 28, scene.say("earlier", tokens=first), soft=True)
        top += 36
    left, high = x, 0.0
    for chip in chips(scene, id, first):
        wide = max(34, text_width(chip["name"]) + 10, text_width(chip["text"] or "") + 10)
        if left + wide > x + w and left > x:
            left, top = x, top + high + 4
        high = draw_chip(drawing, scene, id, chip, left, top, wide)
        left += wide + 4
    return top + high - y


def chips(scene: Scene, id: str, first: int) -> list[dict[str, Any]]:
    """What each token of a history shows: {name, text, kv, next, sent, output, now}."""
    request, prompt = scene.state["requests"][id], scene.prompts[id]
    document = scene.trace.document
    flying = {
        cell["position"]
        for block in scene.state["blocks"]
        if block["status"] == "in_flight"
        for cell in block["cells"]
        if cell and cell["live"] and cell["id"] == id
    }
    now = scene.touched.positions if scene.touched.id == id else None
    done = max(request["kv"], request["host_kv"])
    found = []
    for position in range(first, request["history"]):
        output = position - len(prompt)
        token = prompt[position] if output < 0 else request["outputs"][output]
        kv = "none"
        if position < request["kv"]:
            kv = "gpu"
        elif position in flying:
            kv = "flight"
        elif position < request["host_kv"]:
            kv = "host"
        still = request["state"] != "finished" and kv == "none" and position >= done
        # The newest output never had KV; after a release the tokens before it had.
        last = position == request["history"] - 1
        again = request["preemptions"] > 0 and (not last or (output < 0 and request["outputs"]))
        text = None if document["model"]["stand_in"] else visible(document["tokens"][str(token)])
        found.append(
            {
                "name": f"p{position}" if output < 0 else f"x{output}",
                "text": text,
                "kv": kv,
                "next": None if not still else "again" if again else "new",
                "sent": 0 <= output < request["delivered"],
                "output": output >= 0,
                "now": now is not None and now[0] <= position <= now[1],
            }
        )
    return found


def draw_chip(
    drawing: Drawing,
    scene: Scene,
    id: str,
    chip: dict[str, Any],
    x: float,
    y: float,
    w: float,
) -> float:
    theme, own = drawing.theme, hue(drawing, scene.owners[id])
    high = 24 if chip["text"] is None else 34
    if chip["now"]:
        drawing.rect(x - 1.5, y - 1.5, w + 3, high + 3, rx=7, stroke=own, stroke_width=2.5)
    style: dict[str, Any] = {"fill": theme.bg if chip["output"] else theme.raised}
    if chip["next"] == "new":
        style |= {"stroke": theme.ink, "stroke_width": 2}
    elif chip["next"] == "again":
        style |= {"stroke": theme.soft, "stroke_dasharray": "3 2"}
    elif chip["output"]:
        style |= {"stroke": theme.line}
    drawing.rect(x + 0.5, y + 0.5, w - 1, high - 1, rx=6, **style)
    middle = x + w / 2
    if chip["text"] is None:
        drawing.text(middle, y + 16, chip["name"], anchor="middle")
    else:
        drawing.text(middle, y + 14, chip["name"], anchor="middle", soft=True)
        drawing.text(middle, y + 28, chip["text"], anchor="middle")
    kv_bar(drawing, own, chip["kv"], x, y + high + 3, w)
    if chip["sent"]:
        icon(drawing, "tick", middle - 6, y + high + 11, 12, theme.soft)
    return high + 3 + 6 + (15 if chip["output"] else 0)


def kv_bar(drawing: Drawing, own: str, kv: str, x: float, y: float, w: float) -> None:
    """Full: KV on the GPU. Striped: in the CPU pool or on its way. An outline: none."""
    if kv == "none":
        drawing.rect(x + 0.5, y + 0.5, w - 1, 5, rx=2.5, stroke=drawing.theme.edge)
    elif kv == "gpu":
        drawing.rect(x, y, w, 6, rx=3, fill=own)
    else:
        dashes = "2 2" if kv == "flight" else None
        drawing.rect(x + 0.5, y + 0.5, w - 1, 5, rx=2.5, stroke=own, stroke_dasharray=dashes)
        drawing.line(
            x + 3, y + 3, x + w - 3, y + 3, stroke=own, stroke_width=6, stroke_dasharray="3 3"
        )


def long_bar(drawing: Drawing, scene: Scene, id: str, x: float, y: float, w: float) -> None:
    """How much of a long history has KV on the GPU or in the host pool; the notch ends the prompt."""
    request, own = scene.state["requests"][id], hue(drawing, scene.owners[id])
    part = w / request["history"]
    drawing.rect(x, y, w, 10, rx=5, stroke=drawing.theme.edge)
    kv_bar(drawing, own, "gpu", x + 1, y + 2, max(0.0, request["kv"] * part - 2))
    if request["host_kv"]:
        kv_bar(drawing, own, "host", x + 1, y + 2, max(7.0, request["host_kv"] * part - 2))
    notch = x + len(scene.prompts[id]) * part
    drawing.line(notch, y - 3, notch, y + 13, stroke=drawing.theme.ink, stroke_width=2)


def visible(text: str) -> str:
    """A token's text in a chip: what cannot be seen gets a sign."""
    shown = text.replace("\n", "↵").replace("\t", "⇥").strip()
    if not shown:
        return "␣" if text else "∅"
    return shown if len(shown) <= 12 else shown[:11] + "…"
