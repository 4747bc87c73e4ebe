"""The kernels compile to machine code for the GPUs that people have; no GPU is needed for that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED_MEMORY = 99 * 1024
"""Bytes that a program can have on every GPU from compute capability 8.0 on."""


@pytest.mark.long
@pytest.mark.parametrize("capability", ["80", "90"])
def test_every_kernel_compiles(capability: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).with_name("compile.py")), capability],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 3 * 7
    for name, dtype, _, shared in found:
        assert shared <= SHARED_MEMORY, f"{name} in {dtype} needs {shared} bytes of shared memory"
