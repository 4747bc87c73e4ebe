"""The dashboard without a browser: what its pages show, what they refuse, where their links lead."""

from __future__ import annotations

import json
import logging
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from kvlab.course.chapters import CHAPTERS, METHODS
from kvlab.course.question import in_words
from kvlab.draw.controls import bounded_number
from kvlab.draw.guard import guarded
from kvlab.errors import BadInput
from kvlab.pages import views
from kvlab.pages.cost import Cost
from kvlab.pages.dashboard import PAGES, Dashboard
from kvlab.pages.delay import Delay
from kvlab.pages.lab import Lab
from kvlab.pages.lab_scenarios import PRESETS, checked, pack, spec, unpack
from kvlab.pages.place import read_kept, read_query
from kvlab.pages.scenario_form import LARGEST_FILE, LARGEST_SCENARIO
from kvlab.pages.story import Story
from kvlab.pages.visit import LivePanel, Visit
from kvlab.runs.limits import MOST_REQUESTS
from kvlab.runs.run import run_lesson
from kvlab.runs.scenario import Scenario, load_scenario, scenario_from
from kvlab.trace.facts import method_of
from kvlab.trace.narration import load_words
from kvlab.trace.speech import ENGLISH

ROOT = Path(views.__file__).resolve().parents[2]
REFUSED = "That did not work"


@pytest.fixture
def board() -> Dashboard:
    return Dashboard()


@pytest.fixture
def story(board: Dashboard) -> Story:
    assert isinstance(board.page, Story)
    return board.page


@pytest.fixture
def lab(board: Dashboard) -> Lab:
    board.page_chosen("lab")
    assert isinstance(board.page, Lab)
    return board.page


def wait(panel: LivePanel) -> None:
    until(lambda: not panel.busy)


# Story


def test_opens_on_a_recorded_run(story: Story):
    assert story.shown.name == "figure-1"
    assert "Recorded run on cpu, model story" in story.panel.status.value
    assert story.player.start < (story.player.stop or 0)
    assert story.player.guide["question"].startswith("No new request arrives")
    assert len(story.player.guide["watch"]) == 3
    assert story.player.guide["next"] == "Next: 2 Skip or release"
    assert story.card.value == ""


def test_the_first_paint_needs_no_torch():
    code = (
        "import sys; import kvlab.pages.dashboard as d; b = d.Dashboard();"
        "[b.page_chosen(one.name) for one in d.PAGES]; print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def reach_the_end(story: Story) -> None:
    story.player.cursor = story.player.stop or len(story.shown.events)


def test_the_switch_runs_the_engine(board: Dashboard, story: Story):
    board.chapter_chosen("3")
    story.methods.index = METHODS.index("swap")
    assert story.run_button.disabled
    wait(story.panel)
    assert story.card.value == ""
    assert re.search(r"Run of \d{4}-\d\d-\d\d \d\d:\d\d on", story.panel.status.value)
    assert any(event["kind"] == "swap_in_finished" for event in story.player.trace["events"])
    reach_the_end(story)
    assert "The CPU pool keeps 8 positions" in story.memory.caption
    assert not story.run_button.disabled
    assert "run=now&method=swap" in board.place.query
    story.back_pressed(None)
    assert "Recorded run" in story.panel.status.value
    assert story.methods.index == METHODS.index("recompute")


@pytest.mark.parametrize(
    ("chapter", "method", "says"),
    [
        ("1", "recompute", "Needs that no free block could meet: 0, before the change 1."),
        ("2", "recompute", "Steps of A’s longest gap: 4, before the change 2."),
        (
            "3",
            "swap",
            "Tokens computed again: 0, as before the change. Blocks copied out: 4, before the change 2.",
        ),
        (
            "4",
            "recompute",
            "Tokens computed again: 8, as before the change. Bytes copied out: 0, as before the change.",
        ),
        (
            "4",
            "swap",
            "Tokens computed again: 8, before the change 0. "
            "Bytes copied out: 0, before the change 20,480.",
        ),
        (
            "5",
            "recompute",
            "Steps of waiting in B’s longest gap: 2, before the change 4. "
            "Steps of recovery in it: 1, as before the change.",
        ),
    ],
)
def test_a_change_tells_the_numbers_of_its_own_two_runs(
    board: Dashboard, story: Story, chapter: str, method: str, says: str
):
    board.chapter_chosen(chapter)
    if method != METHODS[story.methods.index]:
        story.methods.index = METHODS.index(method)
        wait(story.panel)
    story.change_pressed(None)
    wait(story.panel)
    assert story.card.value == ""
    assert story.player.guide["note"].endswith(says)
    assert story.change_button.layout.display == "none"
    assert story.changed


def test_a_change_opened_by_a_link_runs_its_other_run_too(board: Dashboard, story: Story):
    go(board, "?chapter=3&run=now&method=swap&changed=yes")
    wait(story.panel)
    assert "Blocks copied out: 4, before the change 2." in story.player.guide["note"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda one: one.scenario)
def test_every_chapter_runs_with_both_methods(chapter, method: str):
    trace = run_lesson(chapter.scenario, chapter.settings_for(method)).trace
    assert method_of(trace) == method
    assert run_lesson(chapter.scenario, chapter.settings_for(method, changed=True)).trace.steps
    question = chapter.to_predict(trace)
    assert question.answer in question.options
    assert in_words(question.look, trace, load_words())


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda one: one.scenario)
def test_charts_come_with_the_chapters_end_and_go_no_further(
    board: Dashboard, story: Story, chapter
):
    board.chapter_chosen(str(chapter.number))
    assert story.charts.children == ()
    assert story.compared.layout.display == "none"
    reach_the_end(story)
    assert len(story.charts.children) == 2
    assert board.place.kept["reached"] == [chapter.scenario]
    last = story.shown.events[(story.player.stop or 1) - 1]["step"]
    drawn = {x for bar in story.memory.light["data"] for x in bar["x"]}
    assert max(drawn) <= last
    whole = story.shown.steps[-1]["step"]
    assert (max(drawn) == whole) == (chapter.scenario == "figure-5")
    if chapter.number == 1:  # nothing of the pause that comes after its last event
        assert max(drawn) == 2
        assert "waiting" not in story.gaps.caption


