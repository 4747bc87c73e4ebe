"""Who is paused: the right victim of each policy, on one situation made by hand.

Four requests run in a pool of 9 blocks of 4 that is full after step 2, and in step 3 W asks for a
block. What a policy may look at then (X, with two samples, shares one full block with itself):

    running order   W     X     Y     Z
    priority        0     2     0     1
    computed        8     5     4     7
    blocks          2     2     1     2
    outputs of max  2/9   2/3   2/8   2/20
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kvlab.engine.config import VICTIMS
from kvlab.engine.cost_model import CostModel, Machine, ModelShape
from kvlab.engine.policies import Candidate, PolicyError, VictimPolicy
from tests.engine.harness import STORY, CellRunner, Lab, Record, act, ask, pool, run, snapshot

SITUATION = [
    Candidate("W", priority=0, computed=8, outputs=2, max_tokens=9, blocks=2, reclaimable=2),
    Candidate("X", priority=2, computed=5, outputs=2, max_tokens=3, blocks=2, reclaimable=1),
    Candidate("Y", priority=0, computed=4, outputs=2, max_tokens=8, blocks=1, reclaimable=1),
    Candidate("Z", priority=1, computed=7, outputs=2, max_tokens=20, blocks=2, reclaimable=2),
]


@pytest.mark.parametrize(
    ("policy", "victim"),
    [
        ("newest", "Z"),
        ("oldest", "W"),
        ("lowest_priority", "X"),  # 2 is the largest number, the last
        ("least_computed", "Y"),
        ("most_computed", "W"),
        ("most_reclaimable", "Z"),  # 2 like W; among equals the newest
        # cost_score: W 2/8 x 7/9 = 0.194, X 1/5 x 1/3 = 0.067, Y 1/4 x 6/8 = 0.1875, Z 2/7 x 0.9
        ("cost_score", "Z"),
    ],
)
def test_each_policy_chooses_its_victim(policy: str, victim: str) -> None:
    assert VictimPolicy(policy).choose(SITUATION, "W") == victim


def test_cost_score_by_hand() -> None:
    """reclaimable / computed x share of the output still to come."""
    assert [candidate.cost_score for candidate in SITUATION] == pytest.approx(
        [2 / 8 * 7 / 9, 1 / 5 * 1 / 3, 1 / 4 * 6 / 8, 2 / 7 * 18 / 20]
    )


def test_random_is_seeded() -> None:
    def chosen(seed: int) -> list[str]:
        policy = VictimPolicy("random", seed)
        return [policy.choose(SITUATION, "W") for _ in range(40)]

    assert chosen(1) == chosen(1)
    assert chosen(1) != chosen(2)
    assert set(chosen(1)) == {"W", "X", "Y", "Z"}


@pytest.mark.parametrize("policy", ["least_computed", "most_computed", "most_reclaimable"])
def test_among_equals_the_newest(policy: str) -> None:
    equal = [Candidate(id, 0, 4, 1, 4, 1, 1) for id in "ABC"]
    assert VictimPolicy(policy).choose(equal, "A") == "C"


# In the engine.


@pytest.mark.parametrize(
    ("policy", "victim"),
    [
        ("newest", "C"),
        ("oldest", "A"),
        ("lowest_priority", "B"),
        ("least_computed", "C"),
        ("most_computed", "A"),
        ("most_reclaimable", "B"),
        ("cost_score", "C"),  # A 2/8 x 6/8 = 0.19, B 2/7 x 6/8 = 0.21, C 1/3 x 6/8 = 0.25
    ],
)
def test_the_engines_first_victim(policy: str, victim: str) -> None:
    """After step 2: A 8 positions in 2 blocks, B 7 in 2, C 3 in 1; free 0. A asks in step 3.

    A itself is a candidate and has most positions; of A and B, two blocks each, B is the newer.
    """
    priority = 3 if policy == "lowest_priority" else 0
    requests = [ask("A", 7, 8), ask("B", 6, 8, priority=priority), ask("C", 2, 8)]
    record = run(pool(5, victim=policy), requests)
    assert record.state(2).kv == {"A": 8, "B": 7, "C": 3}
    step, first = record.victims[0]
    assert (step, first.id, first.why, first.need_of) == (3, victim, policy, "A")


@pytest.mark.parametrize("policy", VICTIMS)
@pytest.mark.parametrize("method", ["recompute", "swap"])
def test_every_policy_serves_everybody(policy: str, method: str) -> None:
    requests = [ask(id, 5, 9, priority=at % 3) for at, id in enumerate("ABCDE")]
    record = run(pool(6, victim=policy, method=method), requests)
    assert record.victims
    assert all(record.finish(id) == "length" for id in "ABCDE")


@pytest.mark.parametrize("policy", VICTIMS)
@pytest.mark.parametrize("admission", ["whole_sequence", "first_chunk"])
def test_recoveries_in_chunks_do_not_rob_each_other_for_ever(policy: str, admission: str) -> None:
    """Two histories of 13 and more in 4 blocks, computed 2 tokens a step: a policy that always takes
    the furthest (or the oldest) must still let one of them get through."""
    requests = [ask(id, 13, 3) for id in "AB"]
    record = run(pool(victim=policy, chunk_tokens=2, admission=admission), requests, most=500)
    assert record.finish("A") == record.finish("B") == "length"


def test_most_computed_with_many_chunks_ends() -> None:
    """Found at random: each request was preempted whenever it was the furthest, and none got on."""
    requests = [
        ask("A", 6, 10, priority=2), ask("B", 7, 7, n=2), ask("C", 8, 5, arrival_step=1),
        ask("D", 5, 6, arrival_step=6, n=2),
    ]  # fmt: skip
    config = pool(9, 2, victim="most_computed", chunk_tokens=1, admission="first_chunk")
    record = run(config, requests, most=1_000)
    assert all(request.finish_reason == "length" for request in record.engine.requests.values())


# A function.


def test_a_function_sees_the_candidates_and_who_is_in_need() -> None:
    seen: list[tuple[list[Candidate], str]] = []

    def choose(candidates: Sequence[Candidate], need: str) -> str:
        seen.append((list(candidates), need))
        return candidates[-1].id

    record = run(pool(victim=choose), STORY)
    ((candidates, need),) = seen
    assert need == "A"
    assert candidates == [
        Candidate("A", 0, 8, 2, 6, 2, 2),
        Candidate("B", 0, 8, 2, 4, 2, 2),
    ]
    assert [(v.id, v.why) for _, v in record.victims] == [("B", "choose")]


def raises(candidates: Sequence[Candidate], need: str) -> str:
    raise KeyError("no such thing")


def names_nobody(candidates: Sequence[Candidate], need: str) -> str:
    return "nobody"


def names_the_waiting(candidates: Sequence[Candidate], need: str) -> str:
    return "W"


def gives_none(candidates: Sequence[Candidate], need: str) -> str:
    return None  # type: ignore[return-value]


@pytest.mark.parametrize("function", [raises, names_nobody, names_the_waiting, gives_none])
@pytest.mark.parametrize("method", ["recompute", "pause_only"])
def test_a_function_that_fails_ends_the_request_in_need(
    function: Callable[[Sequence[Candidate], str], str], method: str
) -> None:
    """A, in need in step 3, ends with an error that names the function; B and W go on."""
    requests = [*STORY, ask("W", 9, 2)]
    record = run(pool(victim=function, method=method), requests)
    assert record.finish("A") == "error"
    assert "the victim function" in (record.request("A").message or "")
    assert len(record.outputs("A")) == 2
    assert record.finish("B") == record.finish("W") == "length"
    assert record.victims == []
    assert record.report(3).stalled == []


def test_a_policy_error_is_typed() -> None:
    with pytest.raises(PolicyError, match="named 'nobody'"):
        VictimPolicy(names_nobody).choose(SITUATION, "W")
    with pytest.raises(PolicyError, match="raised KeyError"):
        VictimPolicy(raises).choose(SITUATION, "W")


def test_neither_the_ended_nor_the_given_back_are_candidates() -> None:
    """Every offer holds running requests only, each with something to yield."""
    offers: list[list[Candidate]] = []
    running: list[tuple[str, ...]] = []
    labs: list[Lab] = []

    def choose(candidates: Sequence[Candidate], need: str) -> str:
        offers.append(list(candidates))
        running.append(snapshot(labs[0].engine).running)
        return candidates[0].id

    requests = [ask(id, 5, 7 + at) for at, id in enumerate("ABCDE")]
    labs.append(Lab(pool(6, victim=choose), requests))
    record = labs[0].run()
    assert offers
    for offer, ids in zip(offers, running, strict=True):
        assert {candidate.id for candidate in offer} <= set(ids)
        assert all(candidate.reclaimable > 0 for candidate in offer)
    assert all(record.finish(id) == "length" for id in "ABCDE")


# How it resumes: auto.


class Priced(CellRunner):
    """A runner that states its rates."""

    def __init__(self, tokens_per_second: float, bytes_per_second: float = 1_000.0) -> None:
        super().__init__(4)
        # Half a parameter: one operation a token. A block of 2 tokens has 2 x (2 x 25) bytes.
        shape = ModelShape(
            "x", 0.5, layers=1, heads=0, kv_heads=1, head_dim=1, bytes=25, source="x"
        )
        machine = Machine(
            "x",
            operations=tokens_per_second,
            memory=1e9,
            out_link=bytes_per_second,
            in_link=2 * bytes_per_second,
            copy_seconds=0.0,
            source="x",
        )
        self._rates = CostModel(shape, machine, block_size=2, source="x")

    def costs(self) -> CostModel:
        return self._rates


def test_the_cost_model_by_hand() -> None:
    """8 tokens at 40 a second; 2 blocks of 100 bytes out at 1,000 and in at 2,000 bytes a second."""
    model = Priced(40.0).costs()
    assert model.recompute_seconds(8) == pytest.approx(0.2)
    assert model.swap_seconds(2) == pytest.approx(0.2 + 0.1)


@pytest.mark.parametrize(
    ("tokens_per_second", "method", "fallback", "host_blocks"),
    [
        (40.0, "recompute", None, 4),  # 0.2 s against 0.3 s
        (20.0, "swap", None, 4),  # 0.4 s against 0.3 s
        (20.0, "recompute", "host_full", 1),  # swap would be cheaper, and has no room
        (40.0, "recompute", None, 1),  # recompute is cheaper: a full host pool does not matter
    ],
)
def test_auto_takes_the_cheaper_and_records_both(
    tokens_per_second: float, method: str, fallback: str | None, host_blocks: int
) -> None:
    runner = Priced(tokens_per_second)
    record = run(pool(method="auto", host_blocks=host_blocks), STORY, runner=runner)
    ((_, victim),) = record.victims
    assert (victim.method, victim.fallback) == (method, fallback)
    assert victim.recompute_s == pytest.approx(8 / tokens_per_second)
    assert victim.swap_s == pytest.approx(0.3)
    assert record.engine.costs == runner.costs()


def test_other_methods_measure_nothing() -> None:
    record = run(pool(method="swap"), STORY)
    ((_, victim),) = record.victims
    assert (victim.recompute_s, victim.swap_s) == (None, None)
    assert record.engine.costs is None


# Storms.


def thrash(**settings: Any) -> Record:
    """Eight requests that each need five blocks, in a pool of nine, all admitted at once."""
    requests = [ask(id, 4, 16) for id in "ABCDEFGH"]
    return run(pool(9, **settings), requests)


@pytest.mark.parametrize("method", ["recompute", "swap"])
def test_thrashing_is_a_storm(method: str) -> None:
    record = thrash(method=method, host_blocks=40)
    assert record.thrashing
    assert record.events("storm_detected")
    for storm in record.thrashing:
        assert storm.redone > storm.new
        assert 1 <= storm.first <= storm.last <= record.steps


def test_the_article_is_no_storm() -> None:
    """One long recovery: 8 tokens redone, 10 put out, one preemption."""
    for method in ("recompute", "swap"):
        assert run(pool(method=method), STORY).thrashing == []


def test_a_storms_numbers_are_those_of_its_steps() -> None:
    record = thrash(victim="oldest")
    assert record.thrashing
    for storm in record.thrashing:
        steps = [record.report(step) for step in range(storm.first, storm.last + 1)]
        assert storm.redone == sum(report.tokens_again for report in steps)
        assert storm.new == sum(len(tokens) for r in steps for tokens in r.emitted.values())


def test_no_pressure_no_storm() -> None:
    record = run(pool(60), [ask(id, 4, 16) for id in "ABCDEFGH"], [act(3, "preempt", "A")])
    assert record.thrashing == []
