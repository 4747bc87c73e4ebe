"""Pictures and storyboards, read as a person reads them: what stands where on the drawing.

The expected values are those of the article's figures, worked out on paper.
"""

from __future__ import annotations

import copy
import re
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest

from kvlab.course.record import recorded
from kvlab.draw.stills.panels import panels_of
from kvlab.draw.stills.picture import picture
from kvlab.draw.stills.storyboard import storyboard
from kvlab.draw.stills.svg import DARK, LIGHT
from kvlab.errors import BadInput
from kvlab.runs.scenario import scenario_names
from kvlab.trace.document import Trace

SVG = "{http://www.w3.org/2000/svg}"
WIDE = {"P0": "0 1 2 3", "P1": "4 5 6 7"}


class Text(NamedTuple):
    x: float
    y: float
    size: float
    bold: bool
    text: str


def texts(svg: str) -> list[Text]:
    """Every line of text on a drawing."""
    return [
        Text(
            float(one.get("x", 0)),
            float(one.get("y", 0)),
            float(one.get("font-size", 12)),
            one.get("font-weight") == "700",
            one.text or "",
        )
        for one in ElementTree.fromstring(svg).iter(f"{SVG}text")
    ]


def pools(svg: str) -> list[dict[str, str]]:
    """What the cells of each block say, a dictionary a pool: live positions, old values in brackets.

    A block's name is small and bold, the numbers of its cells are larger and below it.
    """
    found = texts(svg)
    names = [one for one in found if re.fullmatch(r"P\d", one.text) and one.bold and one.size == 12]
    blocks = []
    for name in names:
        inside = sorted(
            one
            for one in found
            if one.size == 14
            and one.text.isdigit()
            and name.x < one.x < name.x + 180
            and name.y < one.y < name.y + 45
        )
        blocks.append(
            (name.text, " ".join(one.text if one.bold else f"({one.text})" for one in inside))
        )
    size = sum(name == "P0" for name, _ in blocks)
    each = len(blocks) // size
    return [dict(blocks[at * each : (at + 1) * each]) for at in range(size)]


def free(svg: str) -> list[str]:
    """What is said of the GPU pool's free blocks; the host pool's count follows each."""
    said = [one.text for one in texts(svg) if "blocks free" in one.text]
    hosts = sum(one.text == "CPU pool" for one in texts(svg))
    return said[:: 2 if hosts else 1]


def board(name: str) -> str:
    return storyboard(recorded(name), LIGHT)


def test_figure_1_fills_up_and_ends_with_an_unmet_need() -> None:
    svg = board("figure-1")
    one_slot_each = {"P0": "0 1 2 3", "P1": "4 5 6", "P2": "0 1 2 3", "P3": "4 5 6"}
    full = {name: WIDE["P0" if name in ("P0", "P2") else "P1"] for name in one_slot_each}
    assert pools(svg) == [one_slot_each, full, full]
    assert free(svg) == ["0 of 4 blocks free"] * 3
    said = [one.text for one in texts(svg)]
    assert said.count("?") == 1
    assert "running · needs a block" in said
    assert [text for text in said if text.startswith(("after step", "in step"))] == [
        "after step 1",
        "after step 2",
        "in step 3",
    ]


def test_figure_2_skips_releases_and_gives_p2_to_a() -> None:
    svg = board("figure-2")
    assert free(svg) == ["0 of 4 blocks free", "2 of 4 blocks free", "1 of 4 blocks free"]
    skipped, released, given = pools(svg)
    assert skipped == {**WIDE, "P2": "0 1 2 3", "P3": "4 5 6 7"}
    assert released == {**WIDE, "P2": "(0) (1) (2) (3)", "P3": "(4) (5) (6) (7)"}
    assert given == {**WIDE, "P2": "8 (1) (2) (3)", "P3": "(4) (5) (6) (7)"}


def test_figure_3_rebuilds_eight_positions_and_computes_one() -> None:
    svg = board("figure-3")
    assert free(svg) == ["0 of 4 blocks free", "2 of 4 blocks free", "1 of 4 blocks free"]
    assert pools(svg)[-1] == {
        "P0": "4 5 6 7",
        "P1": "8 (5) (6) (7)",
        "P2": "(8) (9) (10) (11)",
        "P3": "0 1 2 3",
    }
    description = ElementTree.fromstring(svg).findtext(f"{SVG}desc") or ""
    assert "B: running, history 9, KV 8, blocks 2, sent 2 P2 P3." in description
    assert "B: preempted · recompute, history 9, KV 0, blocks 0, sent 2." in description
    assert "B: running, history 10, KV 9, blocks 3, sent 3 P3 P0 P1." in description
    assert "8 positions are rebuilt, 1 position is computed for the first time" in description


