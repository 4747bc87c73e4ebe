"""Trace files: what is written can be read, what does not fit is refused by place.

Broken files are made from a good one by one change each; the words to expect name that change.
"""

from __future__ import annotations

import copy
import errno
import itertools
import json
import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from kvlab.errors import BadInput
from kvlab.models.loading import LoadedModel, load_model
from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import load_scenario
from kvlab.trace.document import Trace

Document = dict[str, Any]


@cache
def story_model() -> LoadedModel:
    torch.set_num_threads(1)  # a model this small only loses by a second thread
    return load_model("story", device="cpu")


def new_run(name: str, *settings: str) -> Trace:
    scenario = load_scenario(name, ["device=cpu", *settings])
    return run_scenario(scenario, model=story_model()).trace


@cache
def figure_4() -> Trace:
    return new_run("figure-4")


@pytest.fixture
def document() -> Document:
    """A good document, to be broken."""
    return copy.deepcopy(figure_4().document)


def refusal(document: Any) -> str:
    with pytest.raises(BadInput) as caught:
        Trace.from_json(document, "trace t.json")
    message = str(caught.value)
    assert message.startswith("trace t.json")
    assert "\n" not in message
    return message


def first(document: Document, kind: str) -> Document:
    return next(event for event in document["events"] if event["kind"] == kind)


# There and back.


@pytest.mark.parametrize("name", ["figure-2", "figure-4", "figure-5"])
def test_what_is_written_is_what_is_read(tmp_path: Path, name: str) -> None:
    trace = new_run(name)
    path = tmp_path / "trace.json"
    trace.write(path)
    back = Trace.read(path)
    assert trace.document["recorded"] is False
    assert back.document == trace.document | {"recorded": True}
    assert back.state_at(len(back.events)) == trace.state_at(len(trace.events))
    assert back.name == name


def test_a_trace_of_stand_ins_is_a_trace(tmp_path: Path) -> None:
    prompts = [f"requests.{id}.prompt=[1, 2, 3, 4, 5, 6, 7]" for id in "AB"]
    trace = new_run("figure-5", "model=null", *prompts)
    trace.write(tmp_path / "t.json")
    back = Trace.read(tmp_path / "t.json")
    assert back.document["model"]["stand_in"] is True
    assert back.document["measurements"] == []


def test_a_trace_is_utf_8_whatever_it_holds(tmp_path: Path) -> None:
    trace = new_run("figure-5", 'title="Größe 🙂 日本"')
    trace.write(tmp_path / "t.json")
    text = (tmp_path / "t.json").read_bytes().decode("utf-8")
    assert json.loads(text)["scenario"]["title"] == "Größe 🙂 日本"


# Finding a place in a trace.


def test_cursors_of_steps_and_events() -> None:
    trace = figure_4()
    ends = [step["end"] for step in trace.steps]
    assert [trace.cursor_of(step) for step in range(1, 9)] == ends
    assert ends[-1] == len(trace.events)
    at = trace.cursor_of(3, "block_released", id="B")
    assert trace.events[at - 1]["kind"] == "block_released"
    assert trace.cursor_of(1, "kv_written") == trace.cursor_of(1, "kv_written", id="B")
    with pytest.raises(BadInput, match="no step 9"):
        trace.cursor_of(9)
    with pytest.raises(BadInput, match="step 1 has no event preempted"):
        trace.cursor_of(1, "preempted")


def test_a_step_is_a_span_of_events_that_says_its_number() -> None:
    for name in ("figure-2", "figure-4", "figure-5"):
        trace = new_run(name)
        assert [step["step"] for step in trace.steps] == list(range(1, len(trace.steps) + 1))
        assert trace.steps[0]["first"] == 0
        for step, following in itertools.pairwise(trace.steps):
            assert step["end"] == following["first"]
        for step in trace.steps:
            span = trace.events[step["first"] : step["end"]]
            assert span[0]["kind"] == "step_started"
            assert {event["step"] for event in span} == {step["step"]}


# The same run twice.


