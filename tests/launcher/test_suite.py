"""What `kvlab test` does around the tests themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvlab.launcher import suite

ROOT = Path(__file__).resolve().parents[2]


def test_the_browser_that_is_named_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    named = tmp_path / "chrome"
    named.touch()
    monkeypatch.setenv(suite.BROWSER_VARIABLE, str(named))
    assert suite.find_chromium() == named


def test_a_named_browser_that_is_not_there_is_not_guessed_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(suite.BROWSER_VARIABLE, str(tmp_path / "absent"))
    assert suite.find_chromium() is None
    assert suite.fetch_chromium() is None


@pytest.mark.skipif(sys.platform == "win32", reason="a file without an ending is no program")
def test_else_the_first_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = tmp_path / "google-chrome"
    found.write_text("#!/bin/sh\n")
    found.chmod(0o755)
    monkeypatch.delenv(suite.BROWSER_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert suite.find_chromium() == found


PROJECT = {
    "kvlab/__init__.py": "import os\n",  # unused: ruff complains
    "pyproject.toml": '[tool.mypy]\nfiles = ["kvlab"]\n',
    "test_some.py": """
import pytest

def test_right():
    assert 1 + 1 == 2

def test_wrong():
    assert 1 + 1 == 3

def test_left_out():
    pytest.skip("for once")

@pytest.fixture
def broken():
    raise OSError

def test_without_what_it_needs(broken):
    pass
""",
}


def test_every_stage_is_shown_and_the_last_line_counts(tmp_path: Path):
    """A whole suite in a project whose style is not in order."""
    for name, text in PROJECT.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    code = (
        "import sys; from pathlib import Path; from kvlab.launcher.suite import run_suite;"
        "sys.exit(run_suite(Path(sys.argv[1]), sys.argv[2:], []))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), "-q", "-n", "1", "-p", "no:cacheprovider"],
        env={**os.environ, "PYTHONPATH": str(ROOT), suite.BROWSER_VARIABLE: sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "F401" in done.stdout
    assert done.stdout.splitlines()[-2:] == [
        "FAILED: ruff check ., ruff format --check ., pytest",
        "1 passed, 2 failed, 1 skipped",
    ]
