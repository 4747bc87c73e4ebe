"""What the article says beyond its figures, each as a shipped run. Numbers by hand from the rules of
a scenario: blocks of 4 slots, KV one position behind the history, a step that preempted admits nobody.
"""

from __future__ import annotations

from functools import cache

import pytest

from kvlab.engine.config import VICTIMS
from kvlab.models.loading import load_model
from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import load_scenario

story = cache(lambda: load_model("story", device="cpu"))


@cache
def summary(name, *settings):
    return run_scenario(load_scenario(name, ["device=cpu", *settings]), model=story()).summary


def outputs(made):
    return {id: request["output"] for id, request in made["requests"].items()}


def test_waiting_frees_nothing():
    """C waits from step 1 on, A and B run out in step 3 exactly as without it."""
    made = summary("waiting-frees-nothing")
    assert made["per_step"][0]["waiting"] == ["C"]
    assert "C" not in {id for step in made["per_step"][:8] for id in step["blocks"]}
    assert [step["free"] for step in made["per_step"][:8]] == [0, 0, 1, 1, 1, 4, 1, 4]
    assert made["per_step"][2]["preempted"][0]["id"] == "B"


def test_reserving_the_maximum_avoids_the_shortage_and_wastes_space():
    """A(7,6) and B(7,4) may need KV for 12 and 10 positions: 3 blocks each, of which 2 are used."""
    made = summary("reserve-max")
    assert made["preemptions"] == 0
    first = made["per_step"][0]
    assert {id: len(table) for id, table in first["blocks"].items()} == {"A": 3, "B": 3}
    assert first["reserved_unused"] == 2
    assert first["waiting"] == ["C"]
    assert outputs(made) == outputs(summary("reserve-max", "engine.allocation=on_demand"))


def test_a_shared_block_stays_in_place():
    made = summary("shared-stays")
    before, after = made["per_step"][:2]
    shared = set(before["blocks"]["A"]) & set(before["blocks"]["B"])
    assert len(shared) == 1
    (victim,) = after["preempted"]
    assert (victim["id"], victim["reclaimable"], victim["blocks"]) == ("B", 1, 2)
    assert shared < set(after["blocks"]["A"])


def test_a_cache_shortens_the_recovery():
    """9 tokens of history, 8 of them in two full blocks that nobody took: one is processed."""
    with_cache = summary("cache-shortens")
    without = summary("cache-shortens", "engine.prefix_cache=false")
    assert (with_cache["tokens_from_cache"], with_cache["tokens_recomputed"]) == (8, 0)
    assert (without["tokens_from_cache"], without["tokens_recomputed"]) == (0, 8)
    assert outputs(with_cache) == outputs(without)


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_policy_changes_who_waits_and_not_what_is_said(victim):
    made = summary("victims", f"engine.victim={victim}")
    assert made["preemptions"] >= 1
    assert outputs(made) == outputs(summary("victims", "engine.num_blocks=64"))


def test_policies_differ():
    """Step 3: A and B hold 2 and 3 blocks, C 2; computed 8, 12 and 5 positions."""
    chosen = {
        victim: summary("victims", f"engine.victim={victim}")["per_step"][2]["preempted"][0]["id"]
        for victim in VICTIMS
        if victim != "random"
    }
    assert chosen == {
        "newest": "C",
        "oldest": "A",
        "lowest_priority": "C",
        "least_computed": "C",
        "most_computed": "B",
        "most_reclaimable": "B",
        "cost_score": "C",
    }


def test_reuse_before_the_copy_loses_the_kv():
    made, safe = summary("unsafe-reuse"), summary("unsafe-reuse", "engine.unsafe=[]")
    layers = story().config.num_layers
    assert {(d["request"], d["why"]) for d in made["damage"]} == {("B", "reuse_before_copied")}
    assert len(made["damage"]) == 2 * layers
    assert safe["damage"] == []
    roomy = summary("unsafe-reuse", "engine.unsafe=[]", "engine.num_blocks=64")
    assert outputs(safe) == outputs(roomy)
    assert outputs(made)["B"] != outputs(roomy)["B"]


def test_a_storm_redoes_more_than_it_puts_out():
    made = summary("storm")
    (storm,) = made["storms"]
    assert storm["redone"] > storm["new"]
    assert made["tokens_recomputed"] > sum(map(len, outputs(made).values()))
    assert outputs(made) == outputs(summary("storm", "engine.num_blocks=64"))
    assert summary("figure-5")["storms"] == []


def test_some_space_is_not_enough_to_resume():
    """B's history of 9 tokens needs 3 blocks; one is free from step 3 on, four after step 6."""
    made = summary("space-but-no-resume")
    assert [step["free"] for step in made["per_step"][2:6]] == [1, 1, 1, 4]
    assert [step["waiting"] for step in made["per_step"][2:6]] == [["B"]] * 4
    assert made["per_step"][6]["resumed"] == ["B"]
