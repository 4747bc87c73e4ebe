"""What `kvlab test` does around the tests themselves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kvlab.launcher import suite


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


def test_pytests_report_is_counted(tmp_path: Path):
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite tests="10" failures="1" errors="1" skipped="3"/></testsuites>'
    )
    assert str(suite.read_counts(report)) == "5 passed, 2 failed, 3 skipped"
    report.write_text('<testsuites><testsuite tests="0"/></testsuites>')
    assert suite.read_counts(report) is None
    assert suite.read_counts(tmp_path / "absent.xml") is None


def test_a_stage_that_fails_shows_its_output_and_fails_the_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    """A whole suite in a project of one test, whose style is not in order."""
    (tmp_path / "kvlab").mkdir()
    (tmp_path / "kvlab" / "__init__.py").write_text("import os\n")
    (tmp_path / "pyproject.toml").write_text('[tool.mypy]\nfiles = ["kvlab"]\n')
    (tmp_path / "test_one.py").write_text("def test_one():\n    assert 1 + 1 == 2\n")
    monkeypatch.setattr(suite, "find_chromium", lambda: None)
    monkeypatch.setattr(suite, "fetch_chromium", lambda: None)
    status = suite.run_suite(tmp_path, ["-q", "-p", "no:cacheprovider"], full=False)
    lines = capfd.readouterr().out.strip().splitlines()
    assert status == 1
    assert any(line.startswith("ruff check") and "FAILED" in line for line in lines)
    assert any("F401" in line for line in lines)
    assert any(line.startswith("pytest") and "passed" in line for line in lines)
    assert lines[-1] == "1 passed, 0 failed, 0 skipped"
