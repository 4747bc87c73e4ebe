"""A start from nothing to the command, with a pip that installs names without contents."""

from __future__ import annotations

import errno
import io
import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kvlab.errors import CannotStart, Console
from kvlab.launcher import start, torch_build
from kvlab.launcher.environment import Environment
from kvlab.launcher.needs import LAB, TESTS

FAKE = Path(__file__).with_name("fake_pip.py")


def place(environment: Environment) -> Path:
    """Where the fake pip keeps its files: beside the environment's packages."""
    probe = environment.probe()
    assert probe is not None
    return probe.site_packages.parent


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """A checkout that nothing has been installed for yet."""
    (tmp_path / "tests").mkdir()
    (tmp_path / LAB).write_text("torch==2.13.0\none==1.0\n")
    (tmp_path / TESTS).write_text("-r ../requirements.txt\ntwo==2.0\n")
    monkeypatch.setattr(
        Environment,
        "find_pip",
        lambda self, console: (sys.executable, str(FAKE), str(place(self))),
    )
    monkeypatch.setattr(torch_build, "nvidia_driver_answers", lambda: False)
    monkeypatch.delenv(start.RESTARTED, raising=False)
    return Environment(tmp_path)


@pytest.fixture
def ensure(environment: Environment) -> Callable[..., str]:
    """Make the environment; returns what was said."""

    def run(*files: str) -> str:
        said = io.StringIO()
        start.ensure(environment, files or (LAB,), Console(said))
        return said.getvalue()

    return run


def installs(environment: Environment) -> list[str]:
    calls = (place(environment) / "calls.txt").read_text().splitlines()
    return [c for c in calls if c.startswith("install") and "--report" not in c]


def test_the_first_start_says_what_it_costs_installs_torch_first_and_stamps(
    environment: Environment, ensure: Callable[..., str]
):
    said = ensure()
    assert "torch 2.13.0+cpu, CPU build: about 200 MB to download" in said
    assert said.index("200 MB") < said.index("torch: done in")
    first, second = installs(environment)
    assert first.endswith("torch==2.13.0")
    assert second.endswith(" one==1.0")
    assert environment.ready([LAB])


def test_the_second_start_calls_nobody(environment: Environment, ensure: Callable[..., str]):
    ensure()
    (place(environment) / "calls.txt").unlink()
    assert ensure() == ""
    assert not (place(environment) / "calls.txt").exists()


def test_the_tests_needs_come_on_top_and_leave_the_rest_alone(
    environment: Environment, ensure: Callable[..., str]
):
    ensure()
    ensure(LAB, TESTS)
    assert installs(environment)[2].endswith(" two==2.0")
    assert "one" not in installs(environment)[2]
    assert environment.ready([LAB, TESTS])


def test_a_torch_that_suits_is_kept(environment: Environment, ensure: Callable[..., str]):
    environment.make_folder()
    environment.create(Console(io.StringIO()))
    info = place(environment) / "site-packages" / "torch-2.12.1+cu126.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.12.1+cu126\n")
    (info / "INSTALLER").touch()
    (info / "RECORD").touch()
    ensure()
    (only,) = installs(environment)
    assert only.endswith(" one==1.0")


def test_a_requirement_that_changes_is_installed_alone(
    environment: Environment, ensure: Callable[..., str]
):
    ensure()
    (environment.root / LAB).write_text("torch==2.13.0\none==1.0\nthree==3.0\n")
    ensure()
    assert installs(environment)[-1].endswith(" three==3.0")
    assert environment.ready([LAB])


def test_a_failed_install_leaves_no_stamp_and_the_next_start_mends_it(
    environment: Environment, ensure: Callable[..., str]
):
    environment.make_folder()
    environment.create(Console(io.StringIO()))
    fails = place(environment) / "fails.txt"
    fails.write_text("ERROR: [Errno 28] No space left on device")
    with pytest.raises(CannotStart, match="the disk is full"):
        ensure()
    assert not environment.ready([LAB])
    fails.unlink()
    ensure()
    assert environment.ready([LAB])


def test_a_package_that_was_cut_short_is_installed_again(
    environment: Environment, ensure: Callable[..., str]
):
    ensure()
    (place(environment) / "site-packages" / "one-1.0.dist-info" / "RECORD").unlink()
    environment.stamp.unlink()
    said = ensure()
    assert "an earlier install was cut short: going on from there" in said
    assert installs(environment)[-1].endswith(" one==1.0")


