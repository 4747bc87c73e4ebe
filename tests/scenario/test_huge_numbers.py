"""Whole numbers that no counter holds are refused in one sentence, wherever they stand."""

from __future__ import annotations

import pytest

from kvlab.errors import BadInput
from kvlab.runs.scenario import load_scenario

HUGE = "0x" + "f" * 5_000
"""More digits than Python turns into text."""


@pytest.mark.parametrize("value", [HUGE, str(1 << 63), str(-(1 << 63) - 1)])
@pytest.mark.parametrize(
    "path", ["requests.A.seed", "engine.num_blocks", "requests.A.priority", "lesson.x"]
)
def test_a_value_is_refused(path: str, value: str) -> None:
    with pytest.raises(BadInput, match="64 bits") as refusal:
        load_scenario("figure-5", [f"{path}={value}"])
    assert len(str(refusal.value)) < 300


def test_a_prompt_token_is_refused() -> None:
    with pytest.raises(BadInput, match="64 bits"):
        load_scenario("figure-5", [f"requests.A.prompt=[1, {HUGE}]"])


def test_the_largest_seed_is_taken() -> None:
    assert load_scenario("figure-5", [f"requests.A.seed={(1 << 63) - 1}"]).name == "figure-5"
