"""A workload by the clock: when outputs come, with a clock whose numbers can be checked by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvlab.engine.config import EngineConfig
from kvlab.errors import BadInput
from kvlab.predict.clock import FIRST_STEP, HOST_STEP, StepShape
from kvlab.predict.commands import MOST_TRACED, predicted
from kvlab.predict.commands import Asked as Named
from kvlab.predict.outcome import delays, predict, quantile, statistics, summary
from kvlab.predict.replay import Played, play
from kvlab.predict.server import server_of
from kvlab.predict.workload import Asked, Workload, load_workload
from kvlab.runs.run import run_told
from kvlab.runs.scenario import scenario_from


class OneSecond:
    """Every step takes a second."""

    kind = source = known_error = "a test"

    def seconds(self, step: StepShape) -> float:
        return 1.0


def played(*asked: tuple[float, int, int], users: int | None = None, **settings: Any) -> Played:
    requests = tuple(Asked(*one) for one in asked)
    config = EngineConfig(**{"num_blocks": 8, "block_size": 16, **settings})
    return play(Workload("mine", requests, queued=False), config, OneSecond(), users=users)


START = FIRST_STEP + HOST_STEP


def test_a_step_after_another() -> None:
    run = played((0.0, 20, 3))
    assert run.first == pytest.approx([START + 1])
    # Without looking ahead the card waits for the host between two steps.
    assert run.last == pytest.approx([START + 3 + 2 * HOST_STEP])
    assert run.steps == 3


def test_looking_ahead_hides_the_host_and_lets_who_comes_wait_a_step_more() -> None:
    """B comes while A's second step runs and its third is decided: it runs in the fourth."""
    both = ((0.0, 20, 8), (1.5, 20, 1))
    ahead = played(*both, async_scheduling=True)
    assert ahead.last[0] == pytest.approx(START + 8)
    assert ahead.first[1] == pytest.approx(START + 4)
    assert ahead.taken[1] == pytest.approx(START + 2)
    behind = played(*both)
    assert behind.first[1] == pytest.approx(START + 3 + 2 * HOST_STEP)


def test_an_idle_server_starts_when_somebody_comes() -> None:
    run = played((0.0, 20, 1), (100.0, 20, 1))
    assert run.first[1] == pytest.approx(100 + HOST_STEP + 1)


def test_users_come_when_others_leave() -> None:
    run = played(*[(float(at), 10, 2) for at in range(6)], users=2)
    assert max(run.timeline.running) <= 2
    assert run.closed
    assert run.taken[:2] == [0.0, 0.0]
    assert run.taken[2] == pytest.approx(run.last[0])
    assert delays(run)["ttft_s"][2] == pytest.approx(1 + HOST_STEP)


def test_delays_count_from_arrival_or_from_when_a_real_engine_took_it_up() -> None:
    asked = (Asked(0.0, 20, 9), Asked(0.5, 20, 1))
    config = EngineConfig(num_blocks=8, block_size=16)
    sent = play(Workload("mine", asked, queued=False), config, OneSecond())
    taken = play(Workload("mine", asked, queued=True), config, OneSecond())
    wait = taken.taken[1] - 0.5
    assert wait > 0
    assert delays(sent)["ttft_s"][1] == pytest.approx(delays(taken)["ttft_s"][1] + wait)


def test_who_waits_is_told_by_what_for() -> None:
    run = played((0.0, 60, 30), (0.0, 60, 30), (0.0, 60, 2), num_blocks=8)
    assert "no_room" in run.timeline.kept
    few = played((0.0, 10, 9), (0.0, 10, 9), max_running=1)
    assert set(few.timeline.kept) == {"batch_full", ""}
    narrow = played((0.0, 60, 2), (0.0, 60, 2), step_tokens=30)
    assert "budget" in narrow.timeline.kept


def test_stop_is_heard() -> None:
    class Stop(Exception):
        pass

    def tick(share: float) -> None:
        assert 0 <= share <= 1
        raise Stop

    with pytest.raises(Stop):
        predict(server_of("rtx4090", "llama-3.1-8b"), load_workload("sharegpt-300"), tick=tick)


def test_quantiles_are_values_that_were_there() -> None:
    """The p99 of 300 is the 298th, as LLMServingSim's published 137.777 s is of the measured run."""
    assert quantile(list(range(1, 301)), 0.99) == 298
    assert statistics([3.0, 1.0, 2.0]) == {"mean": 2.0, "p50": 2.0, "p90": 3.0, "p99": 3.0}


def test_the_engine_with_its_events_runs_what_was_predicted() -> None:
    """The first 20 measured requests in a pool too small for them: step by step the same counts."""
    server = server_of("rtx4090", "llama-3.1-8b", settings=["engine.num_blocks=400"])
    run = predict(server, load_workload("sharegpt-300").first(20))
    assert run.engine.preemptions > 5
    found = predicted(
        Named(
            "sharegpt-300", "rtx4090", "llama-3.1-8b", settings=["engine.num_blocks=400"], first=20
        )
    )
    scenario = scenario_from(found.scenario(), Path(), "the prediction")
    told = run_told(scenario, found.played.decided).summary
    assert told["steps"] == len(run.decided)
    assert told["preemptions"] == run.engine.preemptions
    assert told["tokens_recomputed"] == run.engine.recomputed
    assert told["tokens_from_cache"] == run.engine.from_cache
    assert told["seconds"] == pytest.approx(sum(run.decided))
    assert [told["requests"][f"R{at + 1}"]["preemptions"] for at in range(20)] == [
        job.preemptions for job in run.jobs
    ]


def test_a_trace_that_nobody_could_open_is_refused_before_the_run() -> None:
    with pytest.raises(BadInput, match=f"more than the {MOST_TRACED:,} of a trace"):
        predicted(Named("azure-conv", "rtx4090", "llama-3.1-8b"), traced=True)


def test_a_workload_without_measurements_has_no_error() -> None:
    server = server_of("h100", "llama-3.1-8b")
    told = summary(server, predict(server, load_workload("sharegpt-300").at_rate(2).first(20)))
    assert "error" not in told
    assert "measured" not in told


@pytest.mark.full
def test_an_hour_of_azures_conversations() -> None:
    """19,366 requests; no time is asserted here, `kvlab predict azure-conv` shows it."""
    server = server_of("rtxpro6000", "llama-3.1-8b")
    run = predict(server, load_workload("azure-conv"))
    assert len(run.last) == 19_366
    assert min(run.last) > 0
    assert run.engine.preemptions == 0
    assert not run.engine.running
    assert not run.engine.waiting
