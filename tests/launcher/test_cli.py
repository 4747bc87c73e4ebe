"""The command line: what goes to stdout and stderr, and the exit status."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvlab import cli
from kvlab.errors import BadInput, NotSupportedYet

ROOT = Path(__file__).resolve().parents[2]


def test_summary_is_one_json_object_and_nothing_else():
    done = subprocess.run(
        [sys.executable, "-m", "kvlab", "run", "figure-5", "--summary"],
        cwd=ROOT,
        env={**os.environ, "KVLAB_AS_IT_IS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["tokens_processed"] == 30
    assert done.stderr == ""


def test_the_table_is_the_default_and_a_trace_is_written_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    trace = tmp_path / "trace.json"
    assert cli.main(["run", "figure-5", "--json", str(trace)]) == 0
    said = capsys.readouterr()
    assert "B preempted (recompute), 2 freed" in " ".join(said.out.split())
    assert f"trace written to {trace}" in said.err
    assert json.loads(trace.read_text())["scenario"]["name"] == "figure-5"


@pytest.mark.parametrize(
    "setting",
    [
        "engine.block_size=0",
        "engine.num_blocks=-1",
        "engine.method=teleport",
        "device=tpu9",
        "engine.nope=1",
        "requests.C.seed=1",
        "nonsense",
        "requests.A.prompt=[]",
        'requests.A.prompt=""',
        "model=/nowhere",
    ],
)
def test_a_scenario_that_does_not_fit_is_one_sentence(
    setting: str, capsys: pytest.CaptureFixture[str]
):
    assert cli.main(["run", "figure-5", "--set", setting]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("kvlab: ")
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let `kvlab doctor` raise this."""

    def examine(root: Path) -> Any:
        raise error

    import kvlab.doctor

    monkeypatch.setattr(kvlab.doctor, "examine", examine)


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (BadInput("the pool is too small"), 2, "kvlab: the pool is too small\n"),
        (NotSupportedYet("n > 1 is not supported yet"), 2, "not supported yet"),
        (ValueError("a\nb"), 1, "kvlab: our fault: ValueError: a b (KVLAB_DEBUG=1 shows where)\n"),
        (ModuleNotFoundError("x", name="tokenizers"), 2, "tokenizers is not installed: remove"),
        (ModuleNotFoundError("no kvlab.x", name="kvlab.x"), 1, "our fault"),
        (KeyboardInterrupt(), 130, "stopped"),
    ],
)
def test_every_end_has_its_status_and_one_sentence(
    error: BaseException,
    status: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.delenv("KVLAB_DEBUG", raising=False)
    fail_with(monkeypatch, error)
    assert cli.main(["doctor"]) == status
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_the_debug_variable_shows_where(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("KVLAB_DEBUG", "1")
    fail_with(monkeypatch, ValueError("here"))
    assert cli.main(["doctor"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_nothing_given_is_help_and_status_2(capsys: pytest.CaptureFixture[str]):
    assert cli.main([]) == 2
    assert "Commands:" in capsys.readouterr().out


def test_further_arguments_of_test_go_to_pytest(monkeypatch: pytest.MonkeyPatch):
    import kvlab.launcher.suite

    given: list[tuple[list[str], list[str]]] = []

    def run_suite(root: Path, arguments: list[str], more: list[str]) -> int:
        given.append((list(arguments), more))
        return 3

    monkeypatch.setattr(kvlab.launcher.suite, "run_suite", run_suite)
    assert cli.main(["test", "--full", "tests/launcher", "-k", "stamp", "-x"]) == 3
    assert given == [(["tests/launcher", "-k", "stamp", "-x"], ["--full"])]


def test_the_doctor_tells_by_its_status_whether_the_lab_can_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    import kvlab.doctor

    for can_run, status in ((True, 0), (False, 1)):
        found = SimpleNamespace(report=lambda: "all of it\n", can_run=can_run)
        monkeypatch.setattr(kvlab.doctor, "examine", lambda root, found=found: found)
        assert cli.main(["doctor"]) == status
        assert capsys.readouterr().out == "all of it\n"


# Help.


def test_help_cuts_no_sentence_off_and_names_what_is_shipped(capsys: pytest.CaptureFixture[str]):
    for command in ([], ["bench"], ["model"]):
        assert cli.main([*command, "--help"]) == 0
        assert "..." not in capsys.readouterr().out.replace("[ARGS]...", "")
    assert cli.main(["run", "--help"]) == 0
    shown = capsys.readouterr().out
    for name in ("figure-1", "storm", "waiting-frees-nothing"):
        assert name in shown


# Where the output goes.

STAND_INS = [
    word
    for id in "AB"
    for word in ("--set", "model=null", "--set", f"requests.{id}.prompt=[1,2,3,4,5,6,7]")
]


@pytest.mark.skipif(os.name != "posix", reason="a shell opens and closes the streams")
@pytest.mark.parametrize(
    ("command", "streams", "status", "words"),
    [
        ("run figure-5", ">/dev/full", 2, "the output cannot be written (No space left on device)"),
        ("run figure-5", "| head -c 10", 0, ""),
        ("run figure-5", ">&-", 0, ""),
        ("run figure-5 --json -", ">/dev/null", 2, "--json -: stdout has the table"),
        ("run nowhere", ">&- 2>&-", 2, ""),
        ("run nowhere", "2>/dev/full", 2, ""),
    ],
)
def test_a_stream_that_is_closed_or_full(command: str, streams: str, status: int, words: str):
    if "/dev/full" in streams and not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    settings = " ".join(f"'{word}'" for word in STAND_INS) if "figure" in command else ""
    done = subprocess.run(
        [
            "bash",
            "-o",
            "pipefail",
            "-c",
            f"'{sys.executable}' -m kvlab {command} {settings} {streams}",
        ],
        cwd=ROOT,
        env={**os.environ, "KVLAB_AS_IT_IS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == bool(words)


def test_a_trace_that_has_no_place_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    import kvlab.runs.run

    monkeypatch.setattr(kvlab.runs.run, "run_scenario", lambda *_, **__: pytest.fail("it ran"))
    for target in (tmp_path, tmp_path / "missing" / "t.json", tmp_path / ("x" * 300)):
        assert cli.main(["run", "figure-5", "--json", str(target)]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith(f"kvlab: --json: {str(target)[:100]}")
        assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("summary", [[], ["--summary"]])
def test_the_result_is_printed_though_the_trace_could_not_be_written(
    summary: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    from kvlab.trace.document import Trace

    def full(trace: Trace, path: Path) -> None:
        raise BadInput(f"{path} cannot be written (No space left on device).")

    monkeypatch.setattr(Trace, "write", full)
    target = str(tmp_path / "t.json")
    assert cli.main(["run", "figure-5", *STAND_INS, *summary, "--json", target]) == 2
    said = capsys.readouterr()
    assert "figure-5" in said.out
    assert said.err == f"kvlab: {target} cannot be written (No space left on device).\n"


@pytest.mark.parametrize("sign", ["\n", "\r", "\x1b", "\x7f", "\x9b", "\u202e", "\u2066", "\u2028"])
def test_what_cannot_be_seen_is_written_out_in_a_message(
    sign: str, capsys: pytest.CaptureFixture[str]
):
    escaped = sign.encode("unicode_escape").decode()
    for arguments in (
        [f"a{sign}b"],
        ["figure-5", "--set", f"requests.a{sign}b.seed=1"],
        ["figure-5", "--set", f"engine.a{sign}b=1"],
        ["figure-5", "--set", f'requests.B.id="a{escaped}b"'],
        ["figure-5", "--json", f"nowhere/a{sign}b/t.json"],
        ["figure-5", f"--a{sign}b"],
    ):
        assert cli.main(["run", *arguments]) == 2
        line = capsys.readouterr().err.removesuffix("\n")
        assert line.isprintable(), arguments


@pytest.mark.parametrize(
    "arguments",
    [
        ["site", ""],
        ["run", "figure-5", "--json", ""],
        ["run", "figure-5", "--json="],
        ["export", "figure-5", "--html", ""],
        ["export", "figure-5", "--storyboard="],
        ["model", "get", ""],
    ],
)
def test_an_empty_name_is_no_name(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """As where a shell's variable is not set: nothing is written where one happens to be."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(r"kvlab: .* is empty\n", said.err)
    assert list(tmp_path.iterdir()) == []


def test_a_text_may_be_empty(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["model", "show", "story", "--chat", ""]) == 2  # story has no template
    assert "is empty" not in capsys.readouterr().err


def test_what_serve_refuses_is_said_on_stderr_alone(capsys: pytest.CaptureFixture[str]):
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = ["--port", str(other.getsockname()[1])]
        for refused in (taken, ["--ip", "203.0.113.7"], ["--token", "abc"], ["--frame", "x"]):
            assert cli.main(["serve", *refused]) == 2
            said = capsys.readouterr()
            assert said.out == ""
            assert said.err.startswith("kvlab: ")
            assert said.err.count("\n") == 1
