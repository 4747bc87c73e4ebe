"""Predict first: questions hold the next step, answers come from the trace, results are kept."""

from __future__ import annotations

import copy
import csv
import io
import json
from typing import Any

import pytest

from kvlab.draw.player import Player
from kvlab.trace.narration import load_words, narrate

pytestmark = pytest.mark.browser

Document = dict[str, Any]


def cursor(page: Any) -> int:
    return int(page.locator(".k-where").get_attribute("data-event"))


def cursor_before(trace: Document, kind: str, **fields: Any) -> int:
    for at, event in enumerate(trace["events"]):
        if event["kind"] == kind and fields.items() <= event.items():
            return at
    raise AssertionError(f"no {kind} with {fields}")


def options(page: Any) -> list[str]:
    return [option.get_attribute("data-option") or "" for option in page.locator(".k-option").all()]


def choose(page: Any, value: str) -> None:
    page.locator(f'.k-option[data-option="{value}"]').click()


def verdict(page: Any) -> str:
    return str(page.locator(".k-verdict .k-question").inner_text()).strip()


def with_questions(trace: Document, *questions: Any, **lesson: Any) -> Document:
    changed = copy.deepcopy(trace)
    changed["scenario"]["lesson"] = {"questions": list(questions), "predict": "lesson"} | lesson
    return changed


def test_the_storys_questions(open_player: Any, trace_named: Any) -> None:
    """Who is paused, what becomes free, what is computed, what is sent: held and answered."""
    trace = trace_named("figure-5")
    page = open_player(trace, predict=True)
    last, asked = page.locator("[data-control=last]"), []
    expected = [
        (cursor_before(trace, "preempted"), ["A", "B"], "B"),
        (cursor_before(trace, "block_released", id="B"), ["0", "2", "3", "4"], "2"),
        (cursor_before(trace, "resumed", id="B"), ["1", "8", "9", "10"], "9"),
        (cursor_before(trace, "token_delivered", id="B", index=2), None, "x2"),
    ]
    for at, given, answer in expected:
        last.click()
        assert cursor(page) == at
        if given:
            assert options(page) == given
        last.click()
        assert cursor(page) == at, "the question holds"
        assert page.locator(".k-verdict").count() == 0
        choose(page, answer)
        assert verdict(page).startswith(f"Right: {answer}.")
        asked.append(verdict(page))
    last.click()
    assert cursor(page) == len(trace["events"])
    assert "A needs a block and too few are free, so B is paused" in asked[0]
    assert "9 fixed tokens of B go through the model" in asked[2]
    assert [answer["right"] for answer in page.evaluate("player.answers")] == [True] * 4


LATER = """
([sentences, at]) => {
  const said = [player.element.textContent];
  for (const el of player.element.querySelectorAll("*")) {
    for (const name of ["aria-label", "title", "aria-valuetext", "data-tip"]) {
      said.push(el.getAttribute(name) ?? "");
    }
  }
  const text = said.join(" ");
  return sentences.slice(at).filter((sentence) => text.includes(sentence));
}
"""


@pytest.mark.parametrize("name", ["figure-1", "figure-2", "figure-3", "figure-4", "figure-5"])
@pytest.mark.parametrize("predict", [True, False])
def test_what_is_not_reached_is_not_in_the_page(
    open_player: Any, trace_named: Any, name: str, predict: bool
) -> None:
    """Neither a later sentence, nor a later step, output, phase or number of steps."""
    trace = trace_named(name)
    page = open_player(trace, predict=predict)
    sentences = [narrate(event, load_words()) for event in trace["events"]]
    for at in range(0, len(trace["events"]), 3):
        page.evaluate("(at) => player.goto(at)", at)
        past = set(sentences[: max(at, 1)])
        assert set(page.evaluate(LATER, [sentences, at])) <= past
        ended = sum(step["end"] <= at for step in trace["steps"])
        begun = sum(step["first"] < at for step in trace["steps"])
        assert page.locator(".k-step").count() == begun
        assert page.locator(".k-freecell").count() == ended
        sent = [e for e in trace["events"][:at] if e["kind"] == "token_delivered"]
        assert page.locator(".k-output").count() <= len(sent)
        assert f"--steps: {max(8, begun)};" in page.locator(".k-grid").get_attribute("style")
        assert str(len(trace["events"])) not in page.locator(".k-transport").inner_text()
        marks = page.locator(".k-mark").count()
        assert marks <= sum(mark_of(event) for event in trace["events"][:at]) + 4 * predict
    page.evaluate("(at) => player.goto(at)", len(trace["events"]))
    if not predict:
        page.evaluate("player.goto(3)")
        assert page.locator(".k-step").count() == len(trace["steps"]), (
            "once seen it may be looked up"
        )


