"""`kvlab test`: the style checks and the tests, with one line for each stage."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from kvlab.console import duration

MOST_WORKERS = 4
BROWSER_VARIABLE = "KVLAB_CHROMIUM"
BROWSER_NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "msedge",
    "microsoft-edge",
)
BROWSER_PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
    r"%ProgramFiles%\Google\Chrome\Application\chrome.exe",
    r"%ProgramFiles(x86)%\Google\Chrome\Application\chrome.exe",
    r"%LocalAppData%\Google\Chrome\Application\chrome.exe",
    r"%ProgramFiles(x86)%\Microsoft\Edge\Application\msedge.exe",
)
FETCH_BROWSER = ("-m", "playwright", "install", "chromium")


@dataclass(frozen=True)
class Stage:
    """One part of the suite and how it ended."""

    name: str
    passed: bool
    seconds: float

    def __str__(self) -> str:
        ended = "passed" if self.passed else "FAILED"
        return f"{self.name:<20} {ended}  {duration(self.seconds)}"


@dataclass(frozen=True)
class Counts:
    """What pytest counted."""

    passed: int
    failed: int
    skipped: int

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def run_suite(root: Path, arguments: Sequence[str], full: bool) -> int:
    """Every stage, whatever the ones before it said. Returns 0 when all passed, else 1. The last
    line that it prints is the tests' count."""
    browser = find_chromium() or fetch_chromium()
    environment = {**os.environ}
    if browser is None:
        print(
            f"browser: none found; the tests that need one are skipped. Set {BROWSER_VARIABLE} to "
            f"a Chromium, or run `{sys.executable} {' '.join(FETCH_BROWSER)}`",
            flush=True,
        )
    else:
        print(f"browser: {browser}", flush=True)
        environment[BROWSER_VARIABLE] = str(browser)
    quiet = (
        ("ruff check", ("ruff", "check", ".")),
        ("ruff format --check", ("ruff", "format", "--check", ".")),
        ("mypy", ("mypy",)),
    )
    stages = []
    for name, command in quiet:
        stages.append(_quiet_stage(root, name, command))
        print(stages[-1], flush=True)
    options = [*(["--full"] if full else []), *([] if arguments else in_parallel())]
    tests, counts = _pytest(root, [*options, *arguments], environment)
    stages.append(tests)
    print("\n" + "\n".join(str(stage) for stage in stages))
    print(counts if counts else "no test was run", flush=True)
    return 0 if all(stage.passed for stage in stages) else 1


def in_parallel() -> list[str]:
    """The whole suite in as many processes as there are CPUs, four at most; the tests of a file stay
    together, as they share what is slow to start."""
    return ["-n", str(min(MOST_WORKERS, os.cpu_count() or 1)), "--dist", "loadfile"]


def _quiet_stage(root: Path, name: str, command: Sequence[str]) -> Stage:
    """A stage whose output is worth reading only when it fails."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        print(done.stdout.rstrip(), flush=True)
    return Stage(name, done.returncode == 0, time.monotonic() - began)


def _pytest(
    root: Path, arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[Stage, Counts | None]:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", f"--junitxml={report}", *arguments],
            cwd=root,
            env=dict(environment),
            check=False,
        )
        counts = read_counts(report)
    return Stage("pytest", done.returncode == 0, time.monotonic() - began), counts


def read_counts(report: Path) -> Counts | None:
    """The numbers in pytest's report; None where there is none or no test ran."""
    try:
        suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    except (OSError, ElementTree.ParseError):
        return None

    def total(key: str) -> int:
        return sum(int(suite.get(key, 0)) for suite in suites)

    failed, skipped = total("failures") + total("errors"), total("skipped")
    if total("tests") == 0:
        return None
    return Counts(max(0, total("tests") - failed - skipped), failed, skipped)


def find_chromium() -> Path | None:
    """A Chromium that is on this machine: the one that KVLAB_CHROMIUM names, one on PATH or at
    its usual place, or the one that playwright has fetched."""
    named = os.environ.get(BROWSER_VARIABLE)
    if named:
        return Path(named) if Path(named).is_file() else None
    for name in BROWSER_NAMES:
        if found := shutil.which(name):
            return Path(found)
    for place in BROWSER_PLACES:
        path = Path(os.path.expandvars(place))
        if path.is_file():
            return path
    return _playwrights_own()


def _playwrights_own() -> Path | None:
    try:
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            path = Path(playwright.chromium.executable_path)
            return path if path.is_file() else None
    except Exception:  # playwright is absent, or its driver does not run here: no browser of its
        return None


def fetch_chromium() -> Path | None:
    """Try the documented install step; None where it does not succeed, offline for example."""
    if os.environ.get(BROWSER_VARIABLE):
        return None  # a browser was named, though it is not there: do not guess another
    print(f"browser: none found, trying `python {' '.join(FETCH_BROWSER)}`", flush=True)
    try:
        done = subprocess.run(
            [sys.executable, *FETCH_BROWSER],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=600,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _playwrights_own() if done.returncode == 0 else None