def test_a_figure_in_the_middle_of_a_run_says_so(board: Dashboard, story: Story):
    assert story.player.guide["opens"] == ""
    board.chapter_chosen("2")
    assert "after step 2 of 9" in story.player.guide["opens"]
    assert "0 of 4 blocks are free" in story.player.guide["opens"]


def test_next_opens_the_next_chapter(board: Dashboard, story: Story):
    for number in range(2, 6):
        story.player_said(None, {"type": "next"}, [])
        assert story.chapter.number == number
        assert read_query(board.place.query)["chapter"] == str(number)
    assert "next" not in story.player.guide
    story.player_said(None, {"type": "next"}, [])
    assert story.chapter.number == 5


@pytest.mark.parametrize("number", ["0", "-1", "99", "", "1.5", "<script>", "None"])
def test_chapters_of_others_are_refused(board: Dashboard, story: Story, number: str):
    board.chapter_chosen(number)
    assert REFUSED in board.card.value
    assert "<script>" not in board.card.value
    assert story.chapter is CHAPTERS[0]


# Live runs


def panel_of(page: Story) -> LivePanel:
    return LivePanel(Visit(), page, (page.run_button,))


def endless() -> Scenario:
    """A run of many thousand steps."""
    request = "{id: A, prompt: [1, 2], max_tokens: 20000}"
    settings = ["model=null", f"requests=[{request}]", "engine.num_blocks=10000"]
    return load_scenario("storm", settings)


def test_a_press_while_something_runs_is_not_heard(story: Story):
    panel = panel_of(story)
    heard: list[Any] = []
    assert panel.run([endless()], heard.append)
    assert not panel.run([load_scenario("figure-1")], heard.append)
    panel.stop()
    assert heard == []


def test_a_failing_run_becomes_a_card(story: Story, caplog: pytest.LogCaptureFixture):
    def broken(_: object) -> None:
        raise RuntimeError("secret detail")

    panel = panel_of(story)
    panel.rest("On show")
    with caplog.at_level(logging.ERROR):
        panel.run([load_scenario("figure-1")], broken)
        wait(panel)
        until(lambda: story.card.value)
    assert "our fault (RuntimeError)" in story.card.value
    assert "secret detail" not in story.card.value
    assert "secret detail" in caplog.text
    assert panel.status.value == "On show"
    assert not story.run_button.disabled


