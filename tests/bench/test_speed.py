"""`kvlab bench engine` on the story model: every contestant does the same work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from kvlab.bench import speed
from kvlab.bench.speed.contestants import Outcome, check_lengths
from kvlab.bench.speed.vllm_peer import Vllm
from kvlab.bench.speed.work import BLOCK_SIZE, serving
from kvlab.errors import BadInput

pytestmark = pytest.mark.long
VOCABULARY = 1_024


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speed, "BATCHES", (2,))
        patch.setattr(speed, "PREFILLS", (64,))
        patch.setattr(speed, "DECODED", 3)
        patch.setattr(speed, "REQUESTS", 4)
        patch.setattr(speed, "OUTPUTS", 40)
        said: list[str] = []
        return speed.bench_engine("story", "float32", None, True, 1, said.append)


def test_all_give_the_same_tokens(found: dict[str, Any]) -> None:
    """Greedy, float32: transformers is the source of what is right."""
    for work, by_name in found["works"].items():
        for name, one in by_name.items():
            requests = {"decode, batch 2": 2, "prefill 64": 1}.get(work, 4)
            assert one["same_outputs"] == requests, (work, name)


def test_half_the_blocks_press_and_all_of_them_do_not(found: dict[str, Any]) -> None:
    half, whole = (found["works"][f"serving, pool {share}%"] for share in (50, 100))
    for method in ("recompute", "swap", "auto"):
        assert half[f"kvlab {method}"]["preemptions"] > 0
    assert whole["kvlab recompute"]["preemptions"] == 0
    assert "transformers continuous" in half
    assert "transformers padded" not in half


def test_the_table_names_all_and_their_floors(found: dict[str, Any]) -> None:
    text = speed.table(found)
    for words in ("serving, pool 50%", "transformers padded", "linear layers, 2 rows", "x1.00"):
        assert words in text
    assert found["works"]["decode, batch 2"]["kvlab recompute"]["speed"] == 1


def test_the_work_needs_what_it_says() -> None:
    whole, half = (serving(VOCABULARY, share, 16, 64) for share in (1.0, 0.5))
    needed = [-(-(len(prompt) + 64) // BLOCK_SIZE) for prompt in whole.prompts]
    assert (whole.blocks, half.blocks) == (sum(needed), round(sum(needed) / 2))
    assert whole.prompts == half.prompts
    assert all(32 <= len(prompt) <= 128 for prompt in whole.prompts)


def test_missing_outputs_are_told_and_not_timed() -> None:
    work = serving(VOCABULARY, 1.0, 2, 3)
    with pytest.raises(BadInput, match="request 1 gave 2 of 3"):
        check_lengths("somebody", work, Outcome(1.0, [[1, 2, 3], [1, 2]]).outputs)


def test_a_vllm_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"--vllm .*nowhere"):
        Vllm(tmp_path / "nowhere", tmp_path, "float32")


def test_a_vllm_that_ends_says_why(tmp_path: Path) -> None:
    """Any Python without vLLM is such a one."""
    peer = Vllm(Path(sys.executable), tmp_path, "float32")
    try:
        with pytest.raises(BadInput, match="No module named 'vllm'"):
            peer.run(serving(VOCABULARY, 1.0, 1, 1))
    finally:
        peer.close()
