"""What fits within limits, what breaks first, and what would have helped."""

from __future__ import annotations

from functools import cache

import pytest

from kvlab.errors import BadInput
from kvlab.predict.helped import Helped, cause, helped
from kvlab.predict.helped import report as helped_report
from kvlab.predict.helped import summary as helped_summary
from kvlab.predict.outcome import delays, predict, statistics
from kvlab.predict.plan import FINE, Limit, Plan, limit_of, plan, report, summary
from kvlab.predict.server import Server, server_of
from kvlab.predict.workload import Workload, load_workload

LIMIT = limit_of("ttft_s.p90<2")


def server() -> Server:
    return server_of("rtx4090", "llama-3.1-8b", settings=["engine.num_blocks=800"])


def workload() -> Workload:
    return load_workload("sharegpt-300").first(40)


@cache
def found() -> Plan:
    return plan(server(), workload(), [LIMIT])


@cache
def ranked() -> Helped:
    return helped(server(), workload())


def test_limits_are_read() -> None:
    assert limit_of("ttft_s.p99<2") == Limit("ttft_s", "p99", 2.0)
    assert limit_of(" tpot_s.mean <= 0.05 ") == Limit("tpot_s", "mean", 0.05)


@pytest.mark.parametrize(
    "text", ["ttft<2", "ttft_s.p98<2", "ttft_s.p99>2", "ttft_s.p99<0", "e2e_s.p50<x"]
)
def test_what_is_no_limit_is_told_how_to_be_one(text: str) -> None:
    with pytest.raises(BadInput, match=r"write it as DELAY\.STATISTIC<SECONDS"):
        limit_of(text)


def test_without_a_limit_there_is_no_plan() -> None:
    with pytest.raises(BadInput, match="give at least one"):
        plan(server(), workload(), [])


def test_the_rate_found_meets_the_limit_and_a_little_more_does_not() -> None:
    best = found().rate
    assert best is not None
    assert best.rate is not None

    def p90(rate: float) -> float:
        return statistics(delays(predict(server(), workload().at_rate(rate)))["ttft_s"])["p90"]

    assert p90(best.rate) == pytest.approx(best.delays["ttft_s"]["p90"])
    assert p90(best.rate) < 2
    assert p90(best.rate * (1 + 2 * FINE)) >= 2


def test_so_many_users_meet_it_and_a_few_more_do_not() -> None:
    most = found().users
    assert most is not None
    assert most.users is not None
    assert most.delays["ttft_s"]["p90"] < 2
    more = predict(server(), workload(), users=most.users + max(2, int(most.users * 2 * FINE)))
    assert statistics(delays(more)["ttft_s"])["p90"] >= 2


def test_delays_grow_along_the_curve() -> None:
    curve = found().curve
    assert [one.rate for one in curve] == sorted(one.rate for one in curve if one.rate)
    assert curve[0].delays["ttft_s"]["p90"] < 2 <= curve[-1].delays["ttft_s"]["p90"]
    assert curve[0].preemptions <= curve[-1].preemptions


def test_a_small_pool_breaks_by_memory_and_few_places_by_places() -> None:
    assert found().breaks == "memory"
    assert "blocks" in found().why
    few = server().changed(max_running=2)
    assert plan(few, workload(), [LIMIT]).breaks == "places"


def test_a_large_pool_breaks_by_compute() -> None:
    large = server_of("rtxpro6000", "llama-3.1-8b")
    assert plan(large, workload(), [limit_of("ttft_s.mean<0.3")]).breaks == "compute"


def test_a_limit_that_nothing_meets_is_told() -> None:
    nothing = plan(server(), workload().first(10), [limit_of("ttft_s.mean<0.001")])
    assert nothing.rate is None
    assert nothing.users is None
    assert "no rate meets the limits" in report(nothing)


def test_the_summary_says_what_the_report_says() -> None:
    told = summary(found())
    assert told["schema"] == "kvlab-plan/1"
    assert told["limits"] == ["ttft_s.p90<2"]
    assert f"x {told['rate']['rate']:.3g}" in report(found())
    assert f"{told['users']['users']} requests in flight" in report(found())


TEN = {
    *("watermark", "max_running", "step_tokens", "victim", "swap"),
    *("prefix_cache", "chunk", "memory", "reserve", "cards"),
}


def test_ten_changes_are_ranked_by_what_they_take_off() -> None:
    effects = ranked().effects
    assert {effect.change.key for effect in effects} == TEN
    gains = [effect.gain for effect in effects]
    assert gains == sorted(gains, reverse=True)
    for effect in effects:
        assert effect.gain == pytest.approx(1 - effect.delays["e2e_s"] / ranked().base["e2e_s"])


def test_each_effect_is_a_run_of_its_own() -> None:
    more = next(effect for effect in ranked().effects if effect.change.key == "memory")
    played = predict(more.change.server, workload())
    assert played.engine.preemptions == more.preemptions
    # 4 GiB are 2,048 blocks of 2 MiB.
    assert more.change.server.config.num_blocks == server().config.num_blocks + 2048
    reserve = next(effect for effect in ranked().effects if effect.change.key == "reserve")
    assert reserve.preemptions == 0


def test_swap_says_that_vllm_has_none() -> None:
    swap = next(effect for effect in ranked().effects if effect.change.key == "swap")
    assert "vLLM's V1 engine has no swap" in swap.change.note
    assert "positions copied out and in" in swap.cause
    assert swap.change.note in helped_report(ranked())


def test_causes_are_counts_of_both_runs() -> None:
    base, changed = (
        predict(one, workload()) for one in (server(), server().changed(max_running=6))
    )
    told = cause(base, changed)
    counts = f"{changed.engine.preemptions:,} preemptions instead of {base.engine.preemptions:,}"
    assert counts in told
    assert cause(base, base) == "nothing that was counted differs"


def test_the_comparison_as_json() -> None:
    told = helped_summary(ranked())
    assert told["base"]["preemptions"] == ranked().preemptions
    assert {change["key"] for change in told["changes"]} == TEN
