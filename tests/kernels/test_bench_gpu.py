"""`kvlab bench gpu` without a GPU: it refuses in a sentence, and its rehearsal goes through."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kvlab.bench.gpu import checks, parts
from kvlab.bench.gpu.bench import Bench, Late
from kvlab.bench.gpu.run import command, run
from kvlab.errors import BadInput

ROOT = Path(__file__).resolve().parents[2]
BARE = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from kvlab.bench.gpu.__main__ import main
sys.argv[1:] = {arguments}
sys.exit(main())
"""
ABSENT = {
    *("typer", "yaml", "jsonschema", "anywidget", "ipywidgets", "plotly", "voila", "IPython"),
    *("jupyterlab", "tokenizers", "safetensors", "jinja2", "psutil", "transformers", "gguf"),
}


def on_a_bare_machine(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the script in a Python that has torch and Triton, and none of the lab's other needs."""
    code = BARE.format(absent=ABSENT, arguments=list(arguments))
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},  # all products are tiny
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="for a machine without a GPU")
def test_without_a_gpu_it_refuses_in_one_sentence_and_writes_nothing(tmp_path: Path) -> None:
    done = on_a_bare_machine("--json", str(tmp_path / "found.json"))
    assert done.returncode == 2
    assert done.stderr == "bench gpu needs a CUDA device, and torch sees none here.\n"
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be written: there is no folder"):
        run(tmp_path / "none" / "found.json", device="cpu")


def test_the_rehearsal_goes_through_every_part(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    asked = ("--device", "cpu", "--json", str(tmp_path / "found.json"))
    done = on_a_bare_machine(*asked, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["faults"] == {}
    assert found["targets"]["right"] == dict.fromkeys(
        ("kernels", "engine_tokens", "orderings"), True
    )
    assert len(found["kernels"]["attention"]) == len(parts.ATTENTION_CASES)
    assert [row["batch"] for row in found["decode_tiny"]] == [1, 16]
    assert [row["block_size"] for row in found["recompute_against_swap_tiny"][0]["by_block_size"]]
    assert set(found["swap"]["seconds"]) >= {"plain_out", "out", "in", "out_block_by_block"}
    assert found["targets"]["swap out"]["target"] == 0.9


def test_kernels_that_cannot_run_are_named_and_fail_the_command() -> None:
    done = on_a_bare_machine("--device", "cpu", TRITON_INTERPRET="0")
    assert done.returncode == 1
    named = [
        line for line in done.stdout.splitlines() if line.startswith("kernels: it did not run")
    ]
    assert len(named) == 1


def fail(late: Late) -> object:
    raise ArithmeticError("no such number")


def run_out(late: Late) -> object:
    return [] if late() else None


@pytest.mark.parametrize(
    ("work", "seconds", "fault"),
    [
        (fail, 60, "it failed (no such number)"),
        (lambda late: {"skipped": "no kernel"}, 60, "it did not run (no kernel)"),
        (lambda late: {"right": False}, 60, "what it found is wrong"),
        (run_out, 0, "its time ran out before its end"),
        (lambda late: {"right": True}, 60, ""),
        (lambda late: [], 60, ""),
    ],
    ids=["crashed", "not run", "wrong", "late", "right", "measured"],
)
def test_what_counts_as_a_fault(work: Callable[[Late], object], seconds: int, fault: str) -> None:
    said: list[str] = []
    bench = Bench(torch.device("cpu"), None, said.append, time.perf_counter() + 60)
    bench.part("one", seconds, work)
    bench.part("two", 60, lambda late: {}, needs=("one",))
    if fault:
        assert bench.faults == {"one": fault, "two": "it did not run (it needs one)"}
        assert fault in said[0]
    else:
        assert bench.faults == {}


def test_a_part_that_crashes_ends_neither_the_run_nor_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(checks, "orderings", fail)
    monkeypatch.setattr(parts, "kernels", lambda *_, **__: {"right": True})
    monkeypatch.setattr(parts, "model_parts", lambda *_: None)
    assert command(tmp_path / "found.json", device="cpu") == 1
    assert capsys.readouterr().out.splitlines()[-1] == "orderings: it failed (no such number)"
    found = json.loads((tmp_path / "found.json").read_text())
    assert list(found["faults"]) == ["orderings"]
    assert found["swap"]["seconds"]  # the parts after it


def test_what_was_found_is_kept_when_time_runs_out(tmp_path: Path) -> None:
    found = run(tmp_path / "found.json", device="cpu", seconds=0, say=lambda line: None)
    assert found["engine_tokens"] == {"skipped": "no time was left"}
    assert json.loads((tmp_path / "found.json").read_text()) == found
    assert found["targets"]["swap out"]["met"] is None
    assert "it did not run" in found["faults"]["decode_tiny"]
