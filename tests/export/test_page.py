"""The exported page in a browser: from a file, with no network, stepped through by hand."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kvlab.draw
from kvlab.course.record import recorded
from kvlab.errors import BadInput
from kvlab.export import page as pages
from kvlab.export.page import PageOptions, page, snippet
from kvlab.runs.scenario import scenario_names
from kvlab.trace.document import Trace
from kvlab.trace.ranges import lesson_range
from kvlab.trace.timeline import Timeline

AXE = Path(kvlab.draw.__file__).parent / "js" / "node_modules" / "axe-core" / "axe.min.js"
LARGEST = 1_000_000  # bytes of a lesson's page
FREE = ".k-free[data-free]"

Open = Callable[..., Any]


@pytest.fixture
def opened(tmp_path: Path, new_page: Any, trouble: Any) -> Iterator[Open]:
    """opened("figure-4", "#cursor=3", width=390, theme="dark", page_options={}, **PageOptions): the
    page from a file. At the end nothing may have been asked for or complained about."""

    def show(
        name: str,
        place: str = "",
        width: int = 1280,
        theme: str = "light",
        page_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        file = tmp_path / f"{name}.html"
        file.write_text(page(recorded(name), PageOptions(**options)), "utf-8")
        shown = new_page(
            viewport={"width": width, "height": 860}, color_scheme=theme, **page_options or {}
        )
        asked: list[str] = []
        shown.on("request", lambda request: asked.append(request.url))
        shown.goto(f"{file.as_uri()}{place}")
        assert asked == [file.as_uri()], asked
        return shown

    yield show
    assert not trouble, trouble


def where(shown: Any) -> tuple[int, int]:
    """(step, event) that the page says it shows."""
    place = shown.locator(".k-where")
    return int(place.get_attribute("data-step")), int(place.get_attribute("data-event"))


@pytest.mark.parametrize("name", scenario_names())
def test_a_lessons_page_is_small(name: str) -> None:
    assert len(page(recorded(name), PageOptions()).encode()) < LARGEST


@pytest.mark.browser
def test_some_lessons_open_from_a_file_with_the_same_lanes(opened: Open) -> None:
    """No request, no error; and Python's lanes are the player's, phase by phase."""
    for name in ("figure-2", "figure-4", "cache-shortens", "storm", "unsafe-reuse", "victims"):
        trace = recorded(name)
        shown = opened(name, whole=True, cursor=len(trace.events))
        seen = shown.evaluate(
            """() => [...document.querySelectorAll(".k-segment")].map((one) => [
                one.dataset.lane, one.dataset.phase,
                one.style.gridColumnStart - 2, one.style.gridColumnEnd - 3,
            ])"""
        )
        line = Timeline.of(trace)
        drawn = [
            [id, segment.phase, segment.start, segment.stop]
            for id, lane in line.lanes.items()
            for segment in lane.segments
        ]
        assert seen == drawn, name
        free = shown.locator("[data-free-after]").evaluate_all(
            "all => all.map(one => Number(one.dataset.freeAfter))"
        )
        assert free == line.free == [entry["free"] for entry in trace.summary["per_step"]]
        shown.close()


@pytest.mark.browser
def test_click_key_and_range(opened: Open) -> None:
    """Figure 2 opens on its part of the run and shows 0, 2, 1 free blocks."""
    start, stop = lesson_range(recorded("figure-2"))
    shown = opened("figure-2")
    assert shown.title() == "Skipping is not releasing"
    assert where(shown)[1] == start
    counts = [shown.locator(FREE).get_attribute("data-free")]
    shown.locator("[data-control=forward]").click()
    shown.locator(".kvlab-player").focus()
    for _ in range(start + 1, stop):
        shown.keyboard.press("ArrowRight")
        count = shown.locator(FREE).get_attribute("data-free")
        if count != counts[-1]:
            counts.append(count)
    assert counts == ["0", "2", "1"]
    assert where(shown)[1] == stop
    shown.keyboard.press("ArrowRight")
    assert where(shown)[1] == stop
    shown.get_by_role("button", name="whole run").click()
    shown.keyboard.press("End")
    assert where(shown) == (9, 76)


@pytest.mark.browser
def test_a_link_leads_to_its_cursor(opened: Open) -> None:
    shown = opened("figure-4", "#scenario=figure-4&method=swap&cursor=30")
    assert where(shown) == (3, 30)
    assert shown.get_by_text("The copy of B starts: 8 positions").first.is_visible()
    shown.evaluate("location.hash = '#scenario=figure-4&method=swap&cursor=77'")
    shown.locator('.k-where[data-event="77"]').wait_for()  # outside of the lesson's part
    shown.evaluate("location.hash = '#scenario=figure-4&method=recompute&cursor=5'")
    note = shown.get_by_role("status").filter(has_text="another run")
    note.wait_for()
    assert where(shown)[1] == 77
    shown.locator("[data-act=more]").click()
    shown.locator("[data-act=copyLink]").click()
    address = shown.locator(".k-address")
    if address.count():  # no clipboard in a page from a file: the link is shown instead
        assert address.input_value().endswith("#scenario=figure-4&method=swap&cursor=77")
    far = opened("figure-1", "#cursor=999999")
    assert where(far) == (8, 72)


@pytest.mark.browser
@pytest.mark.parametrize(("theme", "width"), [("light", 390), ("dark", 390), ("dark", 1280)])
def test_everyone(opened: Open, theme: str, width: int) -> None:
    """axe-core over the whole page, the host's light and dark, and no scrolling sideways."""
    shown = opened("figure-3", "#cursor=30", theme=theme, width=width, predict=True, presenter=True)
    ground, text = shown.evaluate(
        """() => [document.body, document.querySelector(".kvlab-player")].map(
            (one) => getComputedStyle(one).backgroundColor)"""
    )
    assert ground == text == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 29)"}[theme]
    assert shown.locator(".kvlab-player").get_attribute("data-theme") == theme
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    if not AXE.is_file():
        pytest.skip("axe-core is not installed (npm ci in kvlab/draw/js)")
    assert run_axe(shown) == []


