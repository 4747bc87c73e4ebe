"""`kvlab test`: ruff, mypy and pytest, as anybody would call them, with a browser for the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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


class Counts:
    """A plugin of pytest's: what it counted."""

    passed = failed = skipped = 0

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        def count(*kinds: str) -> int:
            return sum(len(terminalreporter.getreports(kind)) for kind in kinds)

        self.passed, self.failed = count("passed", "xfailed"), count("failed", "error")
        self.skipped = count("skipped")

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def run_suite(root: Path, arguments: Sequence[str], more: Sequence[str]) -> int:
    """Every stage, whatever the ones before it said. `arguments` of pytest say which tests; without
    any it is all of them, and `more` says which marked ones besides (`--long`, `--full`). Returns 0
    when all passed, else 1. The last line that it prints is the tests' count."""
    import pytest

    browser = find_chromium() or fetch_chromium()
    if browser is None:
        print(
            f"browser: none found; the tests that need one are skipped. Set {BROWSER_VARIABLE} to "
            f"a Chromium, or run `{sys.executable} {' '.join(FETCH_BROWSER)}`",
            flush=True,
        )
    else:
        print(f"browser: {browser}", flush=True)
        os.environ[BROWSER_VARIABLE] = str(browser)
    failed = []
    for stage in (("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",)):
        print(f"$ {' '.join(stage)}", flush=True)
        if subprocess.run([sys.executable, "-m", *stage], cwd=root, check=False).returncode:
            failed.append(" ".join(stage))
    counts = Counts()
    options = [*more, *([] if arguments else in_parallel())]
    print(f"$ pytest {' '.join([*options, *arguments])}", flush=True)
    os.chdir(root)
    if pytest.main([f"--rootdir={root}", *options, *arguments], plugins=[counts]):
        failed.append("pytest")
    print(f"FAILED: {', '.join(failed)}" if failed else "all stages passed")
    print(counts, flush=True)
    return 1 if failed else 0


def in_parallel() -> list[str]:
    """The whole suite in as many processes as there are CPUs, four at most; the tests of a file stay
    together, as they share what is slow to start."""
    return ["-n", str(min(MOST_WORKERS, os.cpu_count() or 1)), "--dist", "loadfile"]


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
