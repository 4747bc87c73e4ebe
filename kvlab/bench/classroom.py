"""A class opens the lab: how long each waits, what it costs, and how soon it is given back.

Thirty people within a minute: some in Chromium, the others by the page's own protocol (visitor.py),
so that the browsers' memory does not hide the server's. Linux (memory is PSS from /proc, in which
what processes share counts once), Chromium and Playwright.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import quantiles
from typing import Any

import psutil

from kvlab.bench.player import FLAGS
from kvlab.bench.visitor import Visitor, player_of
from kvlab.errors import BadInput

ROOT = Path(__file__).resolve().parents[2]
WITHIN = 40.0
"""Seconds in which everybody comes, evenly."""
ROOM_GIB = 24
MIB = 1024 * 1024

ONE_BUTTON = """
import ipywidgets
button = ipywidgets.Button(description="0")
button.on_click(lambda one: setattr(one, "description", str(int(one.description) + 1)))
button
"""


class Server:
    """`kvlab serve` as a process of its own, and what it and its kernels take."""

    def __init__(self, *options: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/"
        command = [sys.executable, "-m", "kvlab", "serve", "--port", str(port), *options]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def kernels(self) -> list[int]:
        """The forks of the fork server."""
        return [pid for server in children(self.process.pid) for pid in children(server)]

    def memory(self) -> dict[int, int]:
        """Bytes (PSS) by process: the server, the fork server and the kernels."""
        inner = children(self.process.pid)
        return {pid: pss(pid) for pid in (self.process.pid, *inner, *self.kernels())}

    async def until(self, kernels: int, seconds: float) -> float:
        """Wait for this many kernels whose memory has settled; how long that took."""
        start = time.monotonic()
        last = -1
        while time.monotonic() - start < seconds:
            now = sum(self.memory().values()) if len(self.kernels()) == kernels else -1
            if last > 0 and abs(now - last) < 2 * MIB:
                break
            last = now
            await asyncio.sleep(1)
        return time.monotonic() - start

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def children(pid: int) -> list[int]:
    with suppress(psutil.Error):
        return [child.pid for child in psutil.Process(pid).children()]
    return []


def pss(pid: int) -> int:
    """Bytes; 0 for a process that has ended."""
    with suppress(psutil.Error):
        return int(psutil.Process(pid).memory_full_info().pss)
    return 0


def mapped(pid: int, name: str) -> tuple[int, int]:
    """Resident and proportional bytes of the files in whose path `name` is."""
    with suppress(psutil.Error):
        files = [file for file in psutil.Process(pid).memory_maps() if name in file.path]
        return sum(file.rss for file in files), sum(file.pss for file in files)
    return 0, 0


async def by_protocol(url: str) -> tuple[float, Visitor, str, str]:
    """Seconds to the first step, the visitor, the player's comm, and that of the run button."""
    visitor = Visitor(url)
    start = time.monotonic()
    answer = await visitor.enter()
    if not visitor.kernel:
        raise BadInput(f"a visitor was turned away: status {answer.code}")
    await visitor.connect()
    widgets = await visitor.widgets()
    player = player_of(widgets)
    await visitor.ask(player)
    seconds = time.monotonic() - start
    starts = [
        name
        for name, state in widgets.items()
        if state.get("_model_name") == "ButtonModel"
        and str(state.get("description", "")).startswith("Run")
    ]
    return seconds, visitor, player, starts[0] if starts else ""


async def live_run(visitor: Visitor, player: str, button: str) -> float:
    """Press the page's run button; seconds until the player has the new run."""
    start = time.monotonic()
    data = {"method": "custom", "content": {"event": "click"}}
    await visitor.send("comm_msg", {"comm_id": button, "data": data})
    while (heard := await visitor.hear(150)) is not None:
        kind, content = heard
        if kind == "comm_msg" and content["comm_id"] == player:
            paths = content["data"].get("buffer_paths") or []
            if ["packed"] in paths or "trace" in content["data"].get("state", {}):
                return time.monotonic() - start
    raise ConnectionError("the kernel ended during a run")


async def by_browser(browser: Any, url: str) -> tuple[float, Any]:
    """Seconds from the address to the first step that the page has taken, and the page."""
    context = await browser.new_context()
    page = await context.new_page()
    start = time.monotonic()
    await page.goto(url)
    button = page.locator(".kvlab-player [data-control=forward]").first
    await button.wait_for(timeout=120_000)
    slider = page.locator(".kvlab-player input[type=range]").first
    before = await slider.input_value()
    await button.click()
    while await slider.input_value() == before:
        await asyncio.sleep(0.02)
    return time.monotonic() - start, page


