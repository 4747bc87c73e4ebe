"""The front door: what `import kvlab` gives, and that each of its examples is true."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import kvlab
from kvlab.errors import BadInput
from kvlab.lab import by_hand, front
from kvlab.trace.document import Trace
from kvlab.trace.narration import load_words, narrate

ROOT = Path(__file__).resolve().parents[2]
STORY: dict[str, Any] = {
    "name": "mine",
    "model": None,
    "engine": {"num_blocks": 4, "block_size": 4},
    "requests": [
        {"id": "A", "prompt": [1, 2, 3, 4, 5, 6, 7], "max_tokens": 6},
        {"id": "B", "prompt": [9, 8, 7, 6, 5, 4, 3], "max_tokens": 4},
    ],
}


@pytest.mark.parametrize("module", [front, by_hand])
def test_every_example_runs(module: Any) -> None:
    failed, tried = doctest.testmod(module)
    assert tried > 2
    assert failed == 0


def test_the_readmes_example_runs() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    found = re.search(r"## In Python\n\n```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {}
    exec(found[1], names)
    assert names["engine"].block_table("A") == [0, 1]


def test_importing_brings_neither_torch_nor_a_widget() -> None:
    code = (
        "import sys, kvlab; "
        "assert not {'torch', 'anywidget', 'plotly', 'jsonschema'} & sys.modules.keys(), sys.modules; "
        "assert {'run', 'Engine'} <= set(dir(kvlab))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_one_scenario_in_four_forms(tmp_path: Path) -> None:
    text = yaml.safe_dump(STORY)
    file = tmp_path / "mine.yaml"
    file.write_text(text, "utf-8")
    runs = [kvlab.run(form) for form in (STORY, text, file, str(file))]
    assert {run.summary["tokens_processed"] for run in runs} == {30}
    assert runs[0].trace["events"] is runs[0].trace.events


def test_a_name_that_is_none_is_one_sentence() -> None:
    for wrong in ("figure-55", "no: [", "{", 7, None, {"name": "x"}):
        with pytest.raises(BadInput) as refused:
            kvlab.run(wrong)  # type: ignore[arg-type]
        assert "\n" not in str(refused.value)


def test_a_victim_function_chooses_and_its_name_is_in_the_trace(tmp_path: Path) -> None:
    def first_come(running: Any, need: str) -> Any:
        asked.append(([request.id for request in running], need))
        return min(running, key=lambda request: request.arrived)

    asked: list[Any] = []
    run = kvlab.run(STORY, victim=first_come)
    preempted = next(e for e in run.trace.events if e["kind"] == "preempted")
    assert asked[0] == (["A", "B"], "A")
    assert (preempted["id"], preempted["victim"]) == ("A", "first_come")
    for language, said in (
        ("en", "victim function first_come named"),
        ("de", "first_come genannt"),
    ):
        assert said in narrate(preempted, load_words(language))
    assert run.trace["scenario"]["engine"]["victim"] == "first_come"
    file = tmp_path / "trace.json"
    run.trace.write(file)
    assert Trace.read(file).events == run.trace.events
    again = run.what_if(step=2, free_order="tail_first")
    assert again.trace["scenario"]["engine"]["victim"] == "first_come"


@pytest.mark.parametrize(
    "victim", [lambda running, need: 1 // 0, lambda running, need: "Z", lambda running, need: None]
)
def test_a_victim_function_that_fails_ends_the_one_in_need_alone(victim: Any) -> None:
    requests = kvlab.run(STORY, victim=victim).summary["requests"]
    assert requests["A"]["finish_reason"] == "error"
    assert requests["A"]["message"].startswith("no victim could be chosen: the victim function")
    assert requests["B"]["finish_reason"] == "length"


def test_a_run_shows_itself_in_one_line() -> None:
    assert repr(kvlab.run(STORY)) == (
        "mine: 8 steps, 1 preemption; A 6 tokens, B 4 tokens; no model, scheduling alone"
    )


def test_two_runs_side_by_side() -> None:
    run = kvlab.run(STORY)
    assert run.compare(run.what_if(step=1, num_blocks=8)).table["rows"]
    with pytest.raises(BadInput, match="takes a run"):
        run.compare("figure-1")  # type: ignore[arg-type]
    for wrong in ({}, {"method": "swap", "victim": "oldest"}, {"colour": "red"}, {"victim": max}):
        with pytest.raises(BadInput):
            run.what_if(step=2, **wrong)


def test_the_engine_by_hand_is_the_article_s_run() -> None:
    """design of figure 5: step 3 gives P2 to A and leaves P3 free; B keeps 9 tokens of history."""
    engine = kvlab.Engine.of("figure-5")
    for _ in range(3):
        step = engine.step()
    assert step.scheduled == {"A": 1}
    assert engine.block_table("A") == [0, 1, 2]
    assert engine.block_table("B") == []
    assert engine.free_blocks == [3]
    assert len(engine.history("B")) == 9
    assert "B is paused" in str(step)
    k, v = engine.kv("A", layer=0)
    assert k.shape == v.shape == (9, *engine.pool[0].k.shape[2:])
    assert bool((engine.pool[0].k[2, 0] == k[8]).all())
    assert [step.number for step in engine] == [4, 5, 6, 7, 8]
    assert engine.run().summary["tokens_recomputed"] == 8


def test_requests_can_be_added_before_and_between_steps() -> None:
    engine = kvlab.Engine({"num_blocks": 4, "block_size": 4}, model=None)
    with pytest.raises(BadInput, match="no request yet"):
        engine.step()
    engine.add("A", [1, 2, 3], max_tokens=3)
    engine.step()
    engine.add("B", [4, 5], max_tokens=1)
    assert engine.step().delivered.keys() == {"A", "B"}
    with pytest.raises(BadInput, match="used twice"):
        engine.add("A", [1], max_tokens=1)
    with pytest.raises(BadInput, match="has no model"):
        engine.kv("A")
    with pytest.raises(BadInput, match="there is no request 'Z'"):
        engine.block_table("Z")