def test_stop_is_answered_at_once_and_drops_the_run(story: Story):
    panel = panel_of(story)
    heard: list[Any] = []
    panel.rest("On show")
    panel.run([endless()], heard.append)
    until(lambda: "step" in panel.status.value)
    live = panel.live
    assert live is not None
    panel.stop_pressed(None)
    assert "Stopped." in panel.status.value
    assert not panel.busy
    assert not story.run_button.disabled
    assert live.wait(5)
    assert heard == []
    assert panel.run([load_scenario("figure-1")], heard.append)
    wait(panel)
    assert len(heard) == 1


def test_the_guard_tells_bad_input_in_its_own_words():
    class Page:
        said = ""
        speech = ENGLISH

        def fail(self, message: str) -> None:
            self.said = message

        @guarded
        def callback(self, error: Exception) -> None:
            raise error

    page = Page()
    page.callback(BadInput("block_size: must be at least 1."))
    assert page.said == "block_size: must be at least 1."


# The Lab


def test_every_preset_shows_its_recorded_run(lab: Lab):
    for name in PRESETS:
        lab.form._hear(None, {"type": "preset", "name": name}, [])
        assert lab.shown.name == name
        assert lab.form.given["preset"] == name
        assert lab.form.given["scenario"]["name"] == name
        assert lab.card.value == ""


def test_an_edited_preset_runs_as_ones_own(board: Dashboard, lab: Lab):
    raw = json.loads(json.dumps(lab.raw))
    raw["engine"]["num_blocks"] = 20
    lab.form._hear(None, {"type": "edit", "scenario": raw}, [])
    assert "another scenario than the form" in lab.note.value
    lab.form._hear(None, {"type": "run", "scenario": raw}, [])
    assert lab.form.busy
    wait(lab.panel)
    assert lab.card.value == ""
    assert lab.shown.name == "mine"
    assert lab.shown.summary["preemptions"] == 0
    assert lab.shown.document["scenario"]["lesson"] == {}
    assert lab.note.value == ""
    query = read_query(board.place.query)
    assert unpack(query["s"])["engine"]["num_blocks"] == 20
    assert query["run"] == "now"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": "/etc"}, "this page runs story"),
        ({"model": "../../somewhere"}, "this page runs story"),
        ({"model": ["story"]}, "this page runs story"),
        ({"engine": {"num_blocks": 60_000, "block_size": 4}}, "slots in the GPU pool"),
        ({"engine": {"num_blocks": 4, "block_size": 4, "host_blocks": 99_999}}, "the CPU pool"),
        (
            {"engine": {"num_blocks": 0, "block_size": 4}},
            "Blocks in the GPU pool: must be a whole number from 1 to 65,536, not “0”.",
        ),
        ({"engine": {"block_size": 4}}, "Blocks in the GPU pool: give a whole number from 1"),
        (
            {"requests": [{"id": "A", "prompt": "a", "max_tokens": "?"}]},
            "Request A, outputs: must be a whole number from 1 to 20,000, not “?”.",
        ),
        ({"requests": [{"id": "A", "prompt": "", "max_tokens": 1}]}, "Request A, prompt: must not"),
        ({"requests": []}, "Requests: add at least one."),
        (
            {"requests": [{"id": "A", "prompt": "a", "max_tokens": 1}] * 2},
            "“A” is used twice; give each request its own.",
        ),
        ({"requests": [{"id": "A", "prompt": "a" * 900, "max_tokens": 19_999}]}, "outputs of all"),
        (
            {"requests": [{"id": f"R{n}", "prompt": "a", "max_tokens": 1} for n in range(65)]},
            f"65 requests are more than the {MOST_REQUESTS}",
        ),
    ],
)
def test_a_refused_run_says_why_in_the_forms_words_and_changes_nothing(
    lab: Lab, change: dict[str, Any], says: str
):
    before, given = lab.shown, dict(lab.form.given)
    lab.form._hear(None, {"type": "run", "scenario": {**lab.raw, **change}}, [])
    assert says in lab.card.value
    assert REFUSED in lab.card.value
    assert not lab.panel.busy
    assert lab.shown is before
    assert lab.form.given == given  # nothing is put over what the person typed


