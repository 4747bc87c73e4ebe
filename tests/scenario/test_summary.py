"""The summary that other programs read: names, types and sums as the contract has them.

The key lists are restated from the contract (keys may be added, never renamed); numbers are worked
out by hand from the story's table, or follow from one another by the contract's definitions.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from kvlab.cli import main
from kvlab.errors import NotSupportedYet
from kvlab.models.loading import LoadedModel, load_model
from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import load_scenario, scenario_from


def words(text: str) -> list[str]:
    return text.split()


TOP = words(
    """
    schema kvlab scenario model device dtype seconds steps per_step
    preemptions tokens_processed tokens_recomputed tokens_from_cache blocks_swapped_out
    blocks_swapped_in bytes_swapped_out bytes_swapped_in blocks_shared_max
    recompute_tax goodput_per_step goodput_per_second occupancy waste_slots requests
    """
)
BUILT_LATER = {"storms": "from to redone new", "damage": "request layer block why"}
PER_STEP = words(
    """
    step running waiting paused scheduled admitted resumed finished emitted preempted stalled
    free cached in_flight reserved_unused host_free copies
    blocks kv host_blocks host_kv history
    """
)
PREEMPTED = ["id", "method", "reclaimable", "blocks", "why", "estimates"]
STALLED = ["id", "needs", "why"]
COPIES = ["id", "direction", "blocks", "done"]
REQUEST = words(
    """
    output text finish_reason message ttft_steps gaps_steps waiting_steps recovery_steps preemptions
    recomputed from_cache logprobs
    """
)


@cache
def story_model() -> LoadedModel:
    torch.set_num_threads(1)  # a model this small only loses by a second thread
    return load_model("story", device="cpu")


@cache
def summary_of(name: str, *settings: str) -> dict[str, Any]:
    scenario = load_scenario(name, ["device=cpu", *settings])
    return run_scenario(scenario, model=story_model()).summary


def run_document(**parts: Any) -> dict[str, Any]:
    document: dict[str, Any] = {"name": "made-here", "model": None} | parts
    return run_scenario(scenario_from(document, Path(), "made here")).summary


def has(entry: dict[str, Any], keys: list[str]) -> bool:
    return [key for key in keys if key not in entry] == []


@pytest.mark.parametrize("method", ["recompute", "swap", "pause_only"])
def test_every_key_of_the_contract_is_there(method: str) -> None:
    summary = summary_of("figure-5", f"engine.method={method}")
    assert has(summary, TOP)
    for key, fields in BUILT_LATER.items():
        for entry in summary.get(key, []):
            assert has(entry, fields.split())
    for entry in summary["per_step"]:
        assert has(entry, PER_STEP)
        assert all(has(victim, PREEMPTED) for victim in entry["preempted"])
        assert all(has(stall, STALLED) for stall in entry["stalled"])
        assert all(has(copy, COPIES) for copy in entry["copies"])
    for request in summary["requests"].values():
        assert has(request, REQUEST)


def test_nothing_in_a_summary_is_not_json() -> None:
    for method in ("recompute", "swap", "pause_only"):
        summary = summary_of("figure-5", f"engine.method={method}")
        assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_the_story_in_the_summarys_words() -> None:
    """Step 3 of the story: A needs a block, B is preempted and gives up two."""
    summary = summary_of("figure-5")
    assert summary["scenario"] == "figure-5"
    assert (summary["model"], summary["device"], summary["dtype"]) == ("story", "cpu", "float32")
    assert summary["steps"] == len(summary["per_step"]) == 8
    third = summary["per_step"][2]
    (victim,) = third["preempted"]
    assert {key: victim[key] for key in PREEMPTED} == {
        "id": "B",
        "method": "recompute",
        "reclaimable": 2,
        "blocks": 2,
        "why": "newest",
        "estimates": None,
    }
    assert (third["running"], third["waiting"], third["paused"]) == (["A"], ["B"], [])
    assert (third["scheduled"], third["admitted"], third["resumed"]) == ({"A": 1}, [], [])
    assert third["emitted"] == {"A": summary["requests"]["A"]["output"][2:3]}
    assert (third["blocks"], third["kv"]) == ({"A": [0, 1, 2]}, {"A": 9})
    assert third["history"] == {"A": 10, "B": 9}
    assert summary["per_step"][0]["admitted"] == ["A", "B"]
    assert summary["per_step"][0]["scheduled"] == {"A": 7, "B": 7}
    assert summary["per_step"][5]["finished"] == ["A"]
    seventh = summary["per_step"][6]
    assert (seventh["resumed"], seventh["admitted"]) == (["B"], [])
    assert seventh["scheduled"] == {"B": 9}
    assert summary["per_step"][7]["history"] == {}


def test_swap_in_the_summarys_words() -> None:
    summary = summary_of("figure-5", "engine.method=swap")
    third, seventh = summary["per_step"][2], summary["per_step"][6]
    assert third["copies"] == [{"id": "B", "direction": "out", "blocks": 2, "done": True}]
    assert seventh["copies"] == [{"id": "B", "direction": "in", "blocks": 2, "done": True}]
    for entry in summary["per_step"][2:6]:
        assert (entry["host_kv"], entry["host_free"]) == ({"B": 8}, 2)
        assert len(entry["host_blocks"]["B"]) == 2
    assert (seventh["host_blocks"], seventh["host_kv"], seventh["host_free"]) == ({}, {}, 4)
    # 5 layers, K and V, 4 slots, 2 heads of 32 numbers of 4 bytes, two blocks each way.
    moved = 2 * 5 * 2 * 4 * 2 * 32 * 4
    config = story_model().config
    assert (config.num_layers, config.num_kv_heads, config.head_dim) == (5, 2, 32)
    assert (summary["bytes_swapped_out"], summary["bytes_swapped_in"]) == (moved, moved)


@pytest.mark.parametrize(("method", "processed", "again"), [("recompute", 30, 8), ("swap", 22, 0)])
def test_the_numbers_of_the_whole_run(method: str, processed: int, again: int) -> None:
    """10 outputs in 8 steps; 4, 4, 3, 3, 3, 0, 3, 0 of 4 blocks are held after the steps."""
    summary = summary_of("figure-5", f"engine.method={method}")
    assert summary["recompute_tax"] == pytest.approx(again / processed)
    assert summary["goodput_per_step"] == pytest.approx(10 / 8)
    assert summary["goodput_per_second"] == pytest.approx(10 / summary["seconds"])
    assert summary["occupancy"] == pytest.approx((4 + 4 + 3 * 3 + 0 + 3 + 0) / 4 / 8)
    # Slots without KV: 2 after step 1, then A's 3, 2, 1 of its third block, B's 3 after step 7.
    assert summary["waste_slots"] == pytest.approx((2 + 0 + 3 + 2 + 1 + 0 + 3 + 0) / 8)
    assert (summary["tokens_from_cache"], summary["blocks_shared_max"]) == (0, 0)
    assert summary["requests"]["B"]["recomputed"] == again


def test_a_pool_of_64_changes_the_run_and_no_token() -> None:
    roomy = summary_of("figure-5", "engine.num_blocks=64")
    tight = summary_of("figure-5")
    assert roomy["preemptions"] == 0
    for id in "AB":
        assert roomy["requests"][id]["output"] == tight["requests"][id]["output"]
        assert roomy["requests"][id]["text"] == tight["requests"][id]["text"] != ""


def test_the_text_is_that_of_the_output_tokens() -> None:
    for request in summary_of("figure-5")["requests"].values():
        tokenizer = story_model().tokenizer
        assert tokenizer is not None
        assert request["text"] == tokenizer.decode(request["output"])


def test_log_probabilities_come_one_for_each_output_when_asked_for() -> None:
    summary = summary_of("figure-5", "requests.B.logprobs=true")
    assert len(summary["requests"]["B"]["logprobs"]) == 4
    assert all(value <= 0 for value in summary["requests"]["B"]["logprobs"])
    assert summary["requests"]["A"]["logprobs"] == []
    roomy = summary_of("figure-5", "requests.B.logprobs=true", "engine.num_blocks=64")
    assert summary["requests"]["B"]["logprobs"] == pytest.approx(
        roomy["requests"]["B"]["logprobs"], abs=1e-4
    )


def test_without_a_model_the_summary_says_that_tokens_are_stand_ins() -> None:
    summary = run_document(
        engine={"num_blocks": 4, "block_size": 4},
        requests=[{"id": "A", "prompt": [1, 2, 3], "max_tokens": 2}],
    )
    assert summary["model"] is None
    assert summary["stand_in_tokens"] is True
    assert summary_of("figure-5")["stand_in_tokens"] is False


def test_a_run_in_which_every_request_is_rejected_has_one_step() -> None:
    summary = run_document(
        engine={"num_blocks": 4, "block_size": 4},
        requests=[{"id": "A", "prompt": list(range(20)), "max_tokens": 2}],
    )
    assert summary["steps"] == 1
    request = summary["requests"]["A"]
    assert (request["finish_reason"], request["output"]) == ("rejected", [])
    assert "needs 5 blocks, the pool has 4" in request["message"]
    assert request["ttft_steps"] is None


def test_a_history_beyond_the_models_context_ends_with_length_and_a_message() -> None:
    """2,048 positions: a prompt of 2,046 has room for two outputs more, not for nine."""
    assert story_model().config.max_positions == 2_048
    settings = [
        "engine.num_blocks=600",
        "requests.B.max_tokens=1",
        f"requests.A.prompt={[5] * 2_046}",
        "requests.A.max_tokens=9",
    ]
    request = summary_of("figure-5", *settings)["requests"]["A"]
    assert request["finish_reason"] == "length"
    assert "2048" in request["message"].replace(",", "")
    assert 2 <= len(request["output"]) <= 3


def test_a_stop_string_ends_the_text_before_it() -> None:
    plain = summary_of("figure-5")["requests"]["A"]
    stop = plain["text"][6:9]
    stopped = summary_of("figure-5", f"requests.A.stop=[{json.dumps(stop)}]")["requests"]["A"]
    assert stopped["finish_reason"] == "stop"
    assert stopped["text"] == plain["text"].partition(stop)[0]
    assert stopped["output"] == plain["output"][: len(stopped["output"])]
    assert len(stopped["output"]) < len(plain["output"])


def test_a_stop_token_ends_the_output_with_it() -> None:
    plain = summary_of("figure-5")["requests"]["A"]
    stop = plain["output"][3]
    stopped = summary_of("figure-5", f"requests.A.stop=[{stop}]")["requests"]["A"]
    assert stopped["finish_reason"] == "stop"
    assert stopped["output"] == plain["output"][: plain["output"].index(stop) + 1]


# Features that came later: there with their keys, or refused by name.

EXTRAS: dict[str, tuple[list[str], Callable[[dict[str, Any]], bool]]] = {
    "auto": (
        ["engine.method=auto"],
        lambda s: any(
            set(v["estimates"]) == {"recompute_s", "swap_s"}
            for entry in s["per_step"]
            for v in entry["preempted"]
        ),
    ),
    "unsafe": (
        [
            "engine.method=swap",
            "engine.copy_blocks_per_step=1",
            "engine.unsafe=[reuse_before_copied]",
        ],
        lambda s: all(has(d, BUILT_LATER["damage"].split()) for d in s["damage"]) and s["damage"],
    ),
    "n": (
        ["requests.B.n=2", "engine.num_blocks=12"],
        lambda s: (
            [len(t) for t in s["requests"]["B"]["samples"]] == [4, 4]
            and s["requests"]["B"]["samples"][0] == s["requests"]["B"]["output"]
        ),
    ),
}


@pytest.mark.parametrize("feature", EXTRAS)
def test_a_feature_is_there_with_its_keys_or_refused_by_name(feature: str) -> None:
    settings, shows = EXTRAS[feature]
    try:
        summary = summary_of("figure-5", *settings)
    except NotSupportedYet as error:
        refusal = str(error)
    else:
        assert shows(summary)
        return
    assert feature in refusal
    assert "not supported yet" in refusal


# As printed.


def test_the_command_prints_one_json_object_and_nothing_else(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.json"
    arguments = ["run", "figure-5", "--summary", "--set", "device=cpu", "--json", str(trace)]
    assert main(arguments) == 0
    printed = json.loads(capsys.readouterr().out)
    expected = summary_of("figure-5")
    for told in (printed, json.loads(trace.read_text(encoding="utf-8"))["summary"]):
        for key in TOP:
            if key not in ("seconds", "goodput_per_second"):
                assert told[key] == expected[key], key


def test_a_rejected_request_is_a_result_and_no_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "figure-5", "--summary", "--set", "engine.num_blocks=1"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert {r["finish_reason"] for r in summary["requests"].values()} == {"rejected"}


def test_python_dash_m_kvlab_is_the_same_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kvlab", "run", "figure-5", "--summary", "--set", "device=cpu"],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    summary = json.loads(done.stdout)
    assert [entry["free"] for entry in summary["per_step"]] == [0, 0, 1, 1, 1, 4, 1, 4]
    assert (summary["preemptions"], summary["tokens_processed"]) == (1, 30)
    assert summary["tokens_recomputed"] == 8


def test_own_blocks_found_again_are_no_hit() -> None:
    """B alone, preempted three times: each time it finds its own full blocks,
    and nobody else's. C, with B's prompt, finds one block that B computed."""
    engine = {"num_blocks": 8, "block_size": 4, "prefix_cache": True}
    b = {"id": "B", "prompt": [1, 2, 3, 4, 5, 6, 7], "max_tokens": 8}
    c = {"id": "C", "prompt": [1, 2, 3, 4, 9], "max_tokens": 2, "arrival_step": 20}
    raw = {"name": "own", "model": None, "engine": engine, "requests": [b, c]}
    actions = [{"step": step, "preempt": "B"} for step in (3, 5, 7)]
    found = run_scenario(scenario_from(raw | {"actions": actions}, Path(), "own")).summary
    assert found["requests"]["B"]["from_own_cache"] == found["requests"]["B"]["from_cache"] > 0
    assert found["requests"]["C"]["from_cache"] == 4
    assert found["requests"]["C"]["from_own_cache"] == 0
    assert found["tokens_from_cache"] - found["tokens_from_own_cache"] == 4
