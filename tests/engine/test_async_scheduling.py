"""A step that is decided before the one before it has ended: who is done holds its blocks once more."""

from __future__ import annotations

from typing import Any

import pytest

from kvlab.engine.config import EngineConfig
from kvlab.engine.engine import Engine
from kvlab.engine.events import Finished, TokenDelivered
from kvlab.engine.report import StepReport
from kvlab.engine.request import Request, RequestState
from kvlab.engine.stand_in import StandInRunner
from kvlab.errors import BadInput


def run(**settings: Any) -> tuple[Engine, list[StepReport]]:
    """A (3 + 2 tokens) and B (5 + 2) in a pool that holds one of them at a time."""
    config = EngineConfig(**{"num_blocks": 2, "block_size": 4, **settings})
    engine = Engine(config, StandInRunner())
    for id, prompt in (("A", 3), ("B", 5)):
        engine.add_request(Request(id=id, prompt=tuple(range(prompt)), max_tokens=2))
    reports = engine.run()
    engine.check_integrity()
    return engine, reports


def test_blocks_are_free_a_step_later() -> None:
    """A has both outputs after step 2. B needs both blocks: it runs from step 3 on, or from step 4."""
    _, soon = run()
    _, later = run(async_scheduling=True)
    assert [sorted(report.scheduled) for report in soon] == [["A"], ["A"], ["B"], ["B"]]
    assert [sorted(report.scheduled) for report in later] == [["A"], ["A"], [], ["B"], ["B"], []]


def test_outputs_come_when_they_are_selected_and_the_end_a_step_later() -> None:
    _, reports = run(async_scheduling=True)
    delivered = [event.step for report in reports for event in report.of(TokenDelivered)]
    ends = [(e.step, e.id, e.why) for report in reports for e in report.of(Finished)]
    assert delivered == [1, 2, 4, 5]
    assert ends == [(3, "A", "length"), (6, "B", "length")]


def test_outputs_are_the_same() -> None:
    one, _ = run()
    other, _ = run(async_scheduling=True)
    for id in ("A", "B"):
        assert one.requests[id].outputs == other.requests[id].outputs


def test_who_is_done_may_be_the_victim() -> None:
    """Step 3: A needs a block; the newest is B, whose last output came in step 2. vLLM takes its
    blocks, and it ends all the same."""
    config = EngineConfig(num_blocks=2, block_size=2, async_scheduling=True)
    engine = Engine(config, StandInRunner())
    engine.add_request(Request(id="A", prompt=(1,), max_tokens=3))
    engine.add_request(Request(id="B", prompt=(2,), max_tokens=2))
    reports = engine.run()
    assert reports[2].preempted == ["B"]
    assert reports[2].finished == ["B"]
    assert {id: len(request.outputs) for id, request in engine.requests.items()} == {"A": 3, "B": 2}
    assert all(one.state is RequestState.FINISHED for one in engine.requests.values())
    engine.check_integrity()


def test_it_is_on_or_off() -> None:
    with pytest.raises(BadInput, match=r"engine\.async_scheduling = 'later' must be true or false"):
        EngineConfig(num_blocks=2, block_size=4, async_scheduling="later")  # type: ignore[arg-type]
