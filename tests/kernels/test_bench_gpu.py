"""`kvlab bench gpu` without a GPU: it refuses in a sentence, and its rehearsal goes through."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kvlab.bench.gpu import run
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
ABSENT = {"typer", "yaml", "jsonschema", "anywidget", "ipywidgets", "plotly", "voila", "IPython"}


def on_a_bare_machine(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script in a Python that has none of the lab's other needs."""
    code = BARE.format(absent=ABSENT, arguments=list(arguments))
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # all products are tiny
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
    done = on_a_bare_machine("--device", "cpu", "--json", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert not [name for name, part in found.items() if "failed" in part or "skipped" in part]
    assert found["engine_tokens"]["right"]
    assert found["orderings"]["right"]
    assert [row["batch"] for row in found["decode_tiny"]] == [1, 16]
    assert [row["block_size"] for row in found["recompute_against_swap_tiny"][0]["by_block_size"]]
    assert set(found["swap"]["seconds"]) >= {"plain_out", "out", "in", "out_block_by_block"}
    assert found["targets"]["swap out"]["target"] == 0.9


def test_what_was_found_is_kept_when_time_runs_out(tmp_path: Path) -> None:
    found = run(tmp_path / "found.json", device="cpu", seconds=0, say=lambda line: None)
    assert found["engine_tokens"] == {"skipped": "no time was left"}
    assert json.loads((tmp_path / "found.json").read_text()) == found
    assert found["targets"]["swap out"]["met"] is None