async def one_button(browser: Any) -> float:
    """Seconds from the address to the first click that the kernel has answered."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one-button.ipynb"
        path.write_text(json.dumps(notebook(ONE_BUTTON)), encoding="utf-8")
        server = Server("--class", "1", "--heated", "1", "--notebook", str(path))
        try:
            await server.until(1, 60)
            context = await browser.new_context()
            page = await context.new_page()
            start = time.monotonic()
            await page.goto(server.url)
            await page.get_by_role("button", name="0").click(timeout=60_000)
            await page.get_by_role("button", name="1").wait_for(timeout=60_000)
            seconds = time.monotonic() - start
            await context.close()
            return seconds
        finally:
            server.stop()


def notebook(source: str) -> dict[str, Any]:
    cell = {"cell_type": "code", "id": "one", "metadata": {}, "outputs": [], "source": source}
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {
        "cells": [{**cell, "execution_count": None}],
        "metadata": {"kernelspec": spec, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


async def measure(seats: int, browsers: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Everything, in the order in which a lesson goes."""
    from playwright.async_api import async_playwright

    from kvlab.launcher.suite import find_chromium

    path = find_chromium()
    if path is None:
        raise BadInput("bench classroom: there is no Chromium on this machine")
    found: dict[str, Any] = {"seats": seats, "browsers": browsers}
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=str(path), args=FLAGS)
        found["one_button"] = await one_button(browser)
        say(f"one button, alone: {found['one_button']:.2f} s to the first click")
        server = Server("--class", str(seats))
        try:
            await rush(server, browser, found, say)
        finally:
            server.stop()
        await browser.close()
    return found


async def rush(
    server: Server, browser: Any, found: dict[str, Any], say: Callable[[str], None]
) -> None:
    seats, browsers = found["seats"], found["browsers"]
    found["heating"] = await server.until(seats, 120)
    heated = sum(server.memory().values())
    say(
        f"{seats} kernels heated in {found['heating']:.0f} s, {heated / MIB:.0f} MiB with the server"
    )

    every = max(1, seats // browsers) if browsers else seats + 1
    start = time.monotonic()

    async def come(number: int) -> Any:
        await asyncio.sleep(number * WITHIN / seats)
        if number % every == 0 and number // every < browsers:
            return await by_browser(browser, server.url)
        return await by_protocol(server.url)

    everybody = await asyncio.gather(*(come(number) for number in range(seats)))
    found["within"] = time.monotonic() - start
    pages = [one for one in everybody if len(one) == 2]
    guests = [one for one in everybody if len(one) == 4]
    found["first_step"] = spread([one[0] for one in everybody])
    found["first_step_browsers"] = spread([one[0] for one in pages])
    found["first_step_protocol"] = spread([one[0] for one in guests])
    for name in ("first_step", "first_step_browsers", "first_step_protocol"):
        p50, p95 = found[name]
        say(
            f"{name}: p50 {p50:.2f} s, p95 {p95:.2f} s ({p50 / found['one_button']:.2f} × one button)"
        )
    memory = server.memory()
    found["open"] = sum(memory.values())
    say(
        f"all {seats} open after {found['within']:.0f} s: {found['open'] / MIB:.0f} MiB, no browser"
    )

    if all(one[3] for one in guests):
        work = (live_run(visitor, player, button) for _, visitor, player, button in guests)
        found["run"] = spread(list(await asyncio.gather(*work)))
        say(
            f"{len(guests)} live runs at once: p50 {found['run'][0]:.1f} s, p95 {found['run'][1]:.1f} s"
        )
    memory = server.memory()
    found["after_runs"] = sum(memory.values())
    kernels = server.kernels()
    each = sorted(memory.get(pid, 0) for pid in kernels)
    found["kernel"] = each[len(each) // 2]
    resident, shared = max(mapped(pid, "/models/") for pid in kernels)
    found["weights"] = (resident, shared)
    base = found["after_runs"] - sum(each)
    found["carried"] = int((ROOM_GIB * 1024 * MIB * 0.9 - base) // found["kernel"])
    say(
        f"after the runs: {found['after_runs'] / MIB:.0f} MiB; a kernel {found['kernel'] / MIB:.0f} "
        f"MiB; weights mapped from a file: {resident / MIB:.1f} MiB, its share {shared / MIB:.1f}"
    )
    say(f"{ROOM_GIB} GiB, a tenth kept free, carry {found['carried']} sessions by memory")

    start = time.monotonic()
    await asyncio.gather(*(one[1].leave() for one in guests), *(close(one[1]) for one in pages))
    heated_ahead = len(kernels) - seats  # nobody has used these: they stay
    while time.monotonic() - start < 120:
        if len(set(kernels) & set(server.kernels())) <= heated_ahead:
            break
        await asyncio.sleep(0.1)
    found["closed"] = time.monotonic() - start
    say(f"closed: every kernel that was in use ended within {found['closed']:.1f} s")
    await server.until(seats, 60)
    found["pool_again"] = time.monotonic() - start
    found["memory_again"] = sum(server.memory().values())
    say(
        f"a pool of fresh kernels after {found['pool_again']:.0f} s: "
        f"{found['memory_again'] / MIB:.0f} MiB, {heated / MIB:.0f} before"
    )


async def close(page: Any) -> None:
    await page.close(run_before_unload=True)


def spread(seconds: list[float]) -> tuple[float, float]:
    """Median and 95th percentile."""
    if len(seconds) < 2:
        return (seconds[0], seconds[0]) if seconds else (0.0, 0.0)
    cuts = quantiles(seconds, n=20, method="inclusive")
    return cuts[9], cuts[18]


def bench_classroom(seats: int, browsers: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure, and say each thing as it is known. Raises BadInput where it cannot be measured."""
    if sys.platform != "linux":
        raise BadInput("bench classroom: memory is read from /proc, which only Linux has")
    try:
        import playwright  # noqa: F401
    except ModuleNotFoundError as error:
        raise BadInput("bench classroom: needs Playwright, of tests/requirements.txt") from error
    return asyncio.run(measure(seats, browsers, say))
