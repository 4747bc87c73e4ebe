"""pip as a child process: progress, plans, and failures as sentences."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from kvlab.console import CannotStart, Console
from kvlab.launcher.pip import Pip, Progress, clean_environment, explain

FAKE = Path(__file__).with_name("fake_pip.py")


@pytest.fixture
def said() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def pip(tmp_path: Path, said: io.StringIO) -> Pip:
    return Pip((sys.executable, str(FAKE), str(tmp_path)), Console(said), tmp_path / "log.txt")


def test_an_install_says_how_long_it_took_and_keeps_the_whole_output(
    pip: Pip, said: io.StringIO, tmp_path: Path
):
    pip.install("packages", ["one==1.0", "two==2.0"])
    assert said.getvalue().startswith("kvlab: packages: done in ")
    log = (tmp_path / "log.txt").read_text()
    assert "Collecting two==2.0" in log
    assert "Progress " not in log


def test_a_failed_install_is_one_sentence_that_names_the_log(pip: Pip, tmp_path: Path):
    (tmp_path / "fails.txt").write_text(
        "ERROR: Could not install: [Errno 28] No space left on device"
    )
    with pytest.raises(CannotStart) as caught:
        pip.install("packages", ["one==1.0"])
    assert str(caught.value) == (
        "pip could not install: the disk is full: free some space (or set TMPDIR to a folder with "
        f"room) and start again (all of pip's output: {tmp_path / 'log.txt'})"
    )


def test_a_plan_is_read_past_pips_warnings(pip: Pip):
    (planned,) = pip.plan(["torch==2.13.0"])
    assert (planned.name, planned.version, planned.needs) == ("torch", "2.13.0+cpu", ("filelock",))


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


def test_progress_names_the_package_and_its_size():
    progress = Progress("packages")
    assert str(progress) == "packages: looking up"
    progress.read("Collecting jupyterlab==4.6.6 (from -r requirements.txt (line 5))\n")
    assert str(progress) == "packages: 1 so far, looking up jupyterlab"
    progress.read("  Downloading jupyterlab-4.6.6-py3-none-any.whl.metadata (16 kB)\n")
    assert str(progress) == "packages: 1 so far, looking up jupyterlab"
    progress.read("  Downloading jupyterlab-4.6.6-py3-none-any.whl (12.3 MB)\n")
    assert str(progress) == "packages: downloading jupyterlab-4.6.6, 12.3 MB"
    progress.read("Progress 6150000 of 12300000\n")
    assert str(progress) == "packages: downloading jupyterlab-4.6.6, 6 MB of 12 MB"
    progress.read("Processing ./wheels/torch-2.13.0-cp311.whl (from -r x)\n")
    assert str(progress) == "packages: reading torch-2.13.0"
    progress.read("Installing collected packages: a, b, c\n")
    assert str(progress) == "packages: unpacking 3 packages"


def test_what_would_send_packages_elsewhere_is_kept_from_pip(monkeypatch: pytest.MonkeyPatch):
    for name in ("PIP_TARGET", "PIP_PREFIX", "PYTHONPATH", "PYTHONHOME", "PIP_USER"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "here")
    cleaned = clean_environment()
    assert cleaned["PIP_USER"] == "0"
    assert cleaned["PIP_FIND_LINKS"] == "here"
    assert not {"PIP_TARGET", "PIP_PREFIX", "PYTHONPATH", "PYTHONHOME"} & cleaned.keys()