@pytest.mark.parametrize("name", ["figure-2", "figure-4", "figure-5"])
def test_two_runs_tell_the_same_events(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the clock says: here the second run's goes backwards and in leaps."""
    one = new_run(name)
    clock = itertools.count(1_000_000, -317)
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    two = new_run(name)
    assert all(step["seconds"] < 0 for step in two.steps)
    assert two.events == one.events
    for part in ("scenario", "run", "model", "pool", "requests", "tokens", "measurements"):
        assert two.document[part] == one.document[part]


def test_no_event_holds_seconds() -> None:
    """The estimates of method auto aside, which are None by any other method."""
    for name in ("figure-2", "figure-4", "figure-5"):
        for event in new_run(name).events:
            for field, value in event.items():
                assert not isinstance(value, float), (event["kind"], field)
                assert not any(word in field for word in ("second", "time", "clock")), field
                if field.endswith("_s"):
                    assert value is None


# What does not fit.


@pytest.mark.parametrize("document", [None, [], "text", 3, {}, {"format": "other"}])
def test_what_is_no_trace_at_all(document: Any) -> None:
    assert "not a kvlab trace" in refusal(document)


@pytest.mark.parametrize("version", ["1", None, 1.5, True, 0, -1, [1]])
def test_a_version_that_is_none(document: Document, version: Any) -> None:
    document["version"] = version
    assert f"the version {version!r} where a trace has a whole number" in refusal(document)
    del document["version"]
    assert "no version where a trace has a whole number" in refusal(document)


@pytest.mark.parametrize("name", ["num_blocks", "host_blocks"])
def test_a_pool_that_would_fill_the_memory(document: Document, name: str) -> None:
    document["pool"] |= {name: 1_000_000, "block_size": 4_096}
    message = refusal(document)
    assert f"pool.{name} = 1000000 of 4096 slots" in message


def test_an_older_version_says_what_to_do(document: Document) -> None:
    document["version"] = 1
    message = refusal(document)
    assert "version 1 was recorded by an older kvlab" in message
    assert "run its scenario again" in message


@pytest.mark.parametrize("version", [3, 99])
def test_a_newer_version(document: Document, version: Any) -> None:
    document["version"] = version
    message = refusal(document)
    assert repr(version) in message
    assert "newer than 2" in message
    assert "update kvlab" in message


PARTS = [
    "kvlab",
    "recorded",
    "scenario",
    "run",
    "model",
    "pool",
    "requests",
    "tokens",
    "events",
    "steps",
    "measurements",
    "summary",
]


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_missing(document: Document, part: str) -> None:
    del document[part]
    assert f"'{part}'" in refusal(document)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_the_wrong_type(document: Document, part: str) -> None:
    document[part] = 3.5
    assert part in refusal(document)


def test_a_field_that_is_missing_from_an_event(document: Document) -> None:
    at = document["events"].index(first(document, "preempted"))
    del document["events"][at]["history"]
    message = refusal(document)
    assert f"events.{at}" in message
    assert "'history'" in message


def test_a_field_that_no_event_has(document: Document) -> None:
    at = document["events"].index(first(document, "scheduled"))
    document["events"][at]["colour"] = "red"
    assert f"events.{at}.colour" in refusal(document)


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("scheduled", "tokens", "7"),
        ("scheduled", "tokens", 7.0),
        ("scheduled", "samples", 1),
        ("block_allocated", "blocks", [0, "1"]),
        ("block_allocated", "blocks", 0),
        ("arrived", "history", True),
        ("token_delivered", "text", None),
        ("step_started", "running", [1]),
    ],
)
def test_a_field_of_the_wrong_type(document: Document, kind: str, field: str, value: Any) -> None:
    event = first(document, kind)
    event[field] = value
    assert f"events.{document['events'].index(event)}.{field}" in refusal(document)


def test_an_event_of_an_unknown_kind(document: Document) -> None:
    document["events"][5]["kind"] = "exploded"
    message = refusal(document)
    assert "events.5" in message
    assert "exploded" in message


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("block_allocated", "blocks", [0, 4]),
        ("block_allocated", "blocks", [-1, 0]),
        ("kv_written", "block", 4),
        ("kv_written", "block", -1),
        ("kv_written", "slot", 4),
        ("kv_written", "slot", -1),
        ("kv_written", "last", 9),
        ("block_released", "blocks", [7]),
        ("swap_out_started", "host_blocks", [0, 4]),
        ("swap_out_started", "host_blocks", [0, -1]),
        ("swap_out_advanced", "host_blocks", [0]),
        ("host_block_released", "host_blocks", [9]),
        ("token_sampled", "id", "C"),
        ("scheduled", "step", 0),
    ],
)
def test_an_event_that_does_not_fit_what_was_before_it(
    document: Document, kind: str, field: str, value: Any
) -> None:
    event = first(document, kind)
    event[field] = value
    message = refusal(document)
    at = document["events"].index(event)
    assert f"event {at} ({kind}" in message or f"events.{at}." in message


