"""An animation of a run: its moments in a loop, and the README's picture is one."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kvlab.course.record import recorded
from kvlab.draw.stills import animation as animations
from kvlab.draw.stills.animation import animation
from kvlab.draw.stills.svg import DARK, LIGHT
from kvlab.errors import BadInput

SVG = "{http://www.w3.org/2000/svg}"
PICTURE = Path(__file__).resolve().parents[2] / "assets" / "pictures" / "figure-5.svg"


def frames(svg: str) -> list[list[str]]:
    """The texts of each picture, in the order in which they are shown."""
    groups = [one for one in ElementTree.fromstring(svg) if one.get("class") == "f"]
    delays = [int(re.findall(r"delay:(\d+)s", one.get("style", ""))[0]) for one in groups]
    assert delays == sorted(set(delays))
    return [[text.text or "" for text in one.iter(f"{SVG}text")] for one in groups]


@pytest.mark.parametrize("figure", range(1, 6))
def test_the_free_blocks_of_the_figures_are_gone_through(figure: int) -> None:
    """On paper: 0 free when the block is needed, 2 once B's are released, 1 with A's third."""
    shown = frames(animation(recorded(f"figure-{figure}"), LIGHT))
    assert 4 <= len(shown) <= 12
    counts = [next(text for text in one if "blocks free" in text) for one in shown]
    wanted = ["0 of 4 blocks free"]
    if figure > 1:
        wanted += ["2 of 4 blocks free", "1 of 4 blocks free"]
    for count in wanted:
        counts = counts[counts.index(count) :]


def test_one_picture_at_a_time_and_one_alone_where_motion_is_not_wanted() -> None:
    svg = animation(recorded("figure-2"), DARK, language="de")
    count = len(frames(svg))
    assert f"animation:f {count * animations.SECONDS}s step-end infinite" in svg
    assert f"{100 / count:.3f}%{{opacity:0}}" in svg
    assert "(prefers-reduced-motion:reduce){.f{animation:none}.f:last-of-type{opacity:1}}" in svg
    assert "Blöcken frei" in svg


def test_a_run_of_too_many_moments_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(animations, "MOST_PICTURES", 2)
    with pytest.raises(BadInput, match="--html, which plays a run of any length"):
        animation(recorded("figure-5"), LIGHT)


def test_the_readmes_picture_is_what_its_command_makes() -> None:
    svg = PICTURE.read_text("utf-8")
    assert len(svg) < 1_500_000
    assert frames(svg) == frames(animation(recorded("figure-5"), LIGHT))
