"""`kvlab export`: what it writes, and one sentence for what cannot be meant."""

from __future__ import annotations

import errno
import json
import struct
from pathlib import Path
from typing import Any

import pytest
import resvg_py

from kvlab.cli import main
from kvlab.course.record import TRACES, facts
from kvlab.draw.player import Player
from kvlab.errors import BadInput
from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import load_scenario
from kvlab.trace.document import Trace

MINE = """name: mine
model: null
engine: {num_blocks: 4, block_size: 4}
requests:
  - {id: A, prompt: [1, 2, 3, 4, 5, 6, 7], max_tokens: 6}
  - {id: B, prompt: [1, 2, 3, 4, 5, 6, 8], max_tokens: 4}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(MINE)
    Path("t.json").write_bytes((TRACES / "figure-5.json").read_bytes())
    Path("sub").mkdir()
    return tmp_path


def test_all_at_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--html", "a.html", "--svg", "a.svg", "--png", "a.png", "--storyboard", "b.png"]
    asked += ["--trace", "c.json", "--scenario", "s.yaml", "--embed", "--step", "3"]
    assert main(["export", "figure-4", *asked]) == 0
    out, err = capsys.readouterr()
    trace = Trace.read("c.json")
    assert trace.document == Trace.read(TRACES / "figure-4.json").document
    cursor = trace.cursor_of(3)
    assert out.startswith(
        f'<iframe src="a.html#scenario=figure-4&amp;method=swap&amp;cursor={cursor}" title="'
    )
    assert 'sandbox="allow-scripts allow-downloads"' in out
    assert err.count("written to") == 6
    svg = Path("a.svg").read_text("utf-8")
    assert f"step 3 of 8 · event {cursor} of 78" in svg
    size = [float(svg.split(f'{name}="')[1].split('"')[0]) for name in ("width", "height")]
    png = Path("a.png").read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", png[16:24]) == tuple(round(2 * part) for part in size)
    assert len(png) > 50_000  # letters and patterns, not an empty ground
    again = run_scenario(load_scenario("s.yaml", ["device=cpu"])).trace
    assert facts(again)["events"] == facts(trace)["events"]


def test_a_scenario_file_is_run_and_a_trace_file_is_replayed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "mine.yaml", "--trace", "sub/t.json", "--embed"]) == 0
    made = Trace.read("sub/t.json")
    assert [entry["free"] for entry in made.summary["per_step"]] == [0, 0, 1, 1, 1, 4, 1, 4]
    assert 'src="mine.html#scenario=mine&amp;method=recompute"' in capsys.readouterr().out
    Path("mine.yaml").unlink()
    assert main(["export", "sub/t.json", "--html", "p.html", "--scenario", "s.json"]) == 0
    assert json.loads(Path("s.json").read_text())["name"] == "mine"
    player = Player.from_file("sub/t.json", cursor=3)
    assert (player.cursor, player.trace["scenario"]["name"]) == (3, "mine")


def test_settings_run_a_lesson_again(folder: Path) -> None:
    asked = ["--set", "engine.method=swap", "--set", "device=cpu"]
    assert main(["export", "figure-5", *asked, "--trace", "x.json"]) == 0
    assert Trace.read("x.json").summary["blocks_swapped_out"] == 2


BAD: list[tuple[list[str], str]] = [
    (["figure-5"], "say what to make"),
    (["nothing", "--html", "a.html"], "no such file, and no shipped scenario"),
    (["figure-5", "--html", "no/a.html"], "--html no/a.html: give a file in a folder that exists"),
    (["figure-5", "--svg", "sub"], "--svg sub: give a file in a folder that exists"),
    (["mine.yaml", "--html", "mine.yaml"], "that is the input itself"),
    (["t.json", "--trace", "sub/../t.json"], "that is the input itself"),
    (["figure-5", "--svg", "a", "--png", "a"], "--png a: --svg goes there already"),
    (["figure-5", "--storyboard", "a.jpg"], "the name must end in .svg or .png"),
    (["figure-5", "--scenario", "a.txt"], "the name must end in .yaml or .yml or .json"),
    (["figure-5", "--svg", "a", "--cursor", "73"], "--cursor 73: the run has the cursors 0 to 72"),
    (["figure-5", "--svg", "a", "--cursor", "-1"], "the run has the cursors 0 to 72"),
    (["figure-5", "--svg", "a", "--step", "9"], "--step 9: the run has the steps 1 to 8"),
    (["figure-5", "--svg", "a", "--step", "2", "--cursor", "2"], "give one of them"),
    (["figure-5", "--svg", "a", "--language", "xx"], "language 'xx': there are no words for it"),
    (["t.json", "--svg", "a", "--set", "engine.num_blocks=9"], "t.json is a recorded trace"),
    (["cut.json", "--svg", "a"], "trace cut.json: not valid JSON"),
    (["old.json", "--svg", "a"], "version 99 is newer"),
    (["\x00", "--svg", "a"], "no such file"),
    (["figure-5", "--svg", "a\x00b"], "embedded null byte"),
    (["figure-5", "--svg", "a", "--title", "\udcff"], "--title: holds bytes that are no text"),
]


@pytest.mark.parametrize(("asked", "says"), BAD, ids=lambda value: str(value)[:60])
def test_what_cannot_be_meant_gets_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], asked: list[str], says: str
) -> None:
    Path("cut.json").write_bytes(Path("t.json").read_bytes()[:5000])
    Path("old.json").write_text('{"format": "kvlab-trace", "version": 99}')
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert main(["export", *asked]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert err.startswith("kvlab: ")
    assert err.count("\n") == 1
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_a_full_disk_leaves_what_was_there(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("a.html").write_text("mine")

    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert main(["export", "figure-5", "--html", "a.html"]) == 2
    assert "a.html cannot be written (No space left on device)" in capsys.readouterr().err
    assert Path("a.html").read_text() == "mine"
    assert sorted(path.name for path in folder.iterdir()) == [
        "a.html",
        "mine.yaml",
        "sub",
        "t.json",
    ]


def test_a_machine_without_a_font_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvlab.export import png

    real = resvg_py.svg_to_bytes
    bare: dict[str, Any] = {"skip_system_fonts": True}
    monkeypatch.setattr(resvg_py, "svg_to_bytes", lambda **asked: real(**asked, **bare))
    png.has_font.cache_clear()
    assert main(["export", "figure-5", "--png", "a.png"]) == 2
    assert "this machine has no font" in capsys.readouterr().err
    assert not Path("a.png").exists()
    png.has_font.cache_clear()


def test_a_broken_trace_file_is_refused_by_the_player(folder: Path) -> None:
    with pytest.raises(BadInput, match=r"trace sub: cannot be read"):
        Player.from_file("sub")
    with pytest.raises(BadInput, match=r"trace mine\.yaml: not valid JSON"):
        Player.from_file("mine.yaml")