def test_an_event_out_of_place(document: Document) -> None:
    """The arrival of A, which everything of A builds on, told at the end of its step."""
    arrival = first(document, "arrived")
    document["events"].remove(arrival)
    document["events"].insert(document["steps"][0]["end"] - 1, arrival)
    message = refusal(document)
    assert "event 2 (admitted, step 1)" in message


Change = Callable[[list[Document]], Any]


@pytest.mark.parametrize(
    "change",
    [
        lambda steps: steps.pop(),
        lambda steps: steps.pop(3),
        lambda steps: steps.reverse(),
        lambda steps: steps[2].update(end=steps[2]["end"] + 1),
        lambda steps: steps[2].update(end=0),
        lambda steps: steps[-1].update(end=steps[-1]["end"] + 5),
        lambda steps: steps[4].update(step=7),
    ],
)
def test_steps_that_do_not_cover_the_events(document: Document, change: Change) -> None:
    change(document["steps"])
    assert "step" in refusal(document)


def test_an_event_in_the_span_of_another_step(document: Document) -> None:
    first(document, "scheduled")["step"] = 2
    assert "steps.0 covers events of another step than 1" in refusal(document)


def test_events_that_were_cut_off(document: Document) -> None:
    del document["events"][-3:]
    assert f"of {len(document['events'])} events" in refusal(document)


# Files.


def read_refusal(path: Path) -> str:
    with pytest.raises(BadInput) as caught:
        Trace.read(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("text", ["", "not json", "{", "[1, 2", "[" * 200_000, "\x00"])
def test_a_file_that_is_not_json(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    assert "not valid JSON" in read_refusal(path)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b"\xff\xfe\x00{")
    assert "not valid JSON" in read_refusal(path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_file_that_was_cut_off(tmp_path: Path, share: float) -> None:
    path = tmp_path / "t.json"
    figure_4().write(path)
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole[: int(len(whole) * share)], encoding="utf-8")
    assert "not valid JSON" in read_refusal(path)


def test_a_file_that_is_not_there_or_too_large(tmp_path: Path) -> None:
    assert "cannot be read" in read_refusal(tmp_path / "missing.json")
    assert "cannot be read" in read_refusal(tmp_path)
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(1 << 40)  # a hole of 1 TiB: reading it would end the test
    assert "larger than" in read_refusal(huge)


# Whole or not at all.


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "t.json"
    with pytest.raises(BadInput, match="cannot be written"):
        figure_4().write(path)
    assert list(tmp_path.iterdir()) == []


def full(*args: Any, **kwargs: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("moment", ["write_bytes", "replace"])
def test_a_failure_leaves_the_old_file_and_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    path = tmp_path / "t.json"
    path.write_text("the old one")
    write = Path.write_bytes

    def write_half(self: Path, data: bytes) -> int:
        write(self, data[:100])
        return int(full())

    with monkeypatch.context() as patch:
        patch.setattr(Path, moment, write_half if moment == "write_bytes" else full)
        with pytest.raises(BadInput, match=r"t\.json cannot be written \(No space left"):
            figure_4().write(path)
    assert [file.name for file in tmp_path.iterdir()] == ["t.json"]
    assert path.read_text() == "the old one"


def test_a_text_that_utf_8_has_no_form_for_leaves_nothing_behind(
    tmp_path: Path, document: Document
) -> None:
    document["scenario"]["title"] = "half a pair: \ud83d"
    with pytest.raises(BadInput, match="cannot be written"):
        Trace(document).write(tmp_path / "t.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="links need rights elsewhere")
def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    """`--json /dev/stdout` must not put a file in the place of the device."""
    (tmp_path / "link").symlink_to(tmp_path / "target.json")
    figure_4().write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert Trace.read(tmp_path / "target.json").name == "figure-4"
