"""Scenario files: what may be left out, what `--set` reaches, and that YAML and JSON are one.

The defaults are those of the contract with the outside, restated here as a table.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import load_scenario, scenario_names

SHORTEST: dict[str, Any] = {
    "name": "shortest",
    "engine": {"num_blocks": 4, "block_size": 4},
    "requests": [
        {"id": "A", "prompt": [12, 7, 99, 4, 31, 8, 2], "max_tokens": 6},
        {"id": "B", "prompt": "Ana and Ben share a small room", "max_tokens": 4},
    ],
}

ENGINE_DEFAULTS = {
    "host_blocks": 4,
    "method": "recompute",
    "victim": "newest",
    "free_order": "head_first",
    "prefix_cache": False,
    "allocation": "on_demand",
    "preset": None,
    "step_tokens": None,
    "chunk_tokens": None,
    "max_running": None,
    "watermark_blocks": 0,
    "admission": "whole_sequence",
    "copy_blocks_per_step": None,
    "async_scheduling": False,
    "preempt_for_priority": False,
    "unsafe": [],
}
REQUEST_DEFAULTS = {
    "arrival_step": 0,
    "priority": 0,
    "temperature": 0.0,
    "top_p": 1.0,
    "top_k": 0,
    "seed": 1,
    "n": 1,
    "stop": [],
    "logprobs": False,
    "ignore_eos": True,
}
FULL = {
    "name": "full",
    "title": "Every key of the contract",
    "model": None,
    "device": "cpu",
    "dtype": "float32",
    "engine": {"num_blocks": 9, "block_size": 2}
    | ENGINE_DEFAULTS
    | {"method": "swap", "step_tokens": 64, "chunk_tokens": 3, "max_running": 2},
    "requests": [
        {"id": "A", "prompt": [5, 6, 7, 8, 9], "max_tokens": 3} | REQUEST_DEFAULTS,
        {"id": "B", "prompt": [9, 8, 7], "max_tokens": 5}
        | REQUEST_DEFAULTS
        | {"arrival_step": 1, "seed": 7, "stop": ["zebra", 4_000], "logprobs": False},
    ],
    "actions": [
        {"step": 3, "preempt": "B", "method": "swap"},
        {"step": 3, "pause": "A"},
        {"step": 5, "resume": "A"},
        {"step": 20, "abort": "B"},
    ],
    "lesson": {"anything": [1, {"at": "all"}]},
}


def written(folder: Path, document: dict[str, Any], form: str) -> str:
    path = folder / f"{document['name']}.{form}"
    if form == "json":
        path.write_text(json.dumps(document), encoding="utf-8")
    else:
        path.write_text(yaml.safe_dump(document, allow_unicode=True), encoding="utf-8")
    return str(path)


def test_what_is_left_out_has_the_contracts_defaults(tmp_path: Path) -> None:
    document = load_scenario(written(tmp_path, SHORTEST, "yaml")).document
    assert document["engine"] == SHORTEST["engine"] | ENGINE_DEFAULTS
    for request, given in zip(document["requests"], SHORTEST["requests"], strict=True):
        assert request == REQUEST_DEFAULTS | given
    assert {key: document[key] for key in ("model", "device", "dtype", "actions", "lesson")} == {
        "model": "story",
        "device": "auto",
        "dtype": "float32",
        "actions": [],
        "lesson": {},
    }


@pytest.mark.parametrize("document", [SHORTEST, FULL], ids=["shortest", "full"])
def test_yaml_and_json_are_the_same_scenario(tmp_path: Path, document: dict[str, Any]) -> None:
    from_yaml = load_scenario(written(tmp_path, document, "yaml"))
    from_json = load_scenario(written(tmp_path, document, "json"))
    assert from_yaml.document == from_json.document
    assert from_json.raw == document


def test_every_key_of_the_contract_is_taken_and_kept(tmp_path: Path) -> None:
    scenario = load_scenario(written(tmp_path, FULL, "json"))
    assert scenario.document == FULL
    summary = run_scenario(scenario).summary
    assert {id: len(r["output"]) for id, r in summary["requests"].items()} == {"A": 3, "B": 5}
    assert [e["paused"] for e in summary["per_step"][2:5]] == [["A"], ["A"], []]


@pytest.mark.parametrize("form", ["yaml", "yml", "json", "txt"])
def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"marked.{form}"
    path.write_text("\ufeff" + json.dumps(SHORTEST), encoding="utf-8")
    assert load_scenario(str(path)).name == "shortest"


def test_a_date_stays_the_text_that_was_written(tmp_path: Path) -> None:
    path = tmp_path / "dated.yaml"
    path.write_text(json.dumps(SHORTEST)[:-1] + ", title: 2024-01-31}")
    assert load_scenario(str(path)).title == "2024-01-31"


def test_aliases_and_merges_that_mean_well_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "alias.yaml"
    path.write_text(
        "name: alias\nmodel: null\nengine: {num_blocks: 9, block_size: 4}\n"
        "lesson: {base: &base {max_tokens: 2, seed: 5}}\n"
        "requests:\n"
        "  - {id: A, prompt: &p [1, 2, 3], <<: *base}\n"
        "  - {id: B, prompt: *p, <<: *base, seed: 6}\n"
    )
    first, second = load_scenario(str(path)).document["requests"]
    assert (first["max_tokens"], first["seed"]) == (2, 5)
    assert (second["prompt"], second["max_tokens"], second["seed"]) == ([1, 2, 3], 2, 6)


def test_the_five_figures_are_scenario_names() -> None:
    names = scenario_names()
    assert set(names) >= {f"figure-{n}" for n in range(1, 6)}
    for name in names:
        scenario = load_scenario(name)
        assert scenario.name == name
        assert scenario.title != name, "a shipped scenario has a title for people"
        assert scenario.model == "story"


@pytest.mark.parametrize("name", ["figure-1", "figure-3", "figure-4", "figure-5"])
def test_the_figures_ship_with_the_storys_set_up(name: str) -> None:
    scenario = load_scenario(name)
    method = "swap" if name == "figure-4" else "recompute"
    engine = {"num_blocks": 4, "block_size": 4} | ENGINE_DEFAULTS | {"method": method}
    assert scenario.document["engine"] == engine
    assert [(r["id"], r["max_tokens"]) for r in scenario.document["requests"]] == [
        ("A", 6),
        ("B", 4),
    ]
    assert scenario.document["actions"] == []


def test_figure_2_pauses_and_then_preempts() -> None:
    document = load_scenario("figure-2").document
    assert document["engine"]["method"] == "pause_only"
    assert document["actions"] == [{"step": 4, "preempt": "B", "method": "recompute"}]


# --set


@pytest.mark.parametrize(
    ("setting", "place", "value"),
    [
        ("engine.method=swap", ["engine", "method"], "swap"),
        ("engine.num_blocks=64", ["engine", "num_blocks"], 64),
        ("engine.chunk_tokens=null", ["engine", "chunk_tokens"], None),
        ("engine.prefix_cache=true", ["engine", "prefix_cache"], True),
        ("requests.B.seed=3", ["requests", 1, "seed"], 3),
        ("requests.A.prompt=[1, 2]", ["requests", 0, "prompt"], [1, 2]),
        ("requests.A.prompt=a = b", ["requests", 0, "prompt"], "a = b"),
        ("requests.B.temperature=0.5", ["requests", 1, "temperature"], 0.5),
        ("device=cpu", ["device"], "cpu"),
        ("title=A title: with a colon", ["title"], None),
        ('title="A title: with a colon"', ["title"], "A title: with a colon"),
        ("lesson.note.deep=1", ["lesson", "note", "deep"], 1),
        ("actions=[{step: 2, abort: A}]", ["actions"], [{"step": 2, "abort": "A"}]),
        ("model=null", ["model"], None),
    ],
)
def test_a_setting_reaches_its_place(setting: str, place: list[str | int], value: Any) -> None:
    if setting == "title=A title: with a colon":  # to YAML that is a mapping
        with pytest.raises(ValueError, match="title"):
            load_scenario("figure-5", [setting])
        return
    found: Any = load_scenario("figure-5", [setting]).document
    for key in place:
        found = found[key]
    assert found == value


def test_settings_apply_in_order_and_leave_the_rest() -> None:
    changed = load_scenario("figure-5", ["engine.num_blocks=8", "engine.num_blocks=9"])
    plain = load_scenario("figure-5")
    assert changed.document["engine"] == plain.document["engine"] | {"num_blocks": 9}
    assert changed.document | {"engine": 0} == plain.document | {"engine": 0}


def test_what_a_lesson_says_of_its_run_is_left_out_of_a_changed_one() -> None:
    plain = load_scenario("unsafe-reuse")
    assert {"about", "narration", "opens"} <= set(plain.lesson)
    assert load_scenario("unsafe-reuse", ["engine.num_blocks=9"]).lesson == {"opens": {"step": 3}}
    assert plain.with_settings(["engine.num_blocks=9"]).lesson == {"opens": {"step": 3}}
    told = load_scenario("unsafe-reuse", ["lesson.about=mine"]).lesson
    assert told == plain.lesson | {"about": "mine"}


def test_with_settings_makes_a_copy() -> None:
    plain = load_scenario("figure-5")
    swapped = plain.with_settings(["engine.method=swap"])
    assert swapped.document["engine"]["method"] == "swap"
    assert plain.document["engine"]["method"] == "recompute"
    assert swapped.document == load_scenario("figure-5", ["engine.method=swap"]).document


def test_a_key_given_beside_a_preset_wins() -> None:
    preset = load_scenario("figure-5", ["engine.preset=vllm_v1"])
    assert preset.engine.free_order == "vllm_v1"
    assert (preset.engine.victim, preset.engine.admission) == ("newest", "whole_sequence")
    beside = load_scenario(
        "figure-5",
        ["engine.preset=vllm_v1", "engine.free_order=tail_first", "engine.victim=oldest"],
    )
    assert (beside.engine.free_order, beside.engine.victim) == ("tail_first", "oldest")


def test_the_order_of_file_and_arrival(tmp_path: Path) -> None:
    """arrival_step k: first run in step k + 1; equal arrivals keep the file's order."""
    document = SHORTEST | {
        "model": None,
        "engine": {"num_blocks": 64, "block_size": 4},
        "requests": [
            {"id": id, "prompt": [1, 2, 3], "max_tokens": 2, "arrival_step": arrival}
            for id, arrival in (("late", 3), ("Z", 1), ("first", 0), ("A", 1))
        ],
    }
    summary = run_scenario(load_scenario(written(tmp_path, document, "json"))).summary
    admitted = {entry["step"]: entry["admitted"] for entry in summary["per_step"]}
    assert admitted == {1: ["first"], 2: ["Z", "A"], 3: [], 4: ["late"], 5: []}
    assert [summary["requests"][id]["ttft_steps"] for id in ("first", "Z", "A", "late")] == [1] * 4