def test_what_is_wrong_is_marked_at_its_field(lab: Lab):
    raw = json.loads(json.dumps(lab.raw))
    del raw["engine"]["num_blocks"]
    raw["requests"][1]["max_tokens"] = 0
    lab.form._hear(None, {"type": "run", "scenario": raw}, [])
    assert set(lab.form.faults) == {"num_blocks", "requests.1.max_tokens"}
    assert "required property" not in lab.card.value
    raw["engine"]["num_blocks"], raw["requests"][1]["max_tokens"] = 7, 6
    lab.form._hear(None, {"type": "run", "scenario": raw}, [])
    assert lab.form.faults == {}
    wait(lab.panel)
    assert lab.card.value == ""


@pytest.mark.parametrize(
    "message",
    [
        None,
        7,
        "run",
        {"type": "run"},
        {"type": "run", "scenario": [1]},
        {"type": "run", "scenario": {"name": "x" * LARGEST_SCENARIO}},
        {"type": "edit", "scenario": "x"},
        {"type": "preset", "name": "../../etc/passwd"},
        {"type": "preset", "name": {"a": 1}},
        {"type": "file", "name": 1, "text": 2},
        {"type": "file", "name": "a.yaml", "text": "x" * (LARGEST_FILE + 1)},
        {"type": "file", "name": "a.yaml", "text": "", "size": LARGEST_FILE + 1},
        {"type": "file", "name": "a.yaml", "text": "!!python/object/apply:os.getcwd []"},
        {"type": "file", "name": "a.json", "text": '{"format": "kvlab-trace"}'},
        {"type": "want", "what": ["x"]},
        {"type": "unknown"},
    ],
)
def test_no_message_to_the_form_raises_or_runs(lab: Lab, message: Any):
    lab.form._hear(None, message, [])
    assert not lab.panel.busy
    assert lab.shown.name in PRESETS


def test_files_of_ones_own_are_taken(lab: Lab):
    text = "name: brought\nmodel: null\nengine: {num_blocks: 4, block_size: 2}\n"
    text += "requests: [{id: A, prompt: [1, 2, 3], max_tokens: 3}]\n"
    lab.form._hear(None, {"type": "file", "name": "brought.yaml", "text": text}, [])
    wait(lab.panel)
    assert lab.card.value == ""
    assert lab.shown.name == "brought"
    name, trace = lab.file_wanted("trace")
    assert name == "brought-trace.json"
    lab.take_preset("storm")
    lab.form._hear(None, {"type": "file", "name": name, "text": trace}, [])
    assert lab.card.value == ""
    assert lab.shown.name == "brought"
    assert "a trace that you opened" in lab.status.value
    # A trace is JSON, whatever its file is called: YAML of this size takes a quarter of a minute.
    lab.form._hear(None, {"type": "file", "name": "x.yaml", "text": 'a: "kvlab-trace"'}, [])
    assert "x.yaml: not valid YAML or JSON (Expecting value" in lab.card.value
    _, scenario = lab.file_wanted("scenario")
    assert scenario_from(json.loads(scenario), Path(), "saved").name == "brought"


def test_a_scenario_that_is_too_long_for_a_link_says_so(board: Dashboard, lab: Lab):
    draw = random.Random(1)
    prompts = [[draw.randrange(1000) for _ in range(900)] for _ in range(10)]
    requests = [{"id": f"R{at}", "prompt": p, "max_tokens": 1} for at, p in enumerate(prompts)]
    raw = {**lab.raw, "requests": requests}
    assert pack(raw) == ""
    lab.form._hear(None, {"type": "edit", "scenario": raw}, [])
    assert "too long for a link" in lab.note.value
    assert "s=" not in board.place.query


@pytest.mark.parametrize("text", ["", "AAAA", "eNo", "!!!", "x" * 100, "ü"])
def test_damaged_links_are_refused(text: str):
    with pytest.raises(BadInput):
        unpack(text)


def test_a_link_cannot_blow_up():
    bomb = {"name": "x" * 3_000_000}
    assert len(pack(bomb)) < 6_000
    with pytest.raises(BadInput, match="damaged"):
        unpack(pack(bomb))


def test_the_form_offers_what_the_engine_has():
    offered = spec(ENGLISH)
    for name in ("methods", "victims", "allocations", "admissions", "orders"):
        for value, label in offered[name]:
            assert label
            key = {"methods": "method", "victims": "victim", "allocations": "allocation"}.get(
                name, {"admissions": "admission", "orders": "free_order"}.get(name, "")
            )
            assert load_scenario("figure-5", [f"engine.{key}={value}"]).engine
    assert [name for name, _, _ in offered["presets"]] == list(PRESETS)
    assert checked(load_scenario("figure-5").raw).name == "figure-5"


