"""Charts and tables say what the run says, in colours that can be read on either ground."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kvlab.course import compare, cost
from kvlab.course.record import recorded
from kvlab.draw import chart, chart_look, cost_chart, gaps_chart, memory_chart
from kvlab.errors import BadInput
from kvlab.trace.document import Trace
from kvlab.trace.facts import gaps, memory

WIDGETS = Path(chart.__file__).parent
FIGURES = [f"figure-{n}" for n in range(1, 6)]
PLAYER_CSS = (WIDGETS / "js" / "src" / "css" / "look.css").read_text("utf-8")
GROUNDS = {"light": ("#ffffff", "#f3f5f8"), "dark": ("#111111", "#212121", "#14181d")}


@pytest.fixture(scope="module", params=FIGURES)
def trace(request) -> Trace:
    return recorded(request.param)


def light(colour: str) -> float:
    """Relative luminance (WCAG) of `#rrggbb`."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def mix(colour: str, ground: str, share: float) -> str:
    """`colour` at an alpha of `share` over `ground`."""
    pairs = [(int(colour[at : at + 2], 16), int(ground[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)


@pytest.mark.parametrize("name", ["light", "dark"])
def test_all_text_can_be_read(name: str):
    look = chart_look.LOOKS[name]
    for ground in GROUNDS[name]:
        assert contrast(look.ink, ground) >= 4.5
        assert contrast(look.soft, ground) >= 4.5
        for hue in look.hues:
            pale = mix(hue, ground, look.tint)
            assert contrast(look.ink, pale) >= 4.5
            assert contrast(look.ink, mix(hue, pale, look.stroke)) >= 4.5
            assert contrast(look.own_ink, hue) >= 4.5
            assert contrast(hue, ground) >= 3


def test_a_request_looks_as_in_the_player():
    css_light, css_dark = PLAYER_CSS.split('[data-theme="dark"] {')[:2]
    for css, look in ((css_light, chart_look.LIGHT), (css_dark, chart_look.DARK)):
        for place, hue in enumerate(look.hues):
            assert f"--hue{place}: {hue};" in css
        assert f"--own-ink: {look.own_ink};" in css


def test_memory_follows_the_story():
    seen = memory(recorded("figure-5"))
    assert [moment.kv for moment in seen] == [
        {"A": 7, "B": 7},
        {"A": 8, "B": 8},
        {"A": 9},
        {"A": 10},
        {"A": 11},
        {"A": 12},
        {"B": 9},
        {"B": 10},
    ]
    assert [moment.free for moment in seen] == [0, 0, 1, 1, 1, 4, 1, 4]


def test_memory_draws_what_was_seen(trace: Trace):
    figure, seen = memory_chart.memory_figure(trace), memory(trace)
    bars = {(bar.name, bar.yaxis): [n or 0 for n in bar.y] for bar in figure.data}
    for id in ("A", "B"):
        assert bars[id, "y"] == [moment.kv.get(id, 0) for moment in seen]
    stored = any(moment.host_kv for moment in seen)
    assert bars["free blocks", "y3" if stored else "y2"] == [m.free for m in seen]
    if stored:
        assert bars["B", "y2"] == [moment.host_kv.get("B", 0) for moment in seen]
    patterns = {bar.name: bar.marker.pattern.shape for bar in figure.data if bar.name in "AB"}
    assert patterns["A"] != patterns["B"]
    for axis in ("yaxis", "yaxis2", "xaxis"):
        assert figure.layout[axis].title.text in ("positions", "blocks", "step")


def test_b_has_the_hue_of_b_in_every_run():
    """shared-stays begins with B or has others before it: the second hue is B's all the same."""
    for name in ("shared-stays", "figure-5", "figure-2"):
        figure = memory_chart.memory_figure(recorded(name))
        (hue,) = {bar.marker.line.color for bar in figure.data if bar.name == "B"}
        assert hue == chart_look.LIGHT.hues[1], name


@pytest.mark.parametrize("name", ["figure-5", "figure-4", "storm"])
def test_a_legend_stands_above_what_is_drawn(name: str):
    """Not over labels: it is anchored by its lower edge, at the upper edge of the plot or above, and
    the margin there has room for a line of it."""
    trace = recorded(name)
    figures = [memory_chart.memory_figure(trace), gaps_chart.gaps_figure(trace)]
    shown = [figure for figure in figures if figure.layout.showlegend is not False]
    assert shown
    for figure in shown:
        assert figure.layout.legend.yanchor == "bottom"
        assert figure.layout.legend.y >= 1
        assert figure.layout.margin.t >= 30


def test_gaps_add_up_to_the_summary(trace: Trace):
    found = gaps(trace)
    for id, request in trace.summary["requests"].items():
        own = [gap for gap in found if gap.id == id]
        assert [gap.steps for gap in own] == request["gaps_steps"]
        assert sum(gap.waiting for gap in own) == request["waiting_steps"]
        assert sum(gap.recovery for gap in own) == request["recovery_steps"]


def test_gaps_draw_each_phase_once(trace: Trace):
    figure, found = gaps_chart.gaps_figure(trace), gaps(trace)
    drawn = sum(n or 0 for bar in figure.data for n in bar.x)
    assert drawn == sum(gap.steps for gap in found)
    assert figure.layout.xaxis.title.text == "steps between two outputs"


def test_sentences_say_the_numbers():
    story, swap = recorded("figure-5"), recorded("figure-4")
    assert "0, 0, 1, 1, 1, 4, 1 and 4 of 4 blocks" in memory_chart.memory_sentence(story)
    assert "The CPU pool keeps 8 positions of B in steps 3 to 6" in memory_chart.memory_sentence(
        swap
    )
    assert "5 steps: 4 waiting and 1 recovery" in gaps_chart.gaps_sentence(story)


@pytest.mark.parametrize("draw", [memory_chart.memory_figure, gaps_chart.gaps_figure])
def test_figures_are_lean_and_local(draw):
    for look in chart_look.LOOKS.values():
        text = json.dumps(chart.plain(draw(recorded("figure-4"), look)))
        assert len(text) < 20_000
        assert "http" not in text
        assert '"paper_bgcolor": "rgba(0,0,0,0)"' in text


def test_the_module_needs_nothing_from_elsewhere():
    source = (WIDGETS / "chart.js").read_text("utf-8")
    assert not re.search(r"^\s*import\b|https?:|\bimport\(", source, re.MULTILINE)
    assert len(source) < 6_000


def test_a_long_run_is_thinned_out():
    story = recorded("figure-5")
    document = story.document
    came = [event for event in document["events"] if event["kind"] == "arrived"]
    many = came + [one for one in document["events"] if one["kind"] == "token_delivered"] * 4
    long = Trace({**document, "events": many, "steps": []})
    assert len(gaps_chart.drawn_gaps(long)) == gaps_chart.MOST_GAPS
    assert f"The {gaps_chart.MOST_GAPS} longest of" in gaps_chart.gaps_sentence(long)


def test_chart_widget_has_words_for_readers_without_it():
    shown = memory_chart.memory_chart(recorded("figure-5"))
    assert shown.light["layout"]["font"]["color"] == chart_look.LIGHT.soft
    assert shown.dark["layout"]["font"]["color"] == chart_look.DARK.soft
    data, _ = shown._repr_mimebundle_()
    assert shown.caption in data["text/plain"]
    again = gaps_chart.gaps_chart(recorded("figure-5"), shown)
    assert again is shown
    assert shown.title == "What each user waits for"


# The two methods


@pytest.fixture(scope="module")
def table() -> compare.MethodsTable:
    return compare.compare(recorded("figure-5"), recorded("figure-4"))


def test_table_has_the_storys_numbers(table: compare.MethodsTable):
    one, other = table.recompute, table.swap
    assert (one.history, one.bytes_kept, one.recomputed, one.processed) == (9, 0, 8, 30)
    assert (other.history, other.kv_positions, other.recomputed, other.processed) == (9, 8, 0, 22)
    per_token = recorded("figure-4").document["model"]["kv_bytes_per_token"]
    assert other.bytes_kept == other.bytes_out == other.bytes_in == 8 * per_token
    assert (one.bytes_out, one.bytes_in) == (0, 0)
    assert one.longest_gap == other.longest_gap == 5


TOO_SMALL = "too small to decide between the methods"


def test_seconds_come_with_a_warning(table: compare.MethodsTable):
    assert TOO_SMALL not in table.table().as_html()
    spread = compare.Spread.of([0.003, 0.001, 0.002, 0.004])
    timed = replace(
        table,
        recompute=replace(table.recompute, seconds=spread),
        swap=replace(table.swap, seconds=spread),
    ).table()
    assert "2.50 ms (1.75 to 3.25 ms in the middle half of 4 runs)" in timed.as_markdown()
    assert TOO_SMALL in timed.as_html()
    assert TOO_SMALL in timed.as_markdown()


def test_table_escapes_what_it_is_given():
    document = recorded("figure-5").document
    hostile = Trace(
        {**document, "model": document["model"] | {"name": "<script>alert(1)</script> | x"}}
    )
    table = compare.compare(hostile, recorded("figure-4")).table()
    assert "<script>" not in table.as_html() + table.as_markdown()
    assert "\\| x" in table.as_markdown()


def test_repeat_takes_turns_and_counts():
    heard: list[tuple[int, int]] = []
    measured = compare.repeat(repeats=2, on_run=lambda done, of: heard.append((done, of)))
    assert heard == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert measured.recompute.seconds is not None
    assert measured.recompute.seconds.repeats == 2
    assert re.search(r"run of \d{4}-\d\d-\d\d \d\d:\d\d on", measured.note())


def test_comparing_refuses_what_cannot_be_compared():
    with pytest.raises(BadInput, match="came back by recompute, not swap"):
        compare.compare(recorded("figure-5"), recorded("figure-5"))
    with pytest.raises(BadInput, match="choose 2 to 100"):
        compare.repeat(repeats=1)


# On paper


@pytest.mark.parametrize(
    ("machine", "recompute", "swap"), [("H100, PCIe 5", 60, 10), ("A100, PCIe 4", 190, 22)]
)
def test_the_model_gives_the_known_values(machine: str, recompute: float, swap: float):
    on = cost.MACHINES[machine]
    assert cost.recompute_seconds(2048, cost.LLAMA, on) * 1e3 == pytest.approx(recompute, rel=0.15)
    assert cost.swap_seconds(2048, cost.LLAMA, on, False) * 1e3 == pytest.approx(swap, rel=0.15)
    assert cost.LLAMA.kv_bytes_per_token == 128 * 1024


def test_the_cost_chart_says_that_it_is_modelled():
    shown = cost_chart.cost_chart("H100, PCIe 5")
    assert shown.title.startswith("Modelled")
    assert "Modelled, not measured" in shown.caption
    assert "data sheet" in shown.caption
    assert "modelled" in shown.light["layout"]["yaxis"]["title"]["text"]
    with pytest.raises(BadInput, match="choose"):
        cost_chart.cost_chart("a toaster")
    with pytest.raises(BadInput, match="model 'a toaster': choose"):
        cost_chart.cost_chart("H100, PCIe 5", model="a toaster")


@pytest.mark.parametrize("machine", cost.MACHINES)
@pytest.mark.parametrize("model", cost.MODELS)
def test_every_pair_has_its_chart(machine: str, model: str):
    caption = cost_chart.cost_chart(machine, model=model).caption
    assert f"{machine}: " in caption
    assert f"{model}: its config.json" in caption
