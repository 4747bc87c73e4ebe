"""From a clone and a bare Python to a result, as the README has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KEPT = ("PATH", "HOME", "LANG", "SYSTEMROOT", "TEMP", "TMP", "HTTPS_PROXY", "SSL_CERT_FILE")


def bare_python() -> str:
    """The interpreter that the tests' environment was made from."""
    return str(getattr(sys, "_base_executable", sys.executable))


@pytest.mark.full
def test_a_fresh_clone_runs_the_story_from_nothing(tmp_path: Path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    environment = {
        name: value for name, value in os.environ.items() if name in KEPT or name.startswith("PIP_")
    }
    command = [bare_python(), "-m", "kvlab", "run", "figure-5", "--summary"]

    def run() -> tuple[subprocess.CompletedProcess[str], float]:
        began = time.monotonic()
        done = subprocess.run(
            command, cwd=clone, env=environment, capture_output=True, text=True, check=False
        )
        return done, time.monotonic() - began

    first, _ = run()
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["tokens_processed"] == 30
    assert "torch: done in" in first.stderr

    second, seconds = run()
    assert second.returncode == 0
    assert second.stderr == ""
    assert seconds < 60
