"""All pairs of features in random runs, held against one count of its own.

What the runner was asked to compute and to copy, what the users had after each step and who held what
between two steps are the raw facts; the numbers of the summary are counted from them again here,
naively. `Lab` looks at the invariants after every step, and at the tokens of a pool that never runs out.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from kvlab.engine.actions import Action, SettingChange
from kvlab.engine.config import VICTIMS, EngineConfig
from kvlab.engine.request import Batch, Request, Sampled
from kvlab.engine.runner import Pairs
from kvlab.trace.check import check_story
from kvlab.trace.recorder import event_json
from kvlab.trace.summary import RunFacts, summarise
from tests.engine.harness import CellRunner, Lab, Snapshot, act, again, ask, oracle_outputs

RUNS = 250
MOST_STEPS = 600


class Listening(CellRunner):
    """Notes what it is asked to do: per execution (id, start, tokens), and the blocks copied."""

    def __init__(self, block_size: int) -> None:
        super().__init__(block_size)
        self.asked: list[tuple[str, int, int]] = []
        self.moved: Counter[str] = Counter()

    def execute(self, batch: Batch) -> list[Sampled]:
        self.asked += [
            (scheduled.id, scheduled.start, len(scheduled.tokens)) for scheduled in batch
        ]
        return super().execute(batch)

    def copy_out(self, pairs: Pairs, *, before_last_write: bool = False) -> None:
        self.moved["out"] += len(pairs)
        super().copy_out(pairs, before_last_write=before_last_write)

    def copy_in(self, pairs: Pairs) -> None:
        self.moved["in"] += len(pairs)
        super().copy_in(pairs)


@dataclass
class Count:
    """One sample, counted from the raw facts. Steps are numbers of steps."""

    arrival: int
    ever: int = 0  # positions below had KV before
    sent: list[int] = field(default_factory=list)
    recomputed: int = 0
    from_cache: int = 0
    from_own_cache: int = 0
    preempted: list[int] = field(default_factory=list)
    came_back: list[int] = field(default_factory=list)
    ran: set[int] = field(default_factory=set)

    @property
    def gaps(self) -> list[tuple[int, int, int]]:
        """(waiting, recovery, decoding) between each output and the next."""
        found = []
        for before, now in zip(self.sent, self.sent[1:], strict=False):
            lost = [step for step in self.preempted if before < step <= now]
            if lost:
                back = max(step for step in self.came_back if before < step <= now)
                found.append((back - 1 - before, now - back + 1, 0))
            else:
                idle = sum(step not in self.ran for step in range(before + 1, now + 1))
                found.append((idle, 0, now - before - idle))
        return found


class Recount:
    """Counts while a run goes on."""

    def __init__(
        self, requests: Sequence[Request], actions: Sequence[Action | SettingChange]
    ) -> None:
        self.asked = {request.id: request for request in requests}
        self.to_preempt = {
            (action.step, action.id)
            for action in actions
            if isinstance(action, Action) and action.action == "preempt"
        }
        self.of: dict[str, Count] = {}
        self.processed = 0
        self.before: Snapshot | None = None

    def see(self, step: int, lab: Lab, now: Snapshot) -> None:
        runner, before = lab.runner, self.before
        outputs = {id: len(request.outputs) for id, request in lab.engine.requests.items()}
        for id in outputs:
            if id not in self.of:
                parent = self.asked[id.partition(".")[0]]
                # A fork is there when its prompt is computed.
                self.of[id] = Count(parent.arrival_step, len(parent.prompt) if "." in id else 0)
        in_batch_before = {*before.running, *before.paused} if before else set()
        for id in in_batch_before:
            asked_for = (step, id.partition(".")[0]) in self.to_preempt
            if id in now.waiting or (asked_for and id not in now.history):  # it ended by that
                self.of[id].preempted.append(step)
        ran = set()
        for id, start, tokens in runner.asked:
            count = self.of[id]
            ran.add(id)
            count.ran.add(step)
            if start and id not in in_batch_before:
                kept = (before.kv.get(id, 0) + before.host_kv.get(id, 0)) if before else 0
                if start != kept:
                    count.from_cache += start
                    count.from_own_cache += min(start, count.ever)
                    count.ever = max(count.ever, start)
            count.recomputed += max(0, min(start + tokens, count.ever) - start)
            count.ever = max(count.ever, start + tokens)
            self.processed += tokens
        runner.asked = []
        running_before = set(before.running) if before else set()
        for id in (set(now.running) | ran) - running_before:
            self.of[id].came_back.append(step)
        for id, length in outputs.items():
            if length > len(self.of[id].sent):
                assert length == len(self.of[id].sent) + 1
                self.of[id].sent.append(step)
        self.before = now


@dataclass(frozen=True)
class Work:
    config: EngineConfig
    requests: tuple[Request, ...]
    actions: tuple[Action | SettingChange, ...]


def work_of(seed: int) -> Work:
    """Each feature is on in some of the runs, so that every pair of them meets in many."""
    draw = random.Random(seed)

    def some(value: Any, default: Any, share: float = 0.4) -> Any:
        return value if draw.random() < share else default

    blocks = draw.randint(3, 10)
    method = draw.choice(["recompute", "swap", "swap", "auto", "pause_only"])
    config = EngineConfig(
        num_blocks=blocks,
        block_size=draw.choice([1, 2, 4, 4]),
        host_blocks=draw.choice([0, 2, 4, 12]),
        method=method,
        victim=some(draw.choice(VICTIMS), "newest"),
        prefix_cache=some(True, False, 0.5),
        step_tokens=some(draw.randint(1, 8), None),
        chunk_tokens=some(draw.randint(1, 6), None),
        max_running=some(draw.randint(1, 3), None),
        watermark_blocks=some(min(draw.randint(1, 2), blocks - 1), 0),
        admission=some("first_chunk", "whole_sequence"),
        copy_blocks_per_step=some(draw.randint(1, 3), None),
        preempt_for_priority=method != "pause_only" and some(True, False, 0.5),
    )
    requests = []
    for number in range(draw.randint(2, 4)):
        alike, own = draw.choice([0, 4, 8, 8]), draw.randint(1, 5)
        requests.append(
            ask(
                "ABCD"[number],
                [*range(alike), *(100 + number * 10 + at for at in range(own))],
                draw.randint(1, 8),
                priority=some(draw.randint(0, 2), 0, 0.6),
                arrival_step=some(draw.randint(1, 5), 0),
                n=some(draw.randint(2, 4), 1, 0.3),
                temperature=1.0,
                seed=number,
            )
        )
    actions: dict[int, Action | SettingChange] = {}  # one a step
    for _ in range(draw.choice([0, 0, 1, 2, 3])):
        step, id = draw.randint(1, 9), draw.choice(requests).id
        verb = draw.choice(["pause", "preempt", "abort", "set", "next_victim"])
        if verb == "set":
            change = draw.choice(
                [("method", "recompute"), ("method", "swap"), ("victim", "oldest")]
            )
            actions[step] = SettingChange(step=step, setting=change[0], value=change[1])
        else:
            way = draw.choice([None, "swap", "recompute"]) if verb == "preempt" else None
            actions[step] = act(step, verb, id, way)
        if verb == "pause":
            actions[step + draw.randint(10, 14)] = act(step + 14, "resume", id)
    in_order = sorted(actions.values(), key=lambda action: action.step)
    return Work(config, tuple(requests), tuple(in_order))


def judge(work: Work) -> Counter[str]:
    """Run it, count again, compare; returns what happened in it."""
    runner = Listening(work.config.block_size)
    expected = oracle_outputs(work.config, work.requests, CellRunner(work.config.block_size))
    lab = Lab(work.config, map(again, work.requests), work.actions, runner, expected=expected)
    recount = Recount(work.requests, work.actions)
    events: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    while lab.engine.has_work or not steps:
        report = lab.step()
        assert report.step < MOST_STEPS, "the run does not end"
        recount.see(report.step, lab, lab.record.states[-1])
        first = len(events)
        events += [event_json(event) for event in report.events]
        steps.append({"step": report.step, "first": first, "end": len(events), "seconds": 0.0})
        active = lab.record.states[-1].running
        assert len(active) <= (work.config.max_running or len(active))
    document = document_of(lab, events, steps)
    summary = document["summary"]
    compare_steps(summary["per_step"], lab)
    compare_requests(summary, recount, lab)
    assert (summary["blocks_swapped_out"], summary["blocks_swapped_in"]) == (
        runner.moved["out"],
        runner.moved["in"],
    )
    check_story(document, "the run")
    return Counter(event["kind"] for event in events)


def document_of(lab: Lab, events: list[Any], steps: list[Any]) -> dict[str, Any]:
    engine, config = lab.engine, lab.config
    document: dict[str, Any] = {
        "model": {"stand_in": True},
        "pool": {
            "num_blocks": config.num_blocks,
            "block_size": config.block_size,
            "host_blocks": config.host_blocks,
            "kv_bytes_per_block": 0,
        },
        "requests": [
            {"id": r.id, "prompt": list(r.prompt), "max_tokens": r.max_tokens}
            for r in engine.requests.values()
        ],
        "events": events,
        "steps": steps,
    }
    facts = RunFacts(
        scenario="pairs",
        model=None,
        device="none",
        dtype="none",
        seconds=0.0,
        scheduling_seconds=0.0,
        batch=engine.queues.order,
        logprobs={},
        costs=None,
    )
    return document | {"summary": summarise(facts, document)}


def compare_steps(entries: list[dict[str, Any]], lab: Lab) -> None:
    for entry, state in zip(entries, lab.record.states, strict=True):
        for name in ("running", "waiting", "paused"):
            assert tuple(entry[name]) == getattr(state, name), (entry["step"], name)
        for name in (
            "free",
            "cached",
            "in_flight",
            "host_free",
            "reserved_unused",
            "history",
            "kv",
        ):
            assert entry[name] == getattr(state, name), (entry["step"], name)
        for name in ("blocks", "host_blocks"):
            held = {id: tuple(table) for id, table in entry[name].items()}
            assert held == getattr(state, name), (entry["step"], name)


def compare_requests(summary: dict[str, Any], recount: Recount, lab: Lab) -> None:
    totals: Counter[str] = Counter()
    for id, entry in summary["requests"].items():
        samples = [sample for sample in recount.of if sample.partition(".")[0] == id]
        counts = [recount.of[sample] for sample in samples]
        first = counts[0]
        own = {
            "recomputed": sum(count.recomputed for count in counts),
            "from_cache": sum(count.from_cache for count in counts),
            "from_own_cache": sum(count.from_own_cache for count in counts),
            "preemptions": sum(len(count.preempted) for count in counts),
        }
        assert {name: entry[name] for name in own} == own, id
        totals.update(own)
        ttft = [count.sent[0] - count.arrival if count.sent else None for count in counts]
        assert entry["ttft_steps"] == ttft[0], id
        assert entry.get("sample_ttft_steps", ttft) == ttft, id
        assert entry["gaps_steps"] == [sum(gap) for gap in first.gaps], id
        assert [tuple(gap.values()) for gap in entry["gaps"]] == first.gaps, id
        for place, name in enumerate(("waiting_steps", "recovery_steps")):
            assert entry[name] == sum(gap[place] for count in counts for gap in count.gaps), id
        ended = [lab.engine.requests[sample].finish_reason for sample in samples]
        assert entry.get("sample_reasons", ended) == ended
        assert entry["finish_reason"] == ended[0]
        outputs = [lab.engine.requests[sample].outputs for sample in samples]
        assert entry.get("samples", outputs) == outputs
    assert summary["tokens_processed"] == recount.processed
    assert summary["tokens_recomputed"] == totals["recomputed"]
    assert summary["tokens_from_cache"] == totals["from_cache"]
    assert summary["tokens_from_own_cache"] == totals["from_own_cache"]
    assert summary["preemptions"] == totals["preemptions"]


def test_all_pairs_of_features() -> None:
    met: Counter[str] = Counter()
    for seed in range(RUNS):
        try:
            met += judge(work_of(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {work_of(seed)}") from error
    rare = ("forked", "reclaimed", "paused", "swap_in_finished", "action_taken", "setting_changed")
    assert not [kind for kind in (*rare, "preempted", "block_shared", "stalled") if not met[kind]]


@pytest.mark.full
@pytest.mark.parametrize("part", range(10))
def test_many_pairs_of_features(part: int) -> None:
    for seed in range(10_000 + part * 500, 10_000 + (part + 1) * 500):
        try:
            judge(work_of(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {work_of(seed)}") from error