def mark_of(event: Document) -> bool:
    marked = {"block_allocated", "preempted", "paused", "resumed", "finished"}
    return event["kind"] in marked | {"swap_out_started", "swap_in_started"}


def test_a_wrong_answer_is_explained_and_the_run_goes_on(
    open_player: Any, trace_named: Any
) -> None:
    trace = trace_named("figure-4")
    at = cursor_before(trace, "resumed", id="B")
    page = open_player(trace, predict=True, cursor=at)
    choose(page, "9")
    assert verdict(page).startswith("You said 9; the run says 1.")
    assert "8 positions of KV come back from the CPU pool" in verdict(page)
    page.locator("[data-act=continue]").click()
    assert cursor(page) == at + 3, "the return with its blocks and the start of the copy"
    assert page.evaluate("document.activeElement.classList.contains('kvlab-player')")
    page.keyboard.press("ArrowLeft")
    assert page.locator(".k-option").count() == 0, "it is asked once"
    assert page.evaluate("player.answers")[0]["given"] == "9"


def test_keys_answer_and_skip(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-5")
    page = open_player(trace, predict=True)
    page.locator(".kvlab-player").focus()
    page.keyboard.press("n")
    at = cursor_before(trace, "preempted")
    assert cursor(page) == at
    page.keyboard.press("n")
    assert page.evaluate("document.activeElement.dataset.option") == "A", "the question has it now"
    page.keyboard.press("2")
    assert verdict(page).startswith("Right: B.")
    assert page.evaluate("document.activeElement.dataset.act") == "continue"
    page.keyboard.press("Enter")
    assert cursor(page) == at + 1
    page.locator("[data-act=skip]").click()
    assert verdict(page) == "Skipped."
    answers = page.evaluate("player.answers")
    assert [answer["given"] for answer in answers] == ["B", None]
    assert answers[1]["right"] is None


def test_playing_stops_at_a_question(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-5")
    at = cursor_before(trace, "preempted")
    page = open_player(trace, predict=True, cursor=at - 2)
    page.locator("select").select_option("4")
    page.locator("[data-control=play]").click()
    page.wait_for_selector(".k-option")
    assert cursor(page) == at
    assert page.locator("[data-control=play]").get_attribute("aria-label") == "Play"


def test_a_host_is_not_held(open_player: Any, trace_named: Any) -> None:
    page = open_player(trace_named("figure-5"), predict=True)
    page.evaluate("player.goto(60)")
    assert cursor(page) == 60


def test_off_and_on(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-5")
    page = open_player(trace)
    page.locator("[data-act=more]").click()
    button = page.locator("[data-act=predict]")
    assert button.get_attribute("aria-checked") == "false"
    page.locator("[data-control=last]").click()
    assert cursor(page) == len(trace["events"])
    button.click()
    page.locator("[data-control=first]").click()
    page.locator("[data-control=last]").click()
    assert cursor(page) == cursor_before(trace, "preempted")
    assert page.locator("[data-mark=asked]").count() == 1, "of the others nothing is told yet"


def test_a_pause_that_frees_nothing(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-2")
    at = cursor_before(trace, "paused")
    page = open_player(trace, predict=True, cursor=at)
    choose(page, "B")
    assert "B is skipped from now on" in page.locator(".k-question").first.inner_text()
    choose(page, "0")
    assert verdict(page).startswith("Right: 0.")
    assert "releases nothing" in verdict(page)


def test_a_teachers_own_questions(open_player: Any, trace_named: Any) -> None:
    trace = with_questions(
        trace_named("figure-5"),
        {
            "at": {"step": 3, "kind": "block_allocated", "id": "A"},
            "ask": "Which block does A get?",
            "options": ["P2", "P3"],
            "answer": "P2",
            "explain": "The front of the free list.",
        },
        {
            "at": {"step": 6, "kind": "block_released"},
            "ask": "How many are free?",
            "options": [1, 3],
            "answer": {"field": "free"},
        },
        {"at": {"step": 7, "kind": "block_allocated"}, "ask": "blocks_allocated"},
        {
            "at": {"step": 8, "kind": "scheduled"},
            "ask": "What do you expect?",
            "options": ["a", "b"],
        },
    )
    page = open_player(trace, predict=True)
    last = page.locator("[data-control=last]")
    last.click()
    assert cursor(page) == cursor_before(trace, "block_allocated", step=3)
    choose(page, "P2")
    assert verdict(page) == "Right: P2. The front of the free list."
    last.click()
    assert options(page) == ["1", "3", "4"]
    choose(page, "4")
    last.click()
    assert "How many?" in page.locator(".k-question").inner_text()
    choose(page, "3")
    last.click()
    choose(page, "a")
    assert verdict(page) == "Noted: a."
    last.click()
    assert cursor(page) == len(trace["events"])
    assert [answer["right"] for answer in page.evaluate("player.answers")] == [
        True, True, True, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "entry",
    [
        None,
        "text",
        {},
        {"at": {"step": 3}},
        {"at": None, "ask": "free_after"},
        {"at": {}, "ask": "free_after"},
        {"at": {"step": 99}, "ask": "free_after"},
        {"at": {"step": 3}, "ask": "No options?"},
        {"at": {"step": 3}, "ask": "Many?", "options": list(range(20))},
        {"at": {"step": 1}, "ask": "tokens_sent"},
        {"at": {"step": 8, "kind": "finished"}, "ask": "who_is_paused"},
    ],
)
def test_an_entry_that_does_not_fit_is_passed_over(
    open_player: Any, trace_named: Any, entry: Any
) -> None:
    trace = with_questions(trace_named("figure-5"), entry)
    page = open_player(trace, predict=True)
    page.locator("[data-control=last]").click()
    assert cursor(page) == len(trace["events"])


def test_results_are_listed_and_saved(open_player: Any, trace_named: Any) -> None:
    trace = with_questions(
        trace_named("figure-5"),
        {"at": {"step": 3}, "ask": "=1+1, “really”?", "options": ["a,b", "c"], "answer": "c"},
        {"at": {"step": 4}, "ask": "free_after"},
    )
    page = open_player(trace, predict=True, page_options={"accept_downloads": True})
    page.locator("[data-control=last]").click()
    choose(page, "a,b")
    page.locator("[data-control=last]").click()
    page.locator("[data-act=skip]").click()
    page.locator("[data-act=more]").click()
    page.locator("[data-act=results]").click()
    rows = page.locator("[data-sheet=results] tbody tr")
    assert rows.count() == 2
    assert rows.first.locator("td").all_inner_texts()[2:] == ["a,b", "c", "no"]
    assert "0 of 1 right" in page.locator("[data-sheet=results]").inner_text()
    with page.expect_download() as waiting:
        page.locator("[data-act=saveCsv]").click()
    text = waiting.value.path().read_text("utf-8")
    saved = list(csv.DictReader(io.StringIO(text)))
    assert [row["given"] for row in saved] == ["a,b", ""]
    assert saved[0]["text"] == "'=1+1, “really”?", "a spreadsheet must not calculate it"
    with page.expect_download() as waiting:
        page.locator("[data-act=saveJson]").click()
    assert waiting.value.suggested_filename == "figure-5-answers.json"
    document = json.loads(waiting.value.path().read_text("utf-8"))
    assert [answer["right"] for answer in document["answers"]] == [False, None]
    page.locator("[data-act=forget]").click()
    assert page.evaluate("player.answers") == []


def test_hostile_questions_stay_text(open_player: Any, trace_named: Any) -> None:
    markup = '<img src=x onerror="window.struck = true">'
    trace = with_questions(
        trace_named("figure-5"),
        {
            "at": {"step": 3},
            "ask": markup,
            "options": [markup, "b"],
            "answer": "b",
            "explain": markup,
        },
        notes={3: markup},
    )
    page = open_player(trace, predict=True, presenter=True)
    page.locator("[data-control=last]").click()
    page.locator(".k-option").first.click()
    assert markup in verdict(page)
    page.locator("[data-act=continue]").click()
    assert markup in page.locator(".k-teaching").inner_text()
    assert page.locator("#root img").count() == 0
    assert page.evaluate("window.struck") is None


def test_the_screen_reader_hears_question_and_verdict(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-5")
    page = open_player(trace, predict=True, cursor=cursor_before(trace, "preempted"))
    live = page.locator("[aria-live=polite]")
    assert "Predict: A needs a block and no block is free" in live.inner_text()
    choose(page, "A")
    assert live.inner_text().startswith("You said A; the run says B.")


def test_notes_are_the_teachers(open_player: Any, trace_named: Any) -> None:
    trace = with_questions(
        trace_named("figure-5"), notes=[{"at": {"step": 3}, "text": "Wait here."}]
    )
    page = open_player(trace, cursor=30)
    assert page.locator(".k-teaching").count() == 0
    page.locator("[data-act=more]").click()
    page.locator("[data-act=presenter]").click()
    assert "Wait here." in page.locator(".k-teaching").inner_text()
    page.evaluate("player.goto(1)")
    assert "no notes" in page.locator(".k-teaching").inner_text()


def test_terms_explain_themselves(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-5")
    page = open_player(trace, cursor=cursor_before(trace, "preempted") + 1)
    found = page.locator(".k-say .k-term")
    assert {"history", "kv", "block"} <= {term.get_attribute("data-term") for term in found.all()}
    found.first.focus()
    tip = page.locator(".k-tip")
    name = found.first.get_attribute("data-term")
    meaning = load_words()["terms"][name]["text"]
    assert meaning in tip.inner_text()
    described = found.first.get_attribute("aria-describedby")
    assert page.locator(f"#{described}").text_content() == meaning
    page.keyboard.press("Escape")
    assert tip.count() == 0
    page.locator(".kvlab-player").focus()
    found.last.hover()
    page.wait_for_selector(".k-tip")
    for width in (360, 1240):
        page.set_viewport_size({"width": width, "height": 860})
        found.last.focus()
        box = tip.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        page.locator(".kvlab-player").focus()
    page.locator("[data-act=more]").click()
    page.locator("[data-act=terms]").click()
    assert page.locator(".k-glossary dt").count() == len(load_words()["terms"])


def test_answers_are_bounded_in_python(trace_named: Any) -> None:
    player = Player(trace=trace_named("figure-1"), predict=True)
    player.answers = [
        {"question": "1:x", "cursor": 3, "right": True, "given": "a" * 10_000, "more": [1]},
        {"right": "yes", "cursor": "3", "given": None},
    ] * 2000
    assert len(player.answers) == 1000
    assert set(player.answers[0]) == {
        "question", "ask", "text", "given", "answer", "cursor", "step", "right",
    }  # fmt: skip
    assert len(player.answers[0]["given"]) == 2000
    assert player.answers[1] == {
        "question": None, "ask": None, "text": None, "given": None, "answer": None,
        "cursor": 0, "step": 0, "right": None,
    }  # fmt: skip
    nonsense: list[Any] = ["not an answer"]
    player.answers = nonsense
    assert player.answers == []
