"""How fast the player is: script per input, time to paint, bytes of a trace and of the module.

Needs Chromium and Playwright. Milliseconds depend on the machine; the ratio to a page with a single
button, measured in the same browser in the same run, says more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

from kvlab.draw.packed import pack, packed_json
from kvlab.draw.player import Player
from kvlab.errors import BadInput
from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import scenario_from
from kvlab.trace.narration import load_words

Document = dict[str, Any]

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
INPUTS = 300
MOVES = 24
"""Presses of the large arrow of which every frame is timed."""

BUTTON = """
() => {
  document.body.innerHTML = "<button>0</button>";
  const button = document.querySelector("button");
  let count = 0;
  button.onclick = () => { button.textContent = String((count += 1)); };
  window.input = () => button.click();
}
"""
PLAYER = """
async ([module, text, options]) => {
  document.body.innerHTML = "<div id=root></div>";
  const url = URL.createObjectURL(new Blob([module], { type: "text/javascript" }));
  const kvlab = await import(url);
  const trace = JSON.parse(text);
  const started = performance.now();
  const player = kvlab.mount(document.getElementById("root"), trace, options);
  const ready = performance.now() - started;
  const { element } = player;
  const press = (key, shiftKey = false) =>
    element.dispatchEvent(new KeyboardEvent("keydown", { key, shiftKey, bubbles: true }));
  window.press = press;
  const slider = element.querySelector("input[type=range]");
  const events = trace.rows.length;
  let turn = 0;
  window.input = () => {
    turn += 1;
    // Mostly single events, as a reader goes; now and then a step, a drag, and the way back.
    if (turn % 25 === 0) {
      // A drag: a hundredth of the run at once.
      slider.value = String((Number(slider.value) + Math.ceil(events / 100)) % events);
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    } else if (turn % 10 === 0) press("PageDown");
    else press(turn % 7 === 0 ? "ArrowLeft" : "ArrowRight", true);
  };
  window.jump = (part) => player.goto(Math.floor(events * part));
  return ready;
}
"""
JUMPS = """
() => [0.9, 0.1, 0.6, 0.2, 0.8, 0.4].map((part) => {
  const start = performance.now();
  window.jump(part);
  return performance.now() - start;
})
"""
FRAMES = """
async (moves) => {
  const frames = [];
  const next = () => new Promise((done) => requestAnimationFrame(done));
  for (let i = 0; i < moves; i += 1) {
    if (document.querySelector("[data-control=forward]").disabled) {
      window.press("Home");
      await next();
    }
    window.press("ArrowRight");
    let before = await next();
    while (document.querySelector("[data-moving]")) {
      const now = await next();
      frames.push(now - before);
      before = now;
    }
  }
  return frames;
}
"""
MEASURE = """
async (inputs) => {
  const script = [], paint = [];
  const painted = () => new Promise((done) => requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => done();
    port2.postMessage(0);
  }));
  for (let i = 0; i < inputs; i += 1) {
    await painted();
    const start = performance.now();
    window.input();
    script.push(performance.now() - start);
    await painted();
    paint.push(performance.now() - start);
  }
  return { script, paint };
}
"""


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds, half of the inputs below `p50`, all but one in twenty below `p95`."""

    p50: float
    p95: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Times:
        parts = quantiles(values, n=20, method="inclusive")
        return cls(parts[9], parts[18])


@dataclass(frozen=True, slots=True)
class Speed:
    """One page: the script of an input, and the time until it is painted."""

    name: str
    ready: float
    script: Times
    paint: Times
    jump: float | None
    """Milliseconds of script for a jump over half of the run, on average."""
    frames: Times | None
    """From one frame to the next while something moves; None where nothing does."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes."""

    module: int
    style: int
    trace_json: int
    trace_wire: int


def large_run() -> Document:
    """4,096 blocks of 16 slots and at least 10,000 events, with shortages; stand-in tokens."""
    requests = [
        {
            "id": f"R{number}",
            "prompt": [1 + (number * 31 + at) % 500 for at in range(380 + 5 * (number * 7 % 60))],
            "max_tokens": 40,
        }
        for number in range(130)
    ]
    return run("large", {"num_blocks": 4096, "block_size": 16, "host_blocks": 0}, requests)


