"""Workloads of four forms, and what a person is told who gives a bad one."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from kvlab.errors import BadInput
from kvlab.predict.workload import Asked, Measured, load_workload, read_workload


def test_our_json_lines_keep_blocks_and_what_was_measured() -> None:
    text = (
        '{"arrival_s": 2.5, "prompt_tokens": 40, "output_tokens": 3, "prompt_blocks": [7, 8],'
        ' "measured": {"first_token_s": 3.0, "last_token_s": 4.0}}\n'
        '\n{"arrival_s": 2.0, "prompt_tokens": 5, "output_tokens": 1}\n'
    )
    workload = read_workload(text, "mine")
    assert workload.queued
    assert not workload.is_measured
    assert workload.requests == (
        Asked(0.0, 5, 1),
        Asked(0.5, 40, 3, (7, 8), Measured(1.0, 2.0)),
    )


def test_a_csv_of_ours_and_azures_own_say_the_same() -> None:
    ours = read_workload("arrival_s,prompt_tokens,output_tokens\n0,4808,10\n3.2,110,27\n", "a")
    azures = read_workload(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:07.1799600,110,27\n",
        "b",
    )
    assert [asked.prompt_tokens for asked in azures.requests] == [4808, 110]
    assert azures.requests[1].arrival_s == pytest.approx(3.2, abs=1e-6)
    assert azures.requests[1].output_tokens == ours.requests[1].output_tokens == 27
    assert not ours.queued


def test_mooncakes_blocks_of_512_become_32_of_ours() -> None:
    text = (
        '{"timestamp": 1000, "input_length": 1100, "output_length": 9, "hash_ids": [0, 5, 6]}\n'
        '{"timestamp": 3500, "input_length": 600, "output_length": 2, "hash_ids": [0, 9]}\n'
    )
    first, second = read_workload(text, "moon").requests
    assert (first.arrival_s, second.arrival_s) == (0.0, 2.5)
    assert len(first.blocks) == 1100 // 16
    assert first.blocks[:32] == second.blocks[:32]
    assert set(first.blocks[32:]).isdisjoint(second.blocks[32:])
    assert len(second.blocks) == 600 // 16


def test_a_rate_makes_gaps_shorter_and_ends_what_was_measured() -> None:
    workload = load_workload("sharegpt-300")
    twice = workload.at_rate(2)
    assert workload.is_measured
    assert not twice.is_measured
    assert twice.seconds == pytest.approx(workload.seconds / 2)
    assert workload.at_rate(1) is workload


@pytest.mark.parametrize(
    ("name", "requests", "mean_prompt", "mean_output"),
    # Counts and means as Azure's dataset has them; ShareGPT's of the measured run.
    [
        ("azure-conv", 19_366, 1154.7, 211.1),
        ("azure-code", 8_819, 2047.8, 27.9),
        ("sharegpt-300", 300, 857.5, 652.5),
    ],
)
def test_shipped_workloads_are_whole(
    name: str, requests: int, mean_prompt: float, mean_output: float
) -> None:
    asked = load_workload(name).requests
    assert len(asked) == requests
    assert sum(one.prompt_tokens for one in asked) / requests == pytest.approx(
        mean_prompt, abs=0.06
    )
    assert sum(one.output_tokens for one in asked) / requests == pytest.approx(
        mean_output, abs=0.06
    )
    assert asked[0].arrival_s == 0.0


def test_blocks_of_the_measured_workload_are_shared_as_published() -> None:
    blocks = [block for one in load_workload("sharegpt-300").requests for block in one.blocks]
    assert (len(blocks), len(set(blocks))) == (15_942, 14_722)


HEAD = "arrival_s,prompt_tokens,output_tokens\n"
ROW = '{"arrival_s": 0, "prompt_tokens": 20, "output_tokens": 1'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "mine: there is no request in it"),
        (HEAD, "mine: there is no request in it"),
        ("when,what\n1,2\n", "mine: line 1: neither JSON lines nor a CSV header"),
        (HEAD + "0,1,1\n-3,5,5\n", "mine: line 3: arrival_s = '-3' must be a time from 0 on"),
        (HEAD + "nan,5,5\n", "mine: line 2: arrival_s = 'nan'"),
        (HEAD + "0,0,5\n", "mine: line 2: prompt_tokens = '0' must be a whole number from 1"),
        (HEAD + "0,5,2.5\n", "mine: line 2: output_tokens = '2.5'"),
        (HEAD + "0,5\n", "mine: line 2: 2 values where the header has 3"),
        (ROW + '}\n{"arrival_s": 1, "pro', "mine: line 2: not a whole JSON object"),
        (ROW + "}\n[1]\n", "mine: line 2: must be a JSON object"),
        (ROW + ', "prompt_blocks": [1, 2]}', "mine: line 1: 2 prompt_blocks of 16 tokens are more"),
        (ROW + ', "prompt_blocks": [1.5]}', "mine: line 1: prompt_blocks must be a list of whole"),
        (ROW + ', "measured": 3}', "mine: line 1: measured must be an object"),
        (ROW + ', "measured": {"first_token_s": 1}}', "mine: line 1: last_token_s = None"),
        (
            '{"timestamp": -1, "input_length": 1, "output_length": 1}',
            "mine: line 1: timestamp = -1",
        ),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,1,1\n", "mine: line 2: TIMESTAMP = 'noon'"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_workload(text, "mine")
    assert sentence in str(caught.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot be read .*shipped are azure-code"):
        load_workload(tmp_path / "none.csv")
    torn = tmp_path / "torn.csv.gz"
    torn.write_bytes(gzip.compress((HEAD + "0,1,1\n").encode())[:-9])
    with pytest.raises(BadInput, match="cannot be read"):
        load_workload(torn)
    (tmp_path / "latin.csv").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(BadInput, match="not UTF-8"):
        load_workload(tmp_path / "latin.csv")
