"""The tab's JavaScript without Pyodide, as the `call` that Python's end of it takes: in a Node process,
or on the graphics card of a browser's page."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
STORY = ROOT / "assets" / "models" / "story"
SCRIPTS = ROOT / "kvlab" / "export" / "tab" / "js"
CARD_FLAGS = [
    *("--headless", "--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"),
    *("--enable-features=Vulkan", "--use-vulkan=swiftshader", "--use-angle=swiftshader"),
]
"""A Chromium with a graphics card in software."""


class Tab(Protocol):
    """Something that answers as js/tab.js does, and as for_tests.js adds."""

    def call(self, method: str, given: str) -> str: ...


class NodeTab:
    """One process, in plain JavaScript."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", str(HERE / "node_tab.mjs"), str(STORY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def call(self, method: str, given: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"method": method, "given": given}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        if "fault" in answer:
            raise RuntimeError(answer["fault"])
        found: str = answer["found"]
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()


def node_tab() -> Iterator[Tab]:
    if shutil.which("node") is None:
        pytest.skip("there is no Node")
    tab = NodeTab()
    yield tab
    tab.close()


class CardTab:
    """A page that computes by WebGPU."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def call(self, method: str, given: str) -> str:
        found: str = self._page.evaluate(
            "([method, given]) => call(method, given)", [method, given]
        )
        return found


BEGIN = """
async () => {
  const [{ Card }, { Tab }, { answer }] = await Promise.all(
    ["/js/gpu.js", "/js/tab.js", "/tests/for_tests.js"].map((name) => import(name)));
  const card = await Card.find();
  if (!card) return "this browser offers no graphics card by WebGPU";
  const got = async (name) => await fetch(`/story/${name}`);
  const [config, tokenizer] = await Promise.all(
    ["config.json", "tokenizer.json"].map(async (name) => (await got(name)).json()));
  const weights = await (await got("model.safetensors")).arrayBuffer();
  const tab = new Tab({ config, tokenizer, weights, card });
  window.call = (method, given) => answer(tab, method, given);
  return "";
}
"""
FOLDERS = {"js": SCRIPTS, "tests": HERE, "story": STORY}


def card_tab(browser: Browser, chromium_path: Path) -> Iterator[Tab]:
    """In a Chromium of its own, with CARD_FLAGS; `browser` brings Playwright."""
    chromium = browser.browser_type.launch(executable_path=str(chromium_path), args=CARD_FLAGS)
    page = chromium.new_page()
    page.set_default_timeout(120_000)
    page.route("**/*", serve)
    page.goto("http://127.0.0.1/tests/empty.html")
    why_not = page.evaluate(BEGIN)
    if why_not:
        chromium.close()
        pytest.skip(why_not)
    yield CardTab(page)
    chromium.close()


def serve(route: Route) -> None:
    """Files from the disk; no server takes part."""
    folder, name = route.request.url.removeprefix("http://127.0.0.1/").split("/", 1)
    if name == "empty.html":
        route.fulfill(body="<!doctype html>", content_type="text/html")
    else:
        kind = "text/javascript" if name.endswith(".js") else "application/octet-stream"
        route.fulfill(body=(FOLDERS[folder] / name).read_bytes(), content_type=kind)
