"""What "Look inside" says in notebooks 01 to 05, held against the engine and against the recorded
events of the same run."""

from __future__ import annotations

import torch

from kvlab import Engine
from kvlab.runs.run import Run
from kvlab.trace.facts import first


def at(name: str, steps: int, *settings: str) -> Engine:
    engine = Engine.of(name, *settings)
    for _ in range(steps):
        engine.step()
    return engine


def looked_01(story: Run) -> list[str]:
    wrote = first(story.trace, "kv_written", id="A", step=2)
    size = story.trace.document["pool"]["block_size"]
    engine = at("figure-1", 1)
    slot = engine.pool[0].k[wrote["block"], wrote["slot"]]
    assert slot.abs().sum() == 0
    engine.step()
    keys, _ = engine.kv("A")
    assert slot.abs().sum() > 0
    assert torch.equal(keys[wrote["first"]], slot)
    assert (wrote["block"], wrote["slot"]) == (1, size - 1)
    return [
        "That was step 1;",
        f"block number times {size}, plus",
        f"Position {wrote['first']} has no KV yet; its place is the last slot of P1.",
        f"take step {wrote['step']}, and",
        f"the key of position {wrote['first']}.",
    ]


def looked_02(story: Run) -> list[str]:
    gone, wrote = first(story.trace, "preempted"), first(story.trace, "kv_written", step=4, id="A")
    engine = at("figure-2", gone["step"] - 1)
    kept, _ = engine.kv("B")
    table = engine.block_table("B")
    engine.step()
    keys = engine.pool[0].k
    assert table == [2, 3]
    assert (engine.block_table("B"), engine.free_blocks) == ([], [3])
    assert (wrote["block"], wrote["slot"]) == (2, 0)
    assert torch.equal(keys[3], kept[4:8])
    assert torch.equal(keys[2, 1:], kept[1:4])
    assert not torch.equal(keys[2, 0], kept[0])
    return [
        f"to the end of step {gone['step'] - 1}, in which B is skipped",
        f"Step {gone['step']} releases both blocks",
        "its first slot held B's position 4.",
        "the first slot alone, where B's position 0 was.",
    ]


def looked_03(story: Run) -> list[str]:
    gone, back = first(story.trace, "preempted"), first(story.trace, "resumed")
    engine = at("figure-3", gone["step"] - 1)
    last = len(engine.pool) - 1
    lost, _ = engine.kv("B", layer=last)
    for _ in range(back["step"] - gone["step"] + 1):
        engine.step()
    rebuilt, _ = engine.kv("B", layer=last)
    assert (rebuilt[: gone["kv"]] - lost).abs().max() <= 2e-5
    return [
        f"at the end of step {gone['step'] - 1}, where all {gone['kv']} positions are computed",
        f"in another order, and {len(rebuilt)} positions. Compare the first {gone['kv']} with",
    ]


def looked_04(story: Run) -> list[str]:
    gone, back = first(story.trace, "preempted"), first(story.trace, "swap_in_finished")
    engine = at("figure-4", gone["step"] - 1)
    before, _ = engine.kv("B")
    engine.step()
    assert torch.equal(engine.host_pool[0].k[:2].flatten(0, 1), before)
    for _ in range(back["step"] - gone["step"]):
        engine.step()
    assert torch.equal(engine.kv("B")[0][: gone["kv"]], before)
    assert engine.block_table("B")[:2] == list(back["table"])
    roomy = at("figure-4", 3, "engine.num_blocks=64")
    assert roomy.history("B") == engine.history("B")
    for one, other in zip(engine.kv("B"), roomy.kv("B"), strict=True):
        assert (one - other).abs().max() <= 2e-5
    return []


def looked_05(story: Run) -> list[str]:
    resumed = first(story.trace, "resumed")
    received = [e["step"] for e in story.trace.events if e["kind"] == "token_delivered"]
    gap = story.trace.steps[2:7]
    assert [step["step"] for step in gap] == [3, 4, 5, 6, resumed["step"]]
    assert received.count(resumed["step"]) == 1
    assert all(step["seconds"] > 0 for step in gap)
    return []


LOOKED = {1: looked_01, 2: looked_02, 3: looked_03, 4: looked_04, 5: looked_05}
