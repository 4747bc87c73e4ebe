"""`kvlab bench cost`: a short run of it; how near the predictions are is no test's matter."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvlab.bench.cost import bench_cost, table
from kvlab.errors import BadInput
from kvlab.runtime import calibrate


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(calibrate, "LONG", 256)


def test_a_row_for_each_length_that_fits(tmp_path: Path) -> None:
    found = bench_cost("story", device="cpu", lengths=(64, 128, 4_096), rounds=2, budget=0.0)
    assert [row["tokens"] for row in found["rows"]] == [64, 128]
    for row in found["rows"]:
        for method in ("recompute", "swap"):
            measured, predicted = row["measured_seconds"][method], row["predicted_seconds"][method]
            assert row["ratio"][method] == pytest.approx(predicted / measured)
    assert len(list((tmp_path / "costs").iterdir())) == 1  # what `auto` finds from now on
    printed = table(found)
    assert "of 4 predictions within ±25%" in printed
    assert "measured just now on cpu" in printed


def test_a_context_too_short_for_any_row() -> None:
    with pytest.raises(BadInput, match="context of 2,048"):
        bench_cost("story", device="cpu", lengths=(4_096,))
