"""Every number in the notebooks' prose, held against a fresh run.

A fact is a sentence part with the run's numbers in it. Each fact must stand in the prose; when all
are taken out, no number is left over. Names are no numbers: p0, x1, P2, figure 2, notebook links.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import pytest
from committed import COURSE, read

from kvlab.lessons.cost import MACHINES
from kvlab.lessons.facts import entry_of, first, free_after, gaps, longest_gap
from kvlab.lessons.runs import run_lesson
from kvlab.run import Run
from kvlab.widgets.charts import cost_curves

Runs = Callable[..., Run]

WORDS = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty"
NAMES = re.compile(r"\]\([^)]*\)|\b[pxPH]\d+\b|\[\d · |^# \d · |\d+ minutes|python3", re.MULTILINE)
PHRASES = ["The two still", "Can the two still run", "Two requests, A and B"]
"""Where a number word is a word and no measurement."""


def facts_01(run: Runs) -> list[str]:
    story, roomy = run("figure-1"), run("figure-1", "engine.num_blocks=6")
    pool, need = story.trace.document["pool"], first(story.trace, "block_needed")
    one, two = entry_of(story.trace, 1), entry_of(story.trace, 2)
    size = pool["block_size"]
    kv, held = one["kv"]["A"], len(one["blocks"]["A"])
    assert one["kv"] == {"A": kv, "B": kv}
    assert two["kv"] == {"A": 8, "B": 8}
    assert sum(two["kv"].values()) == pool["num_blocks"] * size
    third = [
        event["step"]
        for event in roomy.trace.events
        if event["kind"] == "block_allocated" and event["logical"] == 2
    ]
    assert len(third) == 2
    assert third[0] == third[1]
    assert free_after(roomy.trace, third[0]) == 0
    assert roomy.summary["preemptions"] == 0
    assert all(r["finish_reason"] == "length" for r in roomy.summary["requests"].values())
    return [
        f"The pool has {pool['num_blocks']} blocks of {size} slots",
        f"Step {one['step']} processes the prompts, {first(story.trace, 'arrived')['history']} "
        f"tokens each: {kv} positions in {held} blocks leave {held * size - kv} slot empty. With "
        f"{one['free']} free blocks",
        f"Step {two['step']} fills it. Each request has KV for {two['kv']['A']} positions, and all "
        f"{pool['num_blocks'] * size} slots",
        f"Step {need['step']} should process A's output x1, at position {need['position']}.",
        f"Positions count from 0, so position {need['position']} is number {need['position'] + 1}.",
        f"dashed line in step {two['step']}",
        f"from step {need['step']} on",
        f"Give the pool {roomy.trace.document['pool']['num_blocks']} blocks.",
        f"In step {third[0]} both take a third block, and again "
        f"{free_after(roomy.trace, third[0])} blocks",
        "run it with 5 blocks",
    ]


def facts_02(run: Runs) -> list[str]:
    story = run("figure-2")
    late = run("figure-2", "actions=[{step: 6, preempt: B, method: recompute}]")
    stuck = run("figure-2", "actions=[]")
    skip, gone = first(story.trace, "paused"), first(story.trace, "preempted")
    release = first(story.trace, "block_released")
    took = first(story.trace, "block_allocated", step=gone["step"], id="A")
    wrote = first(story.trace, "kv_written", step=gone["step"], id="A")
    after = entry_of(story.trace, gone["step"])
    assert release["blocks"] == [2, 3]
    assert took["blocks"] == [2]
    assert (wrote["block"], wrote["slot"]) == (2, 0)
    assert {r["finish_reason"] for r in stuck.summary["requests"].values()} == {"kv_capacity"}
    assert late.summary["requests"]["A"]["preemptions"] == 0
    assert entry_of(story.trace, skip["step"])["blocks"]["B"] == [2, 3]
    return [
        f"In step {gone['step']} the scenario then asks",
        f"In step {skip['step']}, B is skipped. It still holds P2 and P3, so "
        f"{free_after(story.trace, skip['step'])} blocks are free",
        f"In step {gone['step']}, B releases P2 and P3: {release['free']} blocks are free. A "
        f"receives P2, and its block table grows to {len(after['blocks']['A'])} rows. Position "
        f"{wrote['first']} goes",
        f"A now has KV for {after['kv']['A']} positions in {len(after['blocks']['A'])} blocks, and "
        f"{after['free']} block, P3, stays free.",
        f"its history of {gone['history']} tokens: {gone['history'] - gone['delivered']} of the",
        f"the release come in step {first(late.trace, 'preempted')['step']} instead",
        f"its user waits {longest_gap(late.trace, 'A').steps} steps instead of "
        f"{longest_gap(story.trace, 'A').steps}, although",
    ]


def facts_03(run: Runs) -> list[str]:
    story, roomy = run("figure-3"), run("figure-3", "engine.num_blocks=64")
    small = run("figure-3", "engine.block_size=2", "engine.num_blocks=8")
    gone, back = first(story.trace, "preempted"), first(story.trace, "resumed")
    ran = first(story.trace, "scheduled", step=back["step"])
    rebuilt = [e for e in story.trace.events if e.get("why") == "rebuilt"]
    fresh = first(story.trace, "kv_written", step=back["step"], why="first")
    after = entry_of(story.trace, back["step"])
    processed, again = (story.summary[f"tokens_{name}"] for name in ("processed", "recomputed"))
    sizes = small.trace.document["pool"]
    for id, request in story.summary["requests"].items():
        assert request["output"] == roomy.summary["requests"][id]["output"]
    assert roomy.summary["preemptions"] == 0
    assert after["emitted"]["B"] == [story.summary["requests"]["B"]["output"][2]]
    assert small.summary["tokens_recomputed"] == again
    return [
        f"from the pause in step {gone['step']} to the return in step {back['step']}",
        f"has KV for {back['kv']} positions, but its history keeps all {gone['history']} tokens",
        f"In step {back['step']} there is room for B. All {ran['tokens']} tokens go through",
        f"Positions {rebuilt[0]['first']} to {rebuilt[-1]['last']} had KV before, so these "
        f"{back['rebuild']} are rebuilt. Position {fresh['first']} belongs to x1",
        f"The result fills {len(after['blocks']['B'])} blocks",
        f"they are {gone['history']}, {back['kv']}, {gone['delivered']} and 0.",
        f"sent {processed} tokens through the model; {again} of them were computed a second time, "
        f"so {processed - again} were new work",
        f"into {sizes['num_blocks']} blocks of {sizes['block_size']} slots",
        f"Still {small.summary['tokens_recomputed']}.",
    ]


def facts_04(run: Runs) -> list[str]:
    story, recompute = run("figure-4"), run("figure-3")
    tight = run("figure-4", "engine.host_blocks=1")
    out, back = first(story.trace, "swap_out_started"), first(story.trace, "swap_in_started")
    ran = first(story.trace, "scheduled", step=back["step"])
    third = first(story.trace, "block_allocated", step=back["step"], logical=2)
    after = entry_of(story.trace, back["step"])
    model = story.trace.document["model"]
    stored = [e["step"] for e in story.summary["per_step"] if e["host_kv"]]
    assert out["blocks"] == [2, 3]
    assert back["blocks"] == [3, 0]
    assert third["blocks"] == [1]
    assert story.summary["bytes_swapped_out"] == story.summary["bytes_swapped_in"]
    moved = out["kv"] * model["kv_bytes_per_token"]
    assert story.summary["bytes_swapped_out"] == moved
    fallen = tight.summary
    costs = cost_curves(MACHINES["H100, PCIe 5"])
    again, large, small = costs.values()
    assert all(a < b for a, b in zip(large, again, strict=True))
    assert sum(a > b for a, b in zip(small, again, strict=True)) > len(again) / 2
    return [
        f"B's KV, {out['kv']} positions in {len(out['blocks'])} blocks, is copied",
        f"In step {back['step']}, B receives P3 and P0, and the {back['kv']} positions return",
        f"brings B to {after['kv']['B']} positions. Only {ran['tokens']} token went",
        f"from step {stored[0]} to step {stored[-1]}",
        "20 times each",
        f"Swap computed {story.summary['tokens_recomputed']} tokens again instead of "
        f"{recompute.summary['tokens_recomputed']}, and moved {moved:,} bytes in each direction. "
        f"The bytes are no mystery: {out['kv']} positions of {model['kv_bytes_per_token']:,} bytes",
        f"Leave {tight.trace.document['pool']['host_blocks']} block in the CPU pool. B's KV needs "
        f"{len(out['blocks'])}.",
        f"{fallen['tokens_recomputed']} tokens are computed again and "
        f"{fallen['bytes_swapped_out']} bytes are moved",
    ]


def facts_05(run: Runs) -> list[str]:
    story, swapped = run("figure-5"), run("figure-5", "engine.method=swap")
    shorter = run("figure-5", "requests.A.max_tokens=4")
    gap, same = longest_gap(story.trace, "B"), longest_gap(swapped.trace, "B")
    less = longest_gap(shorter.trace, "B")
    sent = {
        e["index"]: e["step"]
        for e in story.trace.events
        if e["kind"] == "token_delivered" and e["id"] == "B"
    }
    waits = [e for e in story.trace.events if e["kind"] == "kept_waiting"]
    end = first(story.trace, "block_released", id="A")
    back = first(story.trace, "resumed")
    others = {g.steps for g in gaps(story.trace) if g != gap}
    outputs = sum(len(r["output"]) for r in story.summary["requests"].values())
    assert [free_after(story.trace, step) for step in (3, 4, 5)] == [1, 1, 1]
    assert less.recovery == gap.recovery
    return [
        f"x0 and x1 in steps {sent[0]} and {sent[1]}. Then nothing, until x2 arrives in step "
        f"{sent[2]}: a gap of {gap.steps} steps where all others are {others.pop()}.",
        f"Of these, {gap.waiting} steps are waiting: B has no place. The last {gap.recovery} is "
        f"recovery: B's history of {back['history']} tokens",
        f"From step {waits[0]['step']} to step {end['step'] - 1}, {waits[0]['free']} block is free",
        f"because its {waits[0]['history']} tokens need {waits[0]['needs']} blocks",
        f"In step {end['step']}, A delivers its last output and releases its {len(end['blocks'])} "
        f"blocks. Now {end['free']} are free, and B resumes in step {back['step']}.",
        f"again {same.waiting} of waiting and {same.recovery} of recovery",
        f"Let A stop after {len(shorter.summary['requests']['A']['output'])} outputs",
        f"The gap is {less.steps} steps now: {less.waiting} of waiting and {less.recovery} of",
        f"Here {story.summary['preemptions']} preemption cost B's user {gap.waiting} steps, and "
        f"the engine delivered {outputs} outputs in {story.summary['steps']} steps.",
    ]


def facts_06(run: Runs) -> list[str]:
    most, newest = run("victims"), run("victims", "engine.victim=newest")
    victim, taken = first(most.trace, "preempted"), entry_of(most.trace, 3)
    before = entry_of(most.trace, victim["step"] - 1)["blocks"]
    assert victim["step"] == 3
    assert (victim["id"], victim["reclaimable"]) == ("B", 3)
    assert max(before, key=lambda id: len(before[id])) == "B"
    assert taken["free"] > 0
    assert outputs(most) == outputs(newest)
    shared = first(run("shared-stays").trace, "preempted", id="B")
    cached = run("cache-shortens")
    back = first(cached.trace, "scheduled", id="B", why="decode", step=7)
    assert back["tokens"] == 1
    reserved = run("reserve-max")
    waits = first(reserved.trace, "kept_waiting", id="C")
    assert reserved.summary["preemptions"] == 0
    waiting = run("waiting-frees-nothing")
    storm = run("storm")
    calm = run("storm", "engine.admission=whole_sequence", "engine.watermark_blocks=3")
    assert storm.summary["storms"] != []
    assert calm.summary["storms"] == []
    unsafe, safe = run("unsafe-reuse"), run("unsafe-reuse", "engine.unsafe=[]")
    assert {found["request"] for found in unsafe.summary["damage"]} == {"B"}
    assert len({found["block"] for found in unsafe.summary["damage"]}) == 2
    assert safe.summary["damage"] == []
    assert unsafe.summary["requests"]["B"]["text"] != safe.summary["requests"]["B"]["text"]
    return [
        f"in step {victim['step']} one of them is a block short",
        f"B holds {victim['held']} blocks, more than A or C, so it is chosen. It also has the "
        f"longest history: {most.summary['tokens_recomputed']} positions",
        f"{newest.summary['tokens_recomputed']} tokens are computed again instead of "
        f"{most.summary['tokens_recomputed']}.",
        f"B holds {shared['held']} blocks when it is paused, but only {shared['reclaimable']} can",
        f"{cached.summary['tokens_from_cache']} positions are found in the cache, so "
        f"{cached.summary['tokens_recomputed']} are computed again.",
        f"after step {waits['step']} there are {entry_of(reserved.trace, 1)['reserved_unused']} "
        f"blocks reserved and unused, while C, which needs {waits['needs']} block",
        f"A and B run out in step {first(waiting.trace, 'block_needed')['step']} all the same",
        f"There are {storm.summary['preemptions']} preemptions, and "
        f"{storm.summary['tokens_recomputed']} tokens are computed again: more than the "
        f"{sum(map(len, outputs(storm)))} tokens",
        f"Now there are {calm.summary['preemptions']} preemptions, and "
        f"{calm.summary['tokens_recomputed']} tokens",
        # What the settings in the cells beside them say.
        "A and B begin with the same four tokens",
        "for its whole history, and for 3 blocks more",
        "Here 60 requests",
        "the thin bar spans the two seeds",
        "Three requests share a pool",
        "waits for all three?",
        "gives back 3 blocks be worse than one that gives back 1?",
        "Four requests pause each other",
    ]


def outputs(made: Run) -> list[list[int]]:
    return [request["output"] for request in made.summary["requests"].values()]


FACTS = [facts_01, facts_02, facts_03, facts_04, facts_05, facts_06]


@pytest.fixture(scope="module")
def run() -> Runs:
    """A run of a figure with settings, made once."""
    return cache(lambda name, *settings: run_lesson(name, settings))


@pytest.mark.parametrize("number", range(len(FACTS)), ids=[path.stem for path in COURSE])
def test_every_number_is_the_runs(number: int, run: Runs):
    cells = [c.source for c in read(COURSE[number]).cells if c.cell_type == "markdown"]
    prose = "\n\n".join(cells)
    for fact in sorted(FACTS[number](run), key=len, reverse=True):
        assert fact in prose
        prose = prose.replace(fact, "")
    for phrase in PHRASES:
        prose = prose.replace(phrase, "")
    left = re.findall(rf"[^\n]*(?:\d|\b(?:{WORDS})\b)[^\n]*", NAMES.sub("", prose))
    assert left == []