# Compare, Cost, Delay


def test_recorded_runs_are_compared_at_once_as_a_race(board: Dashboard):
    board.page_chosen("compare")
    page: Any = board.page
    assert not page.panel.busy
    sides = page.view.race["sides"]
    assert [side["steps"][-1]["computed"] for side in sides] == [30, 22]
    assert [side["steps"][-1]["moved"] for side in sides] == [0, 40_960]
    page.views.index = 1
    rows = {row[0]: row[1:] for row in page.view.differences.rows}
    assert rows["Tokens computed again"][:2] == ("8 tokens", "0 tokens")
    assert "view=steps" in board.place.query
    page.sides[1].index = 3
    wait(page.panel)
    rows = {row[0]: row[1:] for row in page.view.differences.rows}
    assert rows["Preemptions"][:2] == ("1 preemption", "no preemption")
    assert "Enough memory: run of" in page.panel.status.value
    page.sides[0].index = 3
    assert "the same way" in page.card.value


@pytest.mark.parametrize("name", ["compare", "delay"])
def test_what_the_lab_has_is_offered_once_there_is_something(board: Dashboard, name: str):
    board.page_chosen(name)
    page: Any = board.page
    assert page.lab_button.layout.display == "none"
    board.page_chosen("lab")
    board.page_chosen(name)
    assert page.lab_button.layout.display is None
    page.lab_button.click()
    wait(page.panel)
    assert page.card.value == ""


def test_a_slider_makes_the_numbers_ones_own(board: Dashboard):
    board.page_chosen("cost")
    page = board.page
    assert isinstance(page, Cost)
    assert "Llama 3 8B" in page.symbols.value
    before = page.chart.caption
    link = page.machine_sliders.inputs["link"]
    assert link.value == pytest.approx(63)
    link.value = 63.05  # as a browser rounds it
    assert page.query["machine"] == "H100, PCIe 5"
    link.value = 450.0
    assert page.query["machine"] == "Own numbers"
    assert page.query["link"] == "450"
    assert page.query["tflops"] == "989"
    assert page.chart.caption != before
    page.machine_sliders.inputs["tflops"].value = float("nan")
    assert REFUSED in page.card.value
    page.machines.index = 0
    assert page.card.value == ""
    assert page.chart.caption == before


def test_the_crossover_is_marked_where_both_cost_the_same(board: Dashboard):
    """16 · T(96) of the formulas: reading the weights once, against 6 blocks · 32 layers · 2 copies."""
    board.page_chosen("cost")
    page: Any = board.page
    texts = [one["text"] for one in page.chart.light["layout"]["annotations"]]
    assert texts == ["96 tokens", "32,016 tokens"]
    machine, model = page.machine, page.model
    recompute = model.parameters * model.bytes / machine.memory
    swap = 2 * 96 * model.kv_bytes_per_token / machine.in_link
    swap += 2 * 6 * model.layers * machine.copy_seconds
    assert swap == pytest.approx(recompute, rel=0.1)


@pytest.mark.parametrize("value", [None, "1", True, [], float("inf"), -0.1, 11])
def test_numbers_of_others_are_refused(value: Any):
    with pytest.raises(BadInput, match=r"size = .* must be a number from 0 to 10"):
        bounded_number(value, "size", 0, 10)


def test_goodput_follows_its_definition(board: Dashboard):
    board.page_chosen("delay")
    page = board.page
    assert isinstance(page, Delay)
    assert "10 outputs in time / 8 steps = 1.25" in page.table.value
    page.limits.index = 1  # one step: x2 of B comes after five
    assert "9 outputs in time / 8 steps = 1.12" in page.table.value
    assert "5: 4 waiting, 1 recovery" in page.table.value


# Places


@pytest.mark.parametrize(
    "query",
    [
        "?chapter=4",
        "?chapter=4&lang=de",
        "?page=lab&scenario=storm",
        "?page=compare&scenario=figure-5&left=swap&right=recompute",
        "?page=compare&scenario=figure-5&left=swap&right=recompute&view=steps&lang=de",
        "?page=cost&machine=L4%2C+PCIe+4&model=Own+numbers&parameters=7&layers=12&heads=8&kv_heads=8"
        "&head_dim=64&bytes=2",
        "?page=delay&scenario=storm&limit=3&axis=milliseconds",
    ],
)
def test_a_link_leads_back(board: Dashboard, query: str):
    board.place._hear(None, {"type": "go", "query": query, "kept": {}}, [])
    assert board.card.value == ""
    assert read_query(board.place.query) == read_query(query)
    assert board.place.answered == 1


