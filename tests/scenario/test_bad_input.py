"""A scenario that cannot be is refused in one sentence that names it and the place.

Every case is given twice: to `load_scenario` (and, where only a run can tell, to `run_scenario`),
and to the command line, which must print the sentence alone on stderr, nothing on stdout, and end
with status 2. The words that each sentence must hold are the scenario's own: the key, the value,
the file.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvlab.cli import main
from kvlab.errors import BadInput
from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import load_scenario, scenario_from

ROOT = Path(__file__).resolve().parents[2]

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run the command line in this process: (status, stdout, stderr)."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(arguments)
        out, err = capsys.readouterr()
        return status, out, err

    return call


def assert_one_sentence(text: str, *words: str) -> None:
    line = text.removesuffix("\n")
    assert line.endswith((".", ")"))
    assert "\n" not in line
    assert "Traceback" not in line
    for word in words:
        assert word in line


def assert_refused(cli: Cli, scenario: str, settings: list[str], *words: str) -> None:
    """By the functions and by the command line, in the same words."""
    with pytest.raises(BadInput) as caught:
        run_scenario(load_scenario(scenario, settings))
    assert_one_sentence(str(caught.value), *words)
    options = [part for setting in settings for part in ("--set", setting)]
    status, out, err = cli("run", scenario, "--summary", *options)
    assert (status, out) == (2, "")
    assert err == f"kvlab: {caught.value}\n"


SETTINGS = [
    # The ones that everybody tries first.
    (["engine.block_size=0"], ["figure-5", "engine.block_size", "0"]),
    (["engine.num_blocks=-1"], ["figure-5", "engine.num_blocks", "-1"]),
    (["engine.method=teleport"], ["figure-5", "engine.method", "teleport", "recompute", "swap"]),
    (["device=tpu9"], ["figure-5", "device", "tpu9", "cpu", "cuda"]),
    (['requests.B.prompt=""'], ["figure-5", "requests.B.prompt", "empty"]),
    (["requests.B.prompt=[]"], ["figure-5", "requests.B.prompt", "empty"]),
    (["model=no-such-folder"], ["no-such-folder", "folder"]),
    (["engine.nope=1"], ["figure-5", "engine.nope", "known"]),
    # Wrong types.
    (["engine.num_blocks=four"], ["engine.num_blocks", "four"]),
    (["engine.num_blocks=4.0"], ["engine.num_blocks", "4.0"]),
    (["engine.num_blocks=true"], ["engine.num_blocks", "True"]),
    (["engine.prefix_cache=1"], ["engine.prefix_cache", "1"]),
    (["engine=null"], ["engine", "None"]),
    (["requests={}"], ["requests", "{}"]),
    (["requests.B.prompt=null"], ["requests.B.prompt", "text", "token ids"]),
    (["requests.B.prompt=[1.0]"], ["requests.B.prompt.0", "1.0"]),
    (["requests.B.prompt=[yes]"], ["requests.B.prompt.0", "True"]),
    (["requests.B.max_tokens=4.0"], ["requests.B.max_tokens", "4.0"]),
    (["requests.B.seed=1.5"], ["requests.B.seed", "1.5"]),
    (["requests.B.stop=kitchen"], ["requests.B.stop", "kitchen"]),
    (["title=[1]"], ["title", "[1]"]),
    (["lesson=3"], ["lesson", "3"]),
    # Impossible values.
    (["engine.host_blocks=-1"], ["engine.host_blocks", "-1"]),
    (["engine.chunk_tokens=0"], ["engine.chunk_tokens", "0"]),
    (["engine.step_tokens=0"], ["engine.step_tokens", "0"]),
    (["engine.max_running=0"], ["engine.max_running", "0"]),
    (["engine.copy_blocks_per_step=0"], ["engine.copy_blocks_per_step", "0"]),
    (["engine.num_blocks=100000000"], ["engine.num_blocks", "1000000"]),
    (
        ["engine.num_blocks=1000000", "engine.block_size=16"],
        ["engine.num_blocks", "4,194,304 slots"],
    ),
    (
        ["engine.host_blocks=2000", "engine.block_size=4096"],
        ["engine.host_blocks", "4,194,304 slots"],
    ),
    (["engine.watermark_blocks=4"], ["engine.watermark_blocks = 4", "engine.num_blocks = 4"]),
    (["engine.victim=os.system"], ["engine.victim", "os.system", "newest"]),
    (["engine.free_order=vllm_v1"], ["engine.free_order", "vllm_v1"]),
    (["engine.unsafe=[anything]"], ["engine.unsafe.0", "anything"]),
    (["engine.preset=vllm_v9"], ["engine.preset", "vllm_v9"]),
    (["dtype=int4"], ["dtype", "int4", "bfloat16"]),
    (["requests=[]"], ["requests", "empty"]),
    (["requests.B.max_tokens=0"], ["requests.B.max_tokens", "0"]),
    (["requests.B.temperature=-1"], ["requests.B.temperature", "-1"]),
    (["requests.B.temperature=.nan"], ["nan"]),
    (["requests.B.temperature=.inf"], ["inf"]),
    (["requests.B.top_p=0"], ["requests.B.top_p", "0"]),
    (["requests.B.top_p=1.01"], ["requests.B.top_p", "1.01"]),
    (["requests.B.top_k=-1"], ["requests.B.top_k", "-1"]),
    (["requests.B.n=0"], ["requests.B.n", "0"]),
    (["requests.B.arrival_step=-1"], ["requests.B.arrival_step", "-1"]),
    (["requests.B.arrival_step=10001"], ["requests.B.arrival_step", "10001", "maximum of 10000"]),
    (["requests.B.prompt=[-1]"], ["requests.B.prompt.0", "-1"]),
    (["requests.B.prompt=[1, 1024]"], ["'B'", "1024", "vocabulary of 1024"]),
    (["model=null"], ["figure-5", "token ids"]),  # texts, and nobody to tokenise them
    (["name=a.b"], ["name", "a.b", "letters"]),
    (["requests.B.id=a.b"], ["a.b", "dots"]),
    (['requests.B.id="A\\n"'], ["line breaks"]),
    (['requests.B.id="A\\u202eB"'], ["requests.1.id", "cannot be seen"]),
    (['requests.B.id="\\x9bA"'], ["requests.1.id", "cannot be seen"]),
    (["requests.B.id=A"], ["'A'", "twice"]),
    (["model="], ["token ids"]),
    (['model=""'], ["model", "empty"]),
    # Actions.
    (["actions=[{abort: A}]"], ["actions.0", "step"]),
    (["actions=[{step: 0, abort: A}]"], ["actions.0.step", "0"]),
    (["actions=[{step: 10001, abort: A}]"], ["actions.0.step", "maximum of 10000"]),
    (["actions=[{step: 1}]"], ["actions.0", "abort", "preempt", "pause", "resume"]),
    (["actions=[{step: 1, abort: A, pause: B}]"], ["actions.0", "one of"]),
    (["actions=[{step: 1, abort: Z}]"], ["actions.0", "'Z'"]),
    (["actions=[{step: 1, abort: A, method: swap}]"], ["actions.0", "method", "preempt"]),
    (["actions=[{step: 1, preempt: A, method: magic}]"], ["actions.0.method", "magic"]),
    (["actions=[{step: 1, explode: A}]"], ["actions.0.explode", "known"]),
    # --set itself.
    (["nothing"], ["--set nothing", "PATH=VALUE"]),
    (["=1"], ["--set =1", "PATH=VALUE"]),
    (["requests.C.seed=1"], ["requests.C.seed", "'C'"]),
    (["requests.B=1"], ["requests.B"]),
    (["name.x=1"], ["name.x", "single value"]),
    (["engine.method=[swap"], ["engine.method", "YAML"]),
    (["a.b=1"], ["a is not a known key"]),
    (["lesson.x=!!python/name:os.system"], ["lesson.x", "YAML"]),
]


@pytest.mark.parametrize(("settings", "words"), SETTINGS, ids=[case[0][0] for case in SETTINGS])
def test_a_setting_that_cannot_be(cli: Cli, settings: list[str], words: list[str]) -> None:
    assert_refused(cli, "figure-5", settings, *words)


GOOD = {
    "name": "good",
    "model": None,
    "engine": {"num_blocks": 4, "block_size": 4},
    "requests": [{"id": "A", "prompt": [1, 2, 3], "max_tokens": 2}],
}

YAML = """\
name: good
model: null
engine: {num_blocks: 4, block_size: 4}
requests: [{id: A, prompt: [1, 2, 3], max_tokens: 2}]
"""

BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
)


def indented(text: str) -> str:
    return "\n".join("  " + line for line in text.splitlines())


FILES = [
    ("empty", "", ["mapping"]),
    ("list", "[1, 2]", ["mapping"]),
    ("words", "just words", ["mapping"]),
    ("no-yaml", "name: [", ["not valid YAML"]),
    ("two-documents", YAML + "---\nname: z\n", ["not valid YAML", "document"]),
    ("tab", YAML + "\tx: 1\n", ["not valid YAML"]),
    ("nul", "\x00", ["not valid YAML"]),
    ("no-name", YAML.replace("name: good\n", ""), ["'name'", "required"]),
    ("no-engine", YAML.replace("engine", "lesson"), ["'engine'", "required"]),
    ("no-requests", YAML.replace("requests: [", "lesson: {x: [") + "}", ["'requests'", "required"]),
    ("no-pool", YAML.replace("num_blocks: 4, ", ""), ["engine", "'num_blocks'", "required"]),
    ("no-block-size", YAML.replace(", block_size: 4", ""), ["engine", "'block_size'"]),
    ("no-id", YAML.replace("id: A, ", ""), ["requests.0", "'id'"]),
    ("no-prompt", YAML.replace("prompt: [1, 2, 3], ", ""), ["requests.A", "'prompt'"]),
    ("no-max", YAML.replace(", max_tokens: 2", ""), ["requests.A", "'max_tokens'"]),
    ("unknown", YAML + "import: os\n", ["import is not a known key"]),
    ("unknown-in-request", YAML.replace("id: A", "id: A, run: x"), ["requests.A.run"]),
    ("number-key", YAML + "1: 2\nfoo: 3\n", ["1", "not text"]),
    ("number-key-below", YAML + "lesson: {1: 2}\n", ["lesson", "1", "not text"]),
    ("twice", YAML + "name: other\n", ["'name'", "twice"]),
    ("nan-in-lesson", YAML + "lesson: {x: .nan}\n", ["lesson.x", "nan"]),
    ("set-in-lesson", YAML + "lesson: {x: !!set {a}}\n", ["lesson.x", "set"]),
    ("bytes-in-lesson", YAML + "lesson: {x: !!binary aGk=}\n", ["lesson.x", "bytes"]),
    ("loop", YAML + "lesson: &l {again: *l}\n", ["lesson.again", "nested deeper"]),
    ("deep", YAML + "lesson: {x: " + "[" * 500 + "]" * 500 + "}\n", ["nested deeper"]),
    ("very-deep", YAML + "lesson: " + "[" * 50_000, ["not valid YAML"]),
    ("odd-tag-int", YAML + 'lesson: {x: !!int ""}\n', ["not valid YAML"]),
    ("odd-tag-bool", YAML + "lesson: {x: !!bool maybe}\n", ["not valid YAML"]),
    ("odd-tag-time", YAML + "lesson: {x: !!timestamp soon}\n", ["not valid YAML"]),
    ("bomb-at-the-top", BOMB + "\n" + YAML, ["values"]),
    ("bomb-in-the-lesson", YAML + "lesson:\n" + indented(BOMB), ["values"]),
    ("bomb-as-title", YAML + "lesson:\n" + indented(BOMB) + "\ntitle: *a9\n", ["values"]),
    (
        "bomb-as-prompt",
        BOMB.replace("x", "1") + "\n" + YAML.replace("[1, 2, 3]", "*a9"),
        ["values"],
    ),
]


@pytest.mark.parametrize(("name", "text", "words"), FILES, ids=[case[0] for case in FILES])
def test_a_yaml_file_that_does_not_fit(
    cli: Cli, tmp_path: Path, name: str, text: str, words: list[str]
) -> None:
    path = tmp_path / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    started = time.monotonic()
    assert_refused(cli, str(path), [], str(path), *words)
    assert time.monotonic() - started < 30  # a bomb would take longer than anybody waits
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def changed(**values: Any) -> str:
    return json.dumps(GOOD | values)


JSON_FILES = [
    ("cut", json.dumps(GOOD)[:40], ["not valid YAML or JSON"]),
    ("yaml-inside", YAML, ["not valid YAML or JSON"]),
    ("nan", changed(lesson={"x": float("nan")}), ["lesson.x", "nan"]),
    ("twice", json.dumps(GOOD)[:-1] + ', "name": "b"}', ["'name'", "twice"]),
    ("half-a-pair", changed(title="\ud83d"), ["title", "half a character"]),
    (
        "half-a-pair-in-a-prompt",
        changed(model="story", requests=[{"id": "A", "prompt": "x\udc00", "max_tokens": 1}]),
        ["requests.0.prompt", "half a character"],
    ),
    ("deep", "[" * 100_000, ["not valid YAML or JSON"]),
    ("list", "[]", ["mapping"]),
]


@pytest.mark.parametrize(("name", "text", "words"), JSON_FILES, ids=[c[0] for c in JSON_FILES])
def test_a_json_file_that_does_not_fit(
    cli: Cli, tmp_path: Path, name: str, text: str, words: list[str]
) -> None:
    path = tmp_path / f"{name}.json"
    path.write_text(text, encoding="utf-8")
    assert_refused(cli, str(path), [], str(path), *words)


def test_bytes_that_are_no_text(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes(YAML.replace("good", "gut").encode() + b"title: \xe4\n")
    assert_refused(cli, str(path), [], str(path), "UTF-8")


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_a_huge_file_is_refused_before_it_is_read(cli: Cli, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"huge{suffix}"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole of 1 TiB: reading it would end the test
    assert_refused(cli, str(path), [], str(path), "larger than", "bytes")


def test_files_that_are_not_there(cli: Cli, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    for name in ("figure-0", str(tmp_path), missing, "x" * 300, "a\0b", "../figure-5"):
        assert_refused(cli, name, [], "no such file", "figure-1", "figure-5")
    assert cli("run", "") == (2, "", "kvlab: run: what is given here is empty\n")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "secret.yaml"
    path.write_text(YAML)
    path.chmod(0)
    assert_refused(cli, str(path), [], str(path), "cannot be read")


def test_a_model_folder_that_is_none(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    path = tmp_path / "s.yaml"
    path.write_text(YAML.replace("model: null", "model: model"))
    assert_refused(cli, str(path), [], str(tmp_path / "model"), "config.json")
    (tmp_path / "model" / "config.json").write_text("{")
    assert_refused(cli, str(path), [], "config.json", "JSON")
    path.write_text(YAML.replace("model: null", "model: s.yaml"))
    assert_refused(cli, str(path), [], "s.yaml", "not a folder")


# Nothing that a scenario says is ever executed.


class Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


def test_code_in_a_scenario_is_refused_and_not_run(cli: Cli, tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    open_it = f'["{trap}", "w"]'
    for number, tag in enumerate(
        (
            "!!python/object/apply:builtins.open",
            "!!python/object/new:io.open",
            "!!python/name:os.system",
            "!!python/module:os",
        )
    ):
        path = tmp_path / f"{number}.yaml"
        path.write_text(YAML + f"lesson: {{x: {tag} {open_it}}}\n")
        assert_refused(cli, str(path), [], str(path), "python")
    binary = tmp_path / "pickle.yaml"
    binary.write_bytes(pickle.dumps(Trap(trap), protocol=0))
    assert_refused(cli, str(binary), [], str(binary))
    assert not trap.exists()


def test_words_that_look_like_code_stay_words(tmp_path: Path) -> None:
    words = ["__import__('os')", "$(id)", "{{ 7 * 7 }}", "file:///etc/hosts", "<script>"]
    document = GOOD | {"title": words[0], "lesson": {"notes": words}}
    run = run_scenario(scenario_from(document, tmp_path, "test"))
    assert run.trace.document["scenario"]["title"] == words[0]
    assert run.trace.document["scenario"]["lesson"] == {"notes": words}
    assert list(tmp_path.iterdir()) == []


# The whole program, as it is called.


def kvlab(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kvlab", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_program_ends_with_status_2_and_one_sentence(tmp_path: Path) -> None:
    target = tmp_path / "trace.json"
    done = kvlab(
        *("run", "figure-5", "--summary", "--set", "engine.block_size=0", "--json", str(target)),
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert_one_sentence(done.stderr, "figure-5", "engine.block_size")
    assert list(tmp_path.iterdir()) == []  # nothing was half-written


def test_a_trace_that_cannot_be_written_is_said_before_the_run(cli: Cli, tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "trace.json"
    for target in (missing, tmp_path):
        status, out, err = cli("run", "figure-5", "--summary", "--json", str(target))
        assert (status, out) == (2, "")
        assert str(target) in err
        assert err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["run"], ["walk"], ["run", "figure-5", "--loud"]])
def test_a_command_that_does_not_exist_is_bad_input(cli: Cli, arguments: list[str]) -> None:
    status, out, err = cli(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("kvlab: ")
    assert err.count("\n") == 1


def test_a_list_that_is_too_long_is_refused_with_both_numbers() -> None:
    request = {"id": "A", "prompt": [1], "max_tokens": 1, "stop": ["x"] * 65}
    raw = {"name": "x", "engine": {"num_blocks": 4, "block_size": 4}, "requests": [request]}
    with pytest.raises(BadInput, match=r"requests\.A\.stop has 65 entries and takes at most 64\.$"):
        scenario_from(raw, Path(), "scenario x")
    with pytest.raises(BadInput, match=r"requests is empty; give at least 1\.$"):
        scenario_from(raw | {"requests": []}, Path(), "scenario x")