def long_run(steps: int = 1000) -> Document:
    """About `steps` steps in a pool of 256 blocks, with shortages; stand-in tokens."""
    requests = [
        {
            "id": f"R{number}",
            "prompt": [1 + (number * 17 + at) % 300 for at in range(40 + number % 50)],
            "max_tokens": 200,
            "arrival_step": number * 9,
        }
        for number in range(steps // 11)
    ]
    return run("long", {"num_blocks": 256, "block_size": 16, "host_blocks": 0}, requests)


def run(name: str, engine: dict[str, Any], requests: list[dict[str, Any]]) -> Document:
    raw = {"name": name, "title": name, "model": None, "engine": engine, "requests": requests}
    return run_scenario(scenario_from(raw, Path(), f"the benchmark's {name} run")).trace.document


def sizes(trace: Document) -> Sizes:
    return Sizes(
        module=len(Player._esm.encode()),
        style=len(Player._css.encode()),
        trace_json=len(json.dumps(trace, ensure_ascii=False).encode("utf-8", "replace")),
        trace_wire=len(pack(trace)),
    )


def speeds(traces: dict[str, Document], inputs: int = INPUTS) -> list[Speed]:
    """A page with one button, then a player for each trace, in one browser.

    Raises BadInput without a browser.
    """
    from kvlab.launcher.suite import find_chromium

    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise BadInput("bench player: Playwright is missing (pip install playwright).") from None
    chromium = find_chromium()
    if chromium is None:
        raise BadInput("bench player: there is no Chromium on this machine.")
    found = []
    options = {"words": load_words(), "css": Player._css}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium), args=FLAGS)
        page = browser.new_page(viewport={"width": 1240, "height": 860})
        page.evaluate(BUTTON)
        found.append(measured(page, "one button", 0.0, inputs))
        for name, trace in traces.items():
            page = browser.new_page(viewport={"width": 1240, "height": 860})
            ready = page.evaluate(PLAYER, [Player._esm, packed_json(trace), options])
            found.append(measured(page, name, ready, inputs))
        browser.close()
    return found


def measured(page: Any, name: str, ready: float, inputs: int) -> Speed:
    page.evaluate(MEASURE, 20)
    times = page.evaluate(MEASURE, inputs)
    jumps = page.evaluate(JUMPS) if page.evaluate("Boolean(window.jump)") else []
    jump = sum(jumps) / len(jumps) if jumps else None
    frames = page.evaluate(FRAMES, MOVES) if jumps else []
    moving = Times.of(frames) if len(frames) > 1 else None
    return Speed(name, ready, Times.of(times["script"]), Times.of(times["paint"]), jump, moving)


def bench_player(inputs: int, figures: dict[str, Document], say: Callable[[str], None]) -> None:
    """Measure everything and say it line by line."""
    large, long = large_run(), long_run()
    say(f"{inputs} inputs a page: single events, steps, the slider. Milliseconds of this machine.")
    columns = [("mount", 8), ("script p50", 12), ("p95", 8), ("paint p50", 12), ("p95", 8)]
    columns += [("× button", 10), ("jump", 7), ("frame p50", 11), ("p95", 7)]
    say(" " * 34 + "".join(f"{name:>{width}}" for name, width in columns))
    traces = {
        **{f"{name}: {facts(trace)}": trace for name, trace in figures.items()},
        f"large: {facts(large)}": large,
        f"long: {facts(long)}": long,
    }
    button: Speed | None = None
    for speed in speeds(traces, inputs):
        button = button or speed
        ratio = speed.paint.p50 / button.paint.p50
        say(
            f"{speed.name:34}{speed.ready:>8.0f}{speed.script.p50:>12.2f}{speed.script.p95:>8.2f}"
            f"{speed.paint.p50:>12.1f}{speed.paint.p95:>8.1f}{ratio:>10.2f}"
            + ("" if speed.jump is None else f"{speed.jump:>7.0f}")
            + ("" if speed.frames is None else f"{speed.frames.p50:>11.1f}{speed.frames.p95:>7.1f}")
        )
    size = sizes(long)
    say(f"module {size.module:,} bytes, style {size.style:,} bytes")
    say(
        f"trace of {facts(long)}: {size.trace_wire:,} bytes on the wire, "
        f"{size.trace_json:,} as JSON with its summary"
    )


def facts(trace: Document) -> str:
    return f"{trace['pool']['num_blocks']:,} × {len(trace['steps']):,} × {len(trace['events']):,}"