@pytest.mark.parametrize(
    "message",
    [
        None,
        {"type": "go", "query": 7, "kept": 7},
        {"type": "go", "query": "page=" + "x" * 99_999},
        {"type": "go", "query": "page=nowhere"},
        {"type": "go", "query": "page=story&scenario=../x&cursor=999999999"},
        {"type": "go", "query": "chapter=<b>&lang=../de", "languages": [1, None, "x" * 999]},
        {"type": "go", "query": "chapter=2", "languages": "de"},
        {"type": "go", "query": "page=story&cursor=-1", "kept": {"reached": [1], "answers": "x"}},
        {"type": "go", "query": "", "kept": {"reached": "figure-1", "answers": {"figure-1": 5}}},
        {"type": "go", "query": "page=lab&s=zzzz"},
        {"type": "go", "query": "page=cost&tflops=nan&machine=Own+numbers"},
        {"type": "go", "query": "page=delay&limit=-3&axis=x"},
        {"type": "go", "query": "page=compare&left=x&right=y&step=99999999999"},
        {"type": "page", "page": {"a": "b"}},
        {"type": "page"},
        {"type": "chapter"},
        {"type": "chapter", "chapter": [4]},
    ],
)
def test_no_place_raises(board: Dashboard, message: Any):
    board.place._hear(None, message, [])
    assert board.page.name in {one.name for one in PAGES}
    panel = getattr(board.page, "panel", None)
    assert panel is None or not panel.busy


def go(board: Dashboard, query: str, *languages: str, kept: Any = None) -> None:
    message = {"type": "go", "query": query, "kept": kept, "languages": list(languages)}
    board.place._hear(None, message, [])


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("?chapter=7", "no chapter “7”: choose 1 to 5. This is chapter 1."),
        ("?scenario=figure-9", "no scenario “figure-9” here"),
        ("?page=lab&scenario=nothing", "no scenario “nothing” here"),
        ("?page=delay&scenario=nothing", "What is shown is figure-5."),
        ("?page=compare&scenario=storm2", "What is shown is figure-5."),
        ("?page=compare&left=magic", "no way “magic” to run it"),
        ("?page=cost&machine=a+toaster", "no hardware “a toaster” here"),
        ("?page=cost&model=GPT", "no model “GPT” here"),
    ],
)
def test_a_name_that_an_address_has_wrong_is_told(board: Dashboard, query: str, says: str):
    go(board, query)
    assert says in board.page.card.value
    board.page_chosen("story")
    go(board, "?chapter=2")
    assert board.page.card.value == ""


def test_what_the_tab_kept_comes_back(board: Dashboard, story: Story):
    answer = {"question": "3:x", "cursor": 3, "step": 1, "ask": "x", "text": "?", "given": "A"}
    kept = {"reached": ["figure-2"], "answers": {"figure-2": [answer, "no answer"]}}
    go(board, "?chapter=2&cursor=30", kept=kept)
    assert len(story.charts.children) == 2
    assert story.player.cursor == 30
    assert [one["given"] for one in story.player.answers] == ["A"]
    board.chapter_chosen("3")
    assert story.player.answers == []
    assert story.charts.children == ()


@pytest.mark.parametrize("kept", [None, [], {"a": {1, 2}}, {"a": "x" * 600_000}])
def test_what_a_tab_may_keep_is_bounded(kept: Any):
    assert read_kept(kept) == {}


# Texts


def test_texts_are_escaped():
    hostile = "<img src=x onerror=alert(1)>"
    for text in (views.card(hostile), views.note(hostile), views.busy(hostile)):
        assert "<img" not in text
    assert "<img" not in views.termed(f"{hostile} block {hostile}")


def test_terms_open_cards_that_are_there():
    text = views.termed("A block is free; the block table of a request.")
    assert text.count("popovertarget") == 3
    for part in text.split('popovertarget="')[1:]:
        assert f'id="{part.split(chr(34))[0]}"' in views.glossary()
