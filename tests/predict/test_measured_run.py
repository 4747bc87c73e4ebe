"""The prediction beside a run that was measured: vLLM 0.19.0 on an RTX 4090 with a full cache.

The measured statistics are those that LLMServingSim published of the run, not ours: TTFT 65.457 s in
the mean and 137.777 at p99, TPOT 32.4 ms, end to end 86.578 s, 2,588 blocks with vLLM's null block.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvlab.predict.outcome import DELAYS, STATISTICS, predict, summary
from kvlab.predict.replay import Played
from kvlab.predict.server import Server, server_of
from kvlab.predict.sheet_clock import SheetClock
from kvlab.predict.workload import load_workload


@cache
def run() -> tuple[Server, Played]:
    server = server_of("rtx4090", "llama-3.1-8b", settings=["engine.num_blocks=2587"])
    return server, predict(server, load_workload("sharegpt-300"))


@cache
def told() -> dict[str, Any]:
    return summary(*run())


def test_what_was_measured_is_what_was_published() -> None:
    measured = told()["measured"]
    assert measured["ttft_s"]["mean"] == pytest.approx(65.457, abs=5e-4)
    assert measured["ttft_s"]["p99"] == pytest.approx(137.777, abs=5e-4)
    assert measured["tpot_s"]["mean"] == pytest.approx(0.0324, abs=5e-5)
    assert measured["e2e_s"]["mean"] == pytest.approx(86.578, abs=5e-4)


@pytest.mark.parametrize("delay", DELAYS)
def test_means_are_within_half_a_percent_and_the_rest_within_one(delay: str) -> None:
    error = told()["error"][delay]
    assert abs(error["mean"]) <= 0.005
    assert all(abs(error[which]) <= 0.01 for which in STATISTICS)


def test_each_request_is_within_one_percent() -> None:
    assert told()["error"]["e2e_per_request"] <= 0.01


def test_errors_are_of_predicted_beside_measured() -> None:
    summary = told()
    for delay in DELAYS:
        for which in STATISTICS:
            ratio = summary[delay][which] / summary["measured"][delay][which]
            assert summary["error"][delay][which] == pytest.approx(ratio - 1)


def test_running_and_waiting_are_those_of_vllms_own_log() -> None:
    # vLLM logged once a second; a few of its lines: second, running, waiting.
    log = [(16, 25, 148), (24, 26, 209), (32, 38, 231), (40, 30, 234), (45, 29, 226), (58, 38, 193)]
    line = run()[1].timeline
    for second, running, waiting in log:
        at = next(i for i, end in enumerate(line.seconds) if end > second)
        assert abs(line.running[at] - running) <= 2
        assert abs(line.waiting[at] - waiting) <= 3


def test_the_pool_by_its_formula_is_within_one_percent() -> None:
    server = server_of("rtx4090", "llama-3.1-8b")
    assert server.pool is not None
    assert server.pool.blocks + 1 == pytest.approx(2588, rel=0.01)
    # Weights: 8,030,261,248 parameters of 2 bytes, as the model's card says.
    assert -server.pool.terms["weights"] == 16_060_522_496


def test_the_summary_has_every_key_of_its_contract() -> None:
    keys = {
        *("schema", "requests", "makespan_s", "steps", "preemptions", "requests_preempted"),
        *("tokens_recomputed", *DELAYS, "goodput_rps", "num_blocks", "clock", "measured", "error"),
    }
    assert keys <= told().keys()
    assert told()["schema"] == "kvlab-prediction/1"
    assert told()["clock"].keys() == {"kind", "source", "known_error"}
    assert told()["clock"]["kind"] == "tables"
    assert told()["num_blocks"] == 2587
    assert told()["makespan_s"] == pytest.approx(183.57, rel=0.005)


def test_the_guide_tells_these_numbers() -> None:
    guide = Path(__file__).resolve().parents[2] / "assets" / "docs" / "predicting.md"
    rows = dict(re.findall(r"^\| ([^|]+) \|(.+)\|$", guide.read_text("utf-8"), re.MULTILINE))
    for row, delay, which, scale in (
        ("TTFT, mean", "ttft_s", "mean", 1),
        ("TTFT, p99", "ttft_s", "p99", 1),
        ("TPOT, mean", "tpot_s", "mean", 1000),
        ("end to end, mean", "e2e_s", "mean", 1),
    ):
        measured, predicted, error = (float(cell.split()[0]) for cell in rows[row].split("|"))
        assert measured == pytest.approx(told()["measured"][delay][which] * scale, rel=2e-4)
        assert predicted == pytest.approx(told()[delay][which] * scale, rel=2e-4)
        assert error / 100 == pytest.approx(told()["error"][delay][which], abs=1e-4)


def test_a_data_sheet_clock_is_as_far_off_as_it_says() -> None:
    """Built for the RTX 4090 as for cards of which nothing else is known."""
    server, _ = run()

    class FromSheet(Server):
        def clock(self) -> SheetClock:
            return SheetClock(self.card, self.model, self.tp, "")

    sheet = FromSheet(server.card, server.model, 1, server.config, None)
    error = summary(sheet, predict(sheet, load_workload("sharegpt-300")))["error"]
    assert all(abs(error[delay]["mean"]) < 0.025 for delay in DELAYS)
    assert "2 % off on its measured run" in server_of("h100", "llama-3.1-8b").clock().known_error
    assert server_of("h100", "llama-3.1-8b").clock().kind == "data sheet"
