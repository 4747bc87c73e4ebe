"""The examination of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvlab import doctor

ROOT = Path(__file__).resolve().parents[2]


def test_this_machine_can_run_the_lab():
    examination = doctor.examine(ROOT)
    report = examination.report()
    assert examination.can_run, report
    assert "story model  loads and runs: 30 tokens" in report
    assert "arithmetic   attention: " in report
    assert "weights: as stored (narrower than 512)" in report or "(not on the CPU)" in report
    assert "The lab can run." in report


def test_what_is_needed_decides_and_what_is_not_is_advice():
    examination = doctor.Examination()
    examination.lacks("browser", "none", "install Chromium", needed=False)
    assert examination.can_run
    assert examination.report() == "browser      none\n\nThe lab can run.\n- install Chromium\n"
    examination.lacks("torch", "does not load", "remove .venv", needed=True)
    assert "The lab cannot run:\n- install Chromium\n- remove .venv\n" in examination.report()


def test_a_part_that_breaks_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch):
    def broken(examination: doctor.Examination, root: Path) -> None:
        raise RuntimeError("no\nidea")

    for name in ("_torch", "_story", "_browser"):
        monkeypatch.setattr(doctor, name, lambda examination, root: None)
    monkeypatch.setattr(doctor, "_memory", broken)
    report = doctor.examine(ROOT).report()
    assert "no idea" in report
    assert "packages" in report


def test_packages_that_differ_are_named(tmp_path: Path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "requirements.txt").write_text("typer==0.0.1\nnot-there==1.0\n")
    (tmp_path / "tests" / "requirements.txt").write_text("pytest==0.1\n")
    examination = doctor.Examination()
    doctor._packages(examination, tmp_path)
    report = examination.report()
    assert "not-there==1.0 (absent)" in report
    assert "typer==0.0.1 (0." in report
    assert "`python3 -m kvlab test` installs what tests/requirements.txt asks for" in report
    assert not examination.can_run
