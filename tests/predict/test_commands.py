"""`kvlab predict` and `kvlab plan` as a person types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvlab.cli import main

SERVER = ["--gpu", "rtx4090", "--model", "llama-3.1-8b"]


def test_the_summary_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "sharegpt-300", *SERVER, "--requests", "5", "--summary"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["requests"] == 5
    assert told["model"] == "llama-3.1-8b"


def test_the_report_names_the_clock_and_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "azure-code", "--gpu", "h200", *SERVER[2:], "--requests", "5"]) == 0
    told = capsys.readouterr().out
    assert "clock: data sheet of H200 SXM" in told
    assert "its error: " in told


def test_a_trace_is_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trace.json"
    assert main(["predict", "sharegpt-300", *SERVER, "--requests", "2", "--json", str(file)]) == 0
    document = json.loads(file.read_text("utf-8"))
    assert document["scenario"]["title"].endswith("as predicted")
    assert document["steps"][1]["seconds"] > 0.01  # a step of that card, not of this machine
    assert "trace written" in capsys.readouterr().err


def test_a_plan_and_what_helps(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["plan", "sharegpt-300", *SERVER, "--requests", "8"]
    assert main([*few, "--limit", "e2e_s.mean<20", "--summary"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "kvlab-plan/1"
    assert main([*few, "--helped"]) == 0
    assert "as it was" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nobody.csv", *SERVER], "nobody.csv: cannot be read"),
        (["sharegpt-300", "--gpu", "tpu9", *SERVER[2:]], "--gpu tpu9: known are rtx4090"),
        (["sharegpt-300", *SERVER[:3], "gpt-9"], "--model gpt-9: known are llama-3.1-70b"),
        (["sharegpt-300", *SERVER[:3], "llama-3.1-70b"], "does not fit on 1 x RTX 4090"),
        (["sharegpt-300", *SERVER, "--tp", "3"], "--tp 3: must be from 1 to 8 and divide"),
        (["sharegpt-300", *SERVER, "--rate", "-1"], "--rate -1: must be above 0"),
        (["sharegpt-300", *SERVER, "--set", "num_blocks=3"], "write it as engine.KEY=VALUE"),
        (["sharegpt-300", *SERVER, "--set", "engine.colour=3"], "engine.colour=3: settings are"),
        (
            ["sharegpt-300", *SERVER, "--set", "engine.num_blocks=0"],
            "engine.num_blocks = 0 must be",
        ),
        (["sharegpt-300", *SERVER, "--set", "engine.num_blocks=90"], "needs 181 blocks"),
        (["sharegpt-300", *SERVER, "--set", "engine.method=auto"], "engine.method = 'auto'"),
        (["sharegpt-300", *SERVER, "--set", "engine.async_scheduling=1"], "must be true or false"),
        (["sharegpt-300", *SERVER, "--json", "-"], "--json -: stdout has the table"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", *arguments]) == 2
    told = capsys.readouterr()
    assert sentence in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""


def test_a_torn_workload_and_a_strange_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torn = tmp_path / "torn.jsonl"
    torn.write_text('{"arrival_s": 0, "prompt_tokens": 9, "output_tokens": 2}\n{"arr')
    assert main(["predict", str(torn), *SERVER]) == 2
    assert "torn.jsonl: line 2: not a whole JSON object" in capsys.readouterr().err
    config = tmp_path / "config.json"
    config.write_text('{"num_attention_heads": 8, "hidden_size": 512, "num_experts": 4}')
    assert main(["predict", "sharegpt-300", "--gpu", "l4", "--model", str(config)]) == 2
    assert "a mixture of experts is not predicted" in capsys.readouterr().err
    config.write_text('{"num_attention_heads": 8, "hidden_size": 512}')
    assert main(["predict", "sharegpt-300", "--gpu", "l4", "--model", str(tmp_path)]) == 2
    assert "num_hidden_layers = None must be a whole number" in capsys.readouterr().err


def test_a_models_config_is_read_like_the_known_one(tmp_path: Path) -> None:
    from kvlab.predict.models import MODELS, load_model

    config = {
        "num_hidden_layers": 64,
        "hidden_size": 5120,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 25600,
        "vocab_size": 151936,
        "model_type": "qwen3",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    shape = load_model(str(tmp_path))
    assert shape.weight_bytes == MODELS["qwen3-32b"].weight_bytes
    assert shape.kv_bytes == MODELS["qwen3-32b"].kv_bytes == 262_144
    # Qwen3-32B has 32.8 billion parameters, as its card says.
    assert shape.weight_bytes / 2 == pytest.approx(32.8e9, rel=0.002)