@pytest.mark.skipif(os.name == "nt", reason="links")
def test_an_environment_that_no_longer_runs_is_made_anew(
    environment: Environment, ensure: Callable[..., str]
):
    ensure()
    environment.python.unlink()
    environment.python.symlink_to("/nowhere/python3")
    assert f"making {environment.folder}" in ensure()
    assert environment.ready([LAB])


class Told(io.StringIO):
    """A stream that tells when a word has come."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self.word, self.heard = word, threading.Event()

    def write(self, text: str) -> int:
        if self.word in text:
            self.heard.set()
        return super().write(text)


def test_two_starts_at_once_install_once_and_the_second_says_that_it_waits(
    environment: Environment,
):
    environment.make_folder()
    environment.create(Console(io.StringIO()))
    wait = place(environment) / "wait.txt"
    wait.touch()
    first, second = Told("asking pip"), Told("another start is installing just now")
    starts = []
    for said in (first, second):
        console = Console(said)
        starts.append(threading.Thread(target=start.ensure, args=(environment, (LAB,), console)))
        starts[-1].start()
        assert said.heard.wait(60)
    wait.unlink()
    for one in starts:
        one.join(timeout=60)
    assert len(installs(environment)) == 2  # torch and the rest, both by the first
    assert environment.ready([LAB])


def test_too_little_disk_is_said_before_the_download(
    environment: Environment, ensure: Callable[..., str], monkeypatch: pytest.MonkeyPatch
):
    usage = shutil.disk_usage(environment.root)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=300_000_000))
    with pytest.raises(CannotStart, match=r"needs about 2\.5 GB and its disk has 300 MB free"):
        ensure()
    assert installs(environment) == []


def test_a_folder_that_cannot_be_written_is_a_sentence(
    environment: Environment, ensure: Callable[..., str], monkeypatch: pytest.MonkeyPatch
):
    def refuse(self: Environment) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(self.folder))

    monkeypatch.setattr(Environment, "make_folder", refuse)
    with pytest.raises(CannotStart, match=r"cannot be written .* copy the checkout"):
        ensure()


def test_a_whole_environment_that_cannot_be_written_is_used_as_it_is(
    environment: Environment, ensure: Callable[..., str], monkeypatch: pytest.MonkeyPatch
):
    ensure()
    environment.stamp.unlink()

    def refuse(self: Environment) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(self.folder))

    monkeypatch.setattr(Environment, "make_folder", refuse)
    assert ensure() == ""


def never(arguments: list[str]) -> int:
    raise AssertionError(f"{arguments} ran on an interpreter that lacks what they need")


def test_the_command_goes_on_inside_the_environment(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
):
    handed: list[list[str]] = []

    def hand_over(python: Path, arguments: list[str]) -> int:
        handed.append([str(python), *arguments])
        return 7

    monkeypatch.setattr(start, "hand_over", hand_over)
    status = start._start(["run", "figure-5"], environment, Console(io.StringIO()), never)
    assert status == 7
    assert handed == [[str(environment.python), "run", "figure-5"]]


def test_a_restart_that_still_lacks_something_does_not_restart_again(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(start.RESTARTED, "1")
    with pytest.raises(CannotStart, match="remove the folder and start again"):
        start._start(["run", "figure-5"], environment, Console(io.StringIO()), never)


def test_help_and_typing_errors_install_nothing(
    environment: Environment, capsys: pytest.CaptureFixture[str]
):
    console = Console(io.StringIO())
    assert start._start(["--help"], environment, console, never) == 0
    assert "python3 -m kvlab COMMAND" in capsys.readouterr().out
    assert start._start([], environment, console, never) == 2
    with pytest.raises(CannotStart, match="there is no command 'appp': use one of app, lab"):
        start._start(["appp"], environment, console, never)
    assert not environment.folder.exists()


@pytest.mark.parametrize("error", [CannotStart("no room"), OSError(errno.ENOSPC, "No space left")])
def test_trouble_is_one_sentence_and_status_2(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(start, "_start", fail)
    assert start.start(["app"], never) == 2
    said = capsys.readouterr().err
    assert said.startswith("kvlab: ")
    assert said.count("\n") == 1


def test_a_fault_of_ours_is_status_1_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delenv("KVLAB_DEBUG", raising=False)
    monkeypatch.setattr(start, "_start", lambda *_: 1 // 0)
    assert start.start(["app"], never) == 1
    assert "our fault: ZeroDivisionError" in capsys.readouterr().err