def run_axe(shown: Any) -> list[str]:
    """The page's own policy refuses foreign code, so that axe comes in through the debugger."""
    session = shown.context.new_cdp_session(shown)
    session.send("Runtime.evaluate", {"expression": AXE.read_text("utf-8")})
    found = shown.evaluate(
        """async () => (await axe.run(document)).violations.flatMap((one) =>
            one.nodes.map((node) => `${one.id}: ${node.html.slice(0, 160)}`))"""
    )
    return [str(one) for one in found]


@pytest.mark.browser
def test_the_policy_refuses_every_request_and_foreign_script(
    tmp_path: Path, new_page: Any, serve_nothing: str
) -> None:
    file = tmp_path / "p.html"
    file.write_text(page(recorded("figure-1"), PageOptions()), "utf-8")
    shown = new_page()
    shown.goto(file.as_uri())
    refused = shown.evaluate(
        """async (address) => {
            const heard = [];
            document.addEventListener("securitypolicyviolation",
                (event) => heard.push(event.effectiveDirective));
            await fetch(address).catch(() => {});
            const add = (tag, values) =>
                document.body.append(Object.assign(document.createElement(tag), values));
            add("img", { src: address });
            add("script", { src: address });
            add("script", { textContent: "window.ran = true" });
            add("style", { textContent: "body { opacity: 0 }" });
            add("iframe", { src: address });
            await new Promise((done) => setTimeout(done, 300));
            return { heard, ran: window.ran ?? false, seen: getComputedStyle(document.body).opacity };
        }""",
        serve_nothing,
    )
    assert not refused["ran"]
    assert refused["seen"] == "1"
    assert {"connect-src", "img-src", "script-src-elem", "style-src-elem", "frame-src"} <= set(
        refused["heard"]
    )
    assert "unsafe" not in file.read_text("utf-8").split("</title>")[0]


@pytest.fixture
def serve_nothing() -> str:
    """An address on this machine at which nobody listens."""
    return "http://127.0.0.1:9/x.js"


@pytest.mark.browser
def test_predict_language_and_notes(opened: Open) -> None:
    shown = opened("figure-5", predict=True, language="de", title="Mein <Titel> & mehr")
    assert shown.title() == "Mein <Titel> & mehr"
    assert shown.locator("html").get_attribute("lang") == "de"
    shown.locator("[data-control=last]").click()
    assert shown.locator(".k-option").first.is_visible()  # the question holds
    shown.locator(".kvlab-player").focus()
    shown.keyboard.press("1")
    assert shown.locator(".k-verdict").first.is_visible()


@pytest.mark.browser
def test_without_javascript_there_is_the_storyboard(opened: Open) -> None:
    shown = opened("figure-2", page_options={"java_script_enabled": False})
    image = shown.locator("noscript img")
    assert image.is_visible()
    box = image.bounding_box()
    assert box["width"] > 800
    assert box["height"] > 400


@pytest.mark.browser
def test_the_snippet_shows_the_page_in_another(opened: Open, tmp_path: Path, new_page: Any) -> None:
    opened("figure-4")
    options = PageOptions(cursor=33)
    outer = tmp_path / "course.html"
    outer.write_text(f"<!doctype html>{snippet(recorded('figure-4'), options, 'figure-4.html')}")
    shown = new_page(viewport={"width": 1100, "height": 900})
    shown.goto(outer.as_uri())
    frame = shown.frame_locator("iframe[title='Restore KV stored outside the GPU']")
    assert frame.locator(FREE).get_attribute("data-free") == "2"
    frame.locator("[data-control=event]").click()
    assert frame.locator(".k-where").get_attribute("data-event") == "34"


@pytest.mark.browser
def test_run_and_picture_are_saved_from_the_page(opened: Open, tmp_path: Path) -> None:
    shown = opened("figure-4", "#cursor=30")
    shown.locator("[data-act=more]").click()
    for act, name in (("saveRun", "figure-4-trace.json"), ("savePicture", "figure-4-30.png")):
        with shown.expect_download() as download:
            shown.locator(f"[data-act={act}]").click()
        assert download.value.suggested_filename == name
        download.value.save_as(tmp_path / name)
    assert Trace.read(tmp_path / "figure-4-trace.json").document == recorded("figure-4").document
    png = (tmp_path / "figure-4-30.png").read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">I", png[16:20]) == (2 * 1280,)
    assert len(png) > 100_000


def test_nothing_in_a_run_ends_the_script_that_holds_it() -> None:
    trace = recorded("figure-1")
    nasty = "</script><script>alert(1)</script><!--"
    made = page(trace, PageOptions(title=nasty))
    assert made.count("</script>") == 2
    assert "<script>alert" not in made
    assert nasty not in snippet(trace, PageOptions(title=nasty), 'a".html')
    # A file's name is a part of the address, whatever stands in it.
    for name, address in {
        'a".html': "a%22.html",
        "a b#c?d%20.html": "a%20b%23c%3Fd%2520.html",
        "javascript:alert(1)": "javascript%3Aalert%281%29",
    }.items():
        assert f'src="{address}#scenario=' in snippet(trace, PageOptions(), name)


def test_a_run_too_large_for_a_page_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "LARGEST", 1000)
    with pytest.raises(BadInput, match="a page may have 1,000"):
        page(recorded("figure-1"), PageOptions())