def test_figure_4_copies_then_releases_then_restores() -> None:
    svg = board("figure-4")
    assert free(svg)[1] == "0 of 4 blocks free · 2 in flight"  # never before the copy is complete
    assert free(svg)[2] == "2 of 4 blocks free"
    assert pools(svg)[2]["P2"] == "(0) (1) (2) (3)"
    restored = pools(svg)[4]
    assert (restored["P3"], restored["P0"]) == ("0 1 2 3", "4 5 6 7")
    assert pools(svg)[5]["P1"] == "8 (5) (6) (7)"
    assert free(svg)[5] == "1 of 4 blocks free"


def test_figure_5_is_lanes_with_the_gap_split() -> None:
    svg = board("figure-5")
    said = [one.text for one in texts(svg)]
    assert pools_after(said) == [0, 0, 1, 1, 1, 4, 1, 4]
    assert "5 steps: 4 waiting + 1 recovery" in said
    assert said.count("prefill 7") == 2
    assert "recompute 9" in said
    assert "paused: no KV on the GPU, history kept" in said
    outputs = [text for text in said if re.fullmatch(r"x\d", text)]
    assert outputs == ["x0", "x1", "x2", "x3", "x4", "x5", "x0", "x1", "x2", "x3"]


def pools_after(said: list[str]) -> list[int]:
    return [int(text.split()[0]) for text in said if re.fullmatch(r"\d free", text)]


def test_moments_follow_the_run() -> None:
    """Another pool, another method: the panels are found in the trace, not counted out."""
    trace = recorded("figure-4")
    other = Trace(copy.deepcopy(trace.document))
    other.document["scenario"]["name"] = "figure-1"
    kinds = [other.events[panel.event]["kind"] for panel in panels_of(other)]
    assert kinds == ["block_allocated", "kv_written", "block_needed"]
    other.document["scenario"]["name"] = "mine"
    kinds = [other.events[panel.event]["kind"] for panel in panels_of(other)]
    assert {"block_needed", "swap_out_finished", "block_released", "swap_in_finished"} <= set(kinds)


@pytest.mark.parametrize("name", scenario_names())
@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
def test_every_lesson_is_drawn_and_asks_for_nothing(name: str, theme: Any) -> None:
    trace = recorded(name)
    for svg in (storyboard(trace, theme), picture(trace, len(trace.events) // 2, theme)):
        root = ElementTree.fromstring(svg)
        assert root.get("role") == "img"
        assert root.findtext(f"{SVG}title")
        assert len(root.findtext(f"{SVG}desc") or "") > 80
        assert not re.search(r"href|<style|<script|<image|https?://(?!www\.w3\.org/2000/svg)", svg)
        width = float(root.get("width", 0))
        assert all(0 <= one.x <= width for one in texts(svg))


def test_one_picture_for_one_cursor() -> None:
    trace = recorded("figure-5")
    at = trace.cursor_of(3)
    assert picture(trace, at, LIGHT) == picture(trace, at, LIGHT)
    assert picture(trace, at, LIGHT) != picture(trace, at - 1, LIGHT)
    said = [one.text for one in texts(picture(trace, at, LIGHT))]
    assert f"step 3 of 8 · event {at} of 72" in said
    assert "Schritt 3 von 8" in picture(trace, at, LIGHT, language="de")
    for cursor in (-1, len(trace.events) + 1):
        with pytest.raises(BadInput, match="has the cursors 0 to 72"):
            picture(trace, cursor, LIGHT)


def test_requests_differ_by_letter_shape_and_pattern_not_by_hue_alone() -> None:
    """In greyscale A is hatched with stripes, B with dots; a badge is square, the other round."""
    root = ElementTree.fromstring(board("figure-1"))
    patterns = {one.get("id"): [part.tag for part in one] for one in root.iter(f"{SVG}pattern")}
    assert patterns == {
        "owner0-0": [f"{SVG}rect", f"{SVG}rect"],
        "owner1-1": [f"{SVG}rect", f"{SVG}circle"],
    }


def test_what_a_run_says_is_shown_as_text() -> None:
    """Markup, control signs, right-to-left script and an endless word in title, ids and tokens."""
    trace = Trace(copy.deepcopy(recorded("figure-5").document))
    document = trace.document
    document["scenario"]["title"] = "<script>alert(1)</script> & \x00\x1b\ud800 " + "long" * 3000
    document["tokens"] = dict.fromkeys(document["tokens"], '"><svg onload=x> שלום 🙂\n')
    for svg in (storyboard(trace, LIGHT), picture(trace, 40, DARK)):
        root = ElementTree.fromstring(svg.encode("utf-8"))
        assert not list(root.iter(f"{SVG}script"))
        assert len([one for one in root.iter() if one.tag == f"{SVG}svg"]) == 1
        assert all(len(one.text) < 300 for one in texts(svg))
