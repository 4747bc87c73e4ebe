"""Kernels run in a process of their own: see worker.py."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("worker.py")

Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def ask() -> Iterator[Ask]:
    """ask(kind, **case) has the worker run one case: interpreted on the CPU, compiled on a GPU."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip(
            "triton is not installed (there is none for this system, or tests/requirements)"
        )
    interpreted = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # all products are tiny
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", str(WORKER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **one_thread, **interpreted},
    )
    assert process.stdin
    assert process.stdout

    def send(kind: str, **case: Any) -> dict[str, Any]:
        assert process.stdin
        assert process.stdout
        print(json.dumps([kind, case]), file=process.stdin, flush=True)
        line = process.stdout.readline()
        assert line, f"the worker ended with {process.wait()}"
        answer: dict[str, Any] = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer

    yield send
    process.stdin.close()
    process.wait(timeout=30)
