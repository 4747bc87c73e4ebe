"""pip as a child process: progress, plans, and failures as sentences."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from kvlab.errors import CannotStart, Console
from kvlab.launcher.pip import Pip, clean_environment, explain

FAKE = Path(__file__).with_name("fake_pip.py")


@pytest.fixture
def said() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def pip(tmp_path: Path, said: io.StringIO) -> Pip:
    return Pip((sys.executable, str(FAKE), str(tmp_path)), Console(said), tmp_path / "log.txt")


def test_an_install_says_how_long_it_took(pip: Pip, said: io.StringIO, tmp_path: Path):
    pip.install("packages", ["one==1.0", "two==2.0"])
    assert said.getvalue().startswith("kvlab: packages: done in ")
    assert (tmp_path / "site-packages" / "two-2.0.dist-info" / "RECORD").exists()


@pytest.mark.parametrize("terminal", [True, False])
def test_pips_own_progress_is_shown_on_a_terminal_and_never_on_stdout(
    pip: Pip, terminal: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pip.console, "terminal", terminal)
    pip.install("packages", ["one==1.0"])
    shown = capfd.readouterr()
    assert ("Collecting one==1.0" in shown.err) is terminal
    assert shown.out == ""


def test_a_failed_install_is_one_sentence_that_names_the_log(pip: Pip, tmp_path: Path):
    (tmp_path / "fails.txt").write_text(
        "ERROR: Could not install: [Errno 28] No space left on device"
    )
    with pytest.raises(CannotStart) as caught:
        pip.install("packages", ["one==1.0"])
    assert str(caught.value) == (
        "pip could not install: the disk is full: free some space (or set TMPDIR to a folder with "
        f"room) and start again (pip's own words: {tmp_path / 'log.txt'})"
    )


def test_a_plan_is_read_past_pips_warnings(pip: Pip):
    planned = pip.plan(["torch==2.13.0"])
    assert (planned.version, planned.needs) == ("2.13.0+cpu", ("filelock",))


def test_a_pip_that_is_not_there_is_a_sentence(tmp_path: Path):
    pip = Pip((str(tmp_path / "absent"),), Console(io.StringIO()), tmp_path / "log.txt")
    with pytest.raises(CannotStart, match="does not start"):
        pip.plan(["torch==2.13.0"])


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        ("NewConnectionError(...): Failed to establish a new connection", "check the network"),
        ("ReadTimeoutError(\"HTTPSConnectionPool(host='x', port=443)\")", "check the network"),
        ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]'))", "PIP_CERT"),
        ("ProxyError('Cannot connect to proxy.')", "HTTPS_PROXY"),
        ("ERROR: [Errno 13] Permission denied: '/x'", "may not be written"),
        (
            "ERROR: Could not find it\nERROR: No matching distribution found for torch==2.13.0",
            "no build of torch==2.13.0",
        ),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES", "damaged"),
        ("Traceback (most recent call last):\n  x\nERROR: something else", "something else"),
        ("", "status 3"),
    ],
)
def test_failures_become_one_sentence(output: str, words: str):
    sentence = explain(output, 3, None)
    assert words in sentence
    assert "\n" not in sentence
    assert "Traceback" not in sentence


def test_a_failure_of_the_network_wins_over_the_missing_build_that_it_causes():
    output = (
        "WARNING: Retrying after connection broken by 'NewConnectionError(...)'\n"
        "ERROR: No matching distribution found for torch==2.13.0"
    )
    assert "check the network" in explain(output, 1, None)


def test_what_would_send_packages_elsewhere_is_kept_from_pip(monkeypatch: pytest.MonkeyPatch):
    for name in ("PIP_TARGET", "PIP_PREFIX", "PYTHONPATH", "PYTHONHOME", "PIP_USER"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "here")
    cleaned = clean_environment()
    assert cleaned["PIP_USER"] == "0"
    assert cleaned["PIP_FIND_LINKS"] == "here"
    assert not {"PIP_TARGET", "PIP_PREFIX", "PYTHONPATH", "PYTHONHOME"} & cleaned.keys()
