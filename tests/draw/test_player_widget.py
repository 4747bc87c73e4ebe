"""The widget in Python: its traits, its refusals, and what a reader without a kernel sees."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kvlab.draw.packed import packed
from kvlab.draw.player import Player
from kvlab.errors import BadInput
from kvlab.runs.run import run_lesson
from kvlab.trace.document import Trace


def test_opens_at_the_start_of_its_range(trace_named: Any) -> None:
    trace = trace_named("figure-2")
    player = Player(trace=trace, start=12, stop=30, title="Figure 2")
    assert (player.start, player.stop, player.cursor) == (12, 30, 12)
    assert Player(trace=trace).stop is None
    assert Player(trace=trace, start=5, cursor=9).cursor == 9


def test_refusals_are_sentences(trace_named: Any) -> None:
    trace = trace_named("figure-5")
    with pytest.raises(BadInput, match="not a kvlab trace"):
        Player(trace={})
    with pytest.raises(BadInput, match="stop must be between 0 and"):
        Player(trace=trace, stop=10_000)
    with pytest.raises(BadInput, match="cursor must be between 0 and"):
        Player(trace=trace).cursor = -1
    with pytest.raises(BadInput, match="language"):
        Player(trace=trace, language="xx")
    with pytest.raises(TypeError, match="colour"):
        Player(trace=trace, colour="red")
    broken = copy.deepcopy(trace)
    broken["events"][5]["kind"] = "block_released"
    with pytest.raises(BadInput):
        Player(trace=broken)


def test_a_refused_value_leaves_the_player_as_it_was(trace_named: Any) -> None:
    player = Player(trace=trace_named("figure-5"), cursor=7)
    with pytest.raises(BadInput):
        player.cursor = 10_000
    assert player.cursor == 7


def test_a_shorter_run_takes_the_cursors_with_it(trace_named: Any) -> None:
    long, short = trace_named("figure-4"), trace_named("figure-5")
    player = Player(trace=long, start=77, stop=78)
    player.trace = short
    end = len(short["events"])
    assert (player.start, player.stop, player.cursor) == (end, end, end)


def test_module_and_style_are_text(trace_named: Any) -> None:
    """A path would keep every closed widget alive."""
    state = Player(trace=trace_named("figure-1")).get_state()
    assert state["_esm"].lstrip().startswith(("var", "let", "const", "(", "function", "class"))
    assert ".kvlab-player" in state["_css"]


def test_a_reader_without_a_kernel_sees_where_it_stood(trace_named: Any) -> None:
    trace = copy.deepcopy(trace_named("figure-5"))
    at = next(i for i, e in enumerate(trace["events"]) if e["kind"] == "block_released") + 1
    data, _ = Player(trace=trace, cursor=at, title="<b>Figure</b>")._repr_mimebundle_()
    assert list(data) == ["text/plain", "text/html"]
    for text in (data["text/plain"], data["text/html"]):
        assert "B released P2 and P3: 2 blocks are free." in text
        assert "2 of 4 blocks free" in text
    assert "&lt;b&gt;Figure" in data["text/html"]
    assert "<b>Figure" not in data["text/html"]
    assert "(4)" in data["text/html"]  # a ghost


def test_a_page_is_told_when_a_run_was_made() -> None:
    """A saved page must not say "just now" for ever."""
    live = run_lesson("figure-2").trace
    assert packed(live.document)["run"]["made"] == live.document["run"]["made"]


def test_a_run_of_ours_is_not_checked_again(
    monkeypatch: pytest.MonkeyPatch, trace_named: Any
) -> None:
    """One that comes as a plain document is checked whole, each time."""
    checked: list[str] = []
    monkeypatch.setattr(Trace, "from_json", lambda document, what: checked.append(what))
    document = trace_named("figure-1")
    player = Player(trace=Trace(document))
    player.show(Trace(trace_named("figure-2")))
    assert checked == []
    player.trace = trace_named("figure-3")
    Player(trace=document)
    assert checked == ["player", "player"]
