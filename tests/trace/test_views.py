"""Views over events: timeline, causes, what an event touched. The story's, stated by hand."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from kvlab.course.delays import delays
from kvlab.draw.packed import pack, packed
from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import scenario_from
from kvlab.trace import replay
from kvlab.trace.causes import causes
from kvlab.trace.document import Trace
from kvlab.trace.timeline import Timeline
from kvlab.trace.touched import touched

TRACES = Path(__file__).resolve().parents[2] / "assets" / "traces"


def recorded(name: str) -> Trace:
    return Trace.read(TRACES / f"{name}.json")


def phases(name: str, id: str) -> list[tuple[str, int, int]]:
    """Phases with the numbers of their first and last step."""
    segments = Timeline.of(recorded(name)).lanes[id].segments
    return [(one.phase, one.start + 1, one.stop + 1) for one in segments]


def test_the_lanes_of_figure_5() -> None:
    assert phases("figure-5", "A") == [("prefill", 1, 1), ("decode", 2, 6)]
    assert phases("figure-5", "B") == [
        ("prefill", 1, 1),
        ("decode", 2, 2),
        ("preempted", 3, 6),
        ("recompute", 7, 7),
        ("decode", 8, 8),
    ]


def test_a_skipped_request_and_a_stalled_one() -> None:
    assert phases("figure-2", "B")[2:4] == [("paused", 3, 3), ("preempted", 4, 7)]
    assert phases("figure-2", "A")[2] == ("stalled", 3, 3)


def test_a_restore_is_a_phase_of_its_own() -> None:
    assert [phase for phase, _, _ in phases("figure-4", "B")][2:4] == ["swapped", "restore"]


def test_pool_and_outputs_after_each_step() -> None:
    line = Timeline.of(recorded("figure-5"))
    assert line.free == [0, 0, 1, 1, 1, 4, 1, 4]
    assert line.pools[2] == ["A", "A", "A", None]
    assert [step + 1 for step, _, _ in line.lanes["B"].deliveries] == [1, 2, 7, 8]
    assert line.lanes["A"].end == (5, "length")
    assert len(line.full) == 1


@pytest.mark.parametrize(
    ("name", "kind", "fields", "cause"),
    [
        ("figure-5", "preempted", {}, ("block_needed", 3)),
        ("figure-5", "block_needed", {}, ("token_sampled", 2)),
        ("figure-5", "block_released", {"why": "preempted"}, ("preempted", 3)),
        ("figure-5", "block_allocated", {"why": "decode"}, ("block_released", 3)),
        ("figure-5", "resumed", {}, ("block_released", 6)),
        ("figure-5", "token_delivered", {"gap": 5}, ("resumed", 7)),
        ("figure-4", "block_released", {"why": "swapped_out"}, ("swap_out_finished", 3)),
        ("figure-4", "swap_in_started", {}, ("resumed", 7)),
        ("figure-2", "stalled", {}, ("paused", 3)),
        ("figure-2", "preempted", {}, ("action_taken", 4)),
        ("figure-5", "step_started", {}, None),
    ],
)
def test_what_follows_from_what(
    name: str, kind: str, fields: dict[str, Any], cause: tuple[str, int] | None
) -> None:
    events = recorded(name).events
    at = next(i for i, e in enumerate(events) if e["kind"] == kind and fields.items() <= e.items())
    found = causes(events)[at]
    told = None if found is None else (events[found]["kind"], events[found]["step"])
    assert told == cause
    assert found is None or found < at


def test_what_an_event_touched() -> None:
    trace = recorded("figure-5")
    prompts = {"A": [0] * 7, "B": [0] * 7}

    def of(kind: str, **fields: Any) -> Any:
        event = next(e for e in trace.events if e["kind"] == kind and fields.items() <= e.items())
        return touched(event, prompts)

    assert of("block_allocated", step=3).blocks == (2,)
    assert of("block_allocated", step=3).entries == (2, 2)
    assert of("kv_written", step=3).slots == (2, 0, 0)
    assert of("kv_written", step=3).positions == (8, 8)
    assert of("token_delivered", step=7).positions == (9, 9)
    assert of("preempted").others == ("A",)
    assert of("block_needed").unmet
    assert touched(None, prompts).id is None


def test_each_sample_of_a_prompt_arrived_with_it() -> None:
    """Z holds three of four blocks up to step 5; A's prefill and both of its first tokens are in
    step 6."""
    raw: dict[str, Any] = {"name": "samples", "title": "", "model": None}
    raw["engine"] = {"num_blocks": 4, "block_size": 4}
    raw["requests"] = [
        {"id": "Z", "prompt": [1] * 12, "max_tokens": 5},
        {"id": "A", "prompt": [2] * 7, "max_tokens": 4, "n": 2},
    ]
    trace = run_scenario(scenario_from(raw, Path(), "a test")).trace
    found = {one.id: one.ttft for one in delays(trace)}
    assert {id: found[id] for id in ("A", "A.2")} == {"A": 6, "A.2": 6}


def test_a_large_pool_costs_what_is_used_of_it() -> None:
    """A million blocks and two requests: only the blocks that were touched exist in the state."""
    raw: dict[str, Any] = {"name": "large", "title": "", "model": None}
    raw["engine"] = {"num_blocks": 4, "block_size": 4}
    raw["requests"] = [{"id": id, "prompt": [1] * 7, "max_tokens": 4} for id in "AB"]
    trace = run_scenario(scenario_from(raw, Path(), "a test")).trace
    document = trace.document | {"pool": trace.document["pool"] | {"num_blocks": 1_000_000}}
    state = replay.state_at(document, len(trace.events))
    assert len(state["blocks"]) == 1_000_000
    assert len(state["blocks"].touched) <= 4
    assert len(json.dumps(packed(document))) < 20_000


@pytest.mark.parametrize("path", sorted(TRACES.glob("*.json")), ids=lambda path: path.stem)
def test_what_travels_is_little_more_than_the_trace(path: Path) -> None:
    """With all that a page would else have to work out: at most 1.4 times the trace, both deflated."""
    document = Trace.read(path).document
    plain = {name: part for name, part in document.items() if name != "summary"}
    text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    assert len(pack(document)) <= 1.4 * len(zlib.compress(text.encode(), 6))
