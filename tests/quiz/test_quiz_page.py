"""The quiz as a person meets it: answered by keyboard, told, saved; and as an LMS meets it."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

from kvlab.course.quiz.bank import form
from kvlab.course.quiz.results import read_answers
from kvlab.course.record import recorded
from kvlab.export.page import PageOptions, page
from kvlab.export.quiz import quiz_page, title_of_form
from kvlab.export.scorm import package
from kvlab.trace.speech import Speech

if TYPE_CHECKING:
    from playwright.sync_api import Page

browser = pytest.mark.browser

LMS = """
// A SCORM 1.2 run-time that knows the order of calls and the values that may be set (RTE 3.3, 3.4).
window.calls = [];
window.faults = [];
let state = "new";
const allowed = {
  "cmi.core.lesson_status": /^(passed|completed|failed|incomplete|browsed)$/,
  "cmi.core.score.raw": /^([0-9]|[1-9][0-9]|100)$/,
  "cmi.core.score.min": /^0$/,
  "cmi.core.score.max": /^100$/,
};
const call = (name, wanted, next, ...given) => {
  window.calls.push([name, ...given]);
  if (state !== wanted) window.faults.push(`${name} while ${state}`);
  if (given.some((one) => typeof one !== "string")) window.faults.push(`${name}: no string`);
  state = next;
  return "true";
};
window.API = {
  LMSInitialize: (empty) => call("LMSInitialize", "new", "running", empty),
  LMSSetValue(name, value) {
    if (!allowed[name]?.test(value)) window.faults.push(`${name} = ${value}`);
    return call("LMSSetValue", "running", "running", name, value);
  },
  LMSCommit: (empty) => call("LMSCommit", "running", "running", empty),
  LMSFinish: (empty) => call("LMSFinish", "running", "over", empty),
};
"""


def shown(new_page: Any, tmp_path: Path, html: str, **more: Any) -> Page:
    file = tmp_path / "page.html"
    file.write_text(html, "utf-8")
    page: Page = new_page(**more)
    page.goto(file.as_uri())
    return page


@browser
@pytest.mark.parametrize(
    ("language", "scheme", "width"), [("en", "light", 1280), ("de", "dark", 390)]
)
def test_answered_by_keyboard_told_and_saved(
    new_page: Any, trouble: Any, tmp_path: Path, language: str, scheme: str, width: int
) -> None:
    items, speech = form("B", 5), Speech(language)
    page = shown(
        new_page,
        tmp_path,
        quiz_page("B", 5, language),
        color_scheme=scheme,
        viewport={"width": width, "height": 844},
    )
    assert page.locator("html").get_attribute("lang") == language
    page.get_by_label(speech("quiz.student")).focus()
    page.keyboard.type("k7")
    for number, item in enumerate(items):
        # All but the first three are right; these get the first wrong option.
        wanted = item.right if number > 2 else next(iter(item.misconceptions))
        page.keyboard.press("Tab")
        page.keyboard.press("Space")
        for _ in range(item.options.index(wanted)):
            page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    status = page.get_by_role("status")
    assert status.inner_text() == speech("quiz.result", right=9, all=12)
    assert status.evaluate("one => one === document.activeElement")
    first = page.locator("fieldset").first.locator(".verdict").inner_text()
    assert speech.text("quiz.why")[next(iter(items[0].misconceptions.values()))] in first
    link = page.get_by_role("link", name=speech("quiz.save")).get_attribute("href") or ""
    saved = tmp_path / "answers.csv"
    saved.write_text(unquote(link.partition(",")[2]), "utf-8")
    (answers,) = read_answers(saved).values()
    assert (answers.student, answers.share) == ("k7", 9 / 12)
    assert answers.misconceptions == tuple(
        next(iter(item.misconceptions.values())) for item in items[:3]
    )
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert not trouble


@browser
def test_open_questions_are_said_once(new_page: Any, tmp_path: Path) -> None:
    speech = Speech("en")
    page = shown(new_page, tmp_path, quiz_page("A", 1, "en"))
    page.locator("input[type=radio]").first.check()
    done = page.get_by_role("button", name=speech("quiz.check"))
    done.click()
    assert page.get_by_role("status").inner_text() == speech("quiz.open", n=11)
    done.click()
    assert "of 12 right" in page.get_by_role("status").inner_text()


def calls(page: Page) -> list[list[str]]:
    found: list[list[str]] = page.evaluate("window.calls")
    return found


@browser
def test_an_lms_is_told_the_quizs_score(new_page: Any, tmp_path: Path) -> None:
    page: Page = new_page()
    page.add_init_script(LMS)
    file = tmp_path / "quiz.html"
    file.write_text(quiz_page("A", 1, "en"), "utf-8")
    page.goto(file.as_uri())
    for item in form("A", 1)[:6]:
        at = item.options.index(item.right)
        page.locator(f"[data-item={item.construct}] input").nth(at).check()
    for _ in range(2):
        page.get_by_role("button", name="I am done").click()
    assert ["LMSSetValue", "cmi.core.score.raw", "50"] in calls(page)
    assert ["LMSSetValue", "cmi.core.lesson_status", "completed"] in calls(page)
    page.evaluate("dispatchEvent(new Event('pagehide'))")
    assert calls(page)[0] == ["LMSInitialize", ""]
    assert calls(page)[-2:] == [["LMSCommit", ""], ["LMSFinish", ""]]
    assert page.evaluate("window.faults") == []


RUN_TIME = "scorm-again@3.4.3"


@browser
@pytest.mark.full
def test_a_scorm_run_time_takes_the_quiz(new_page: Any, tmp_path: Path) -> None:
    """scorm-again, an implementation of the run-time by others, from npm's registry."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm here")
    packed = subprocess.run(
        [npm, "pack", RUN_TIME, "--silent"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    if packed.returncode:
        pytest.skip(f"npm's registry does not answer: {packed.stderr[:80]}")
    with tarfile.open(tmp_path / packed.stdout.strip()) as archive:
        found = archive.extractfile("package/dist/scorm12.min.js")
        assert found is not None
        code = found.read().decode()
    page: Page = new_page()
    start = (
        "window.API = new (window.Scorm12API ?? window.Scorm12API.default)({autocommit: false});"
    )
    page.add_init_script(f"{code}\n{start}")
    file = tmp_path / "quiz.html"
    file.write_text(quiz_page("A", 1, "en"), "utf-8")
    page.goto(file.as_uri())
    for item in form("A", 1)[:9]:
        at = item.options.index(item.right)
        page.locator(f"[data-item={item.construct}] input").nth(at).check()
    for _ in range(2):
        page.get_by_role("button", name="I am done").click()
    said = "(name) => [window.API.LMSGetValue(name), window.API.LMSGetLastError()]"
    assert page.evaluate(said, "cmi.core.score.raw") == ["75", "0"]
    assert page.evaluate(said, "cmi.core.lesson_status") == ["completed", "0"]


@browser
def test_an_lms_is_told_a_lessons_score(new_page: Any, tmp_path: Path) -> None:
    """A lesson is completed at the end of its part; its score is the share of right answers."""
    page_of: Page = new_page()
    page_of.add_init_script(LMS)
    file = tmp_path / "lesson.html"
    options = PageOptions(predict=True, scorm=True)
    file.write_text(page(recorded("figure-2"), options), "utf-8")
    page_of.goto(file.as_uri())
    forward = page_of.locator("[data-control=forward]")
    forward.wait_for()
    answered = 0
    while not forward.is_disabled():
        option = page_of.locator("[data-answer]:visible, .k-guide [role=radio]:visible")
        if option.count():
            option.first.click()
            answered += 1
        forward.click()
        page_of.wait_for_selector("[data-moving]", state="detached")
    assert answered
    page_of.wait_for_function(
        "window.calls.some((one) => one.join() === 'LMSSetValue,cmi.core.lesson_status,completed')"
    )
    assert any(call[:2] == ["LMSSetValue", "cmi.core.score.raw"] for call in calls(page_of))
    assert page_of.evaluate("window.faults") == []


def test_a_package_is_a_manifest_and_the_page() -> None:
    html = quiz_page("A", 1, "de")
    title = title_of_form("A", "de")
    packed = package(title, html)
    assert packed == package(title, html), "the same page gives the same bytes"
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert archive.namelist() == ["imsmanifest.xml", "index.html"]
        assert archive.read("index.html").decode() == html
        manifest = ElementTree.fromstring(archive.read("imsmanifest.xml"))
    space = "{http://www.imsproject.org/xsd/imscp_rootv1p1p2}"
    scorm = "{http://www.adlnet.org/xsd/adlcp_rootv1p2}"
    assert manifest.findtext(f"{space}metadata/{space}schemaversion") == "1.2"
    (resource,) = manifest.iter(f"{space}resource")
    assert resource.get(f"{scorm}scormtype") == "sco"
    assert resource.get("href") == "index.html"
    (item,) = manifest.iter(f"{space}item")
    assert item.get("identifierref") == resource.get("identifier")
    assert item.findtext(f"{space}title") == title
