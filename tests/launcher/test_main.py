"""The first file of a start: it must be read by any Python 3, and hand over quickly."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvlab import __main__ as entry

ROOT = Path(__file__).resolve().parents[2]


def kvlab(
    *arguments: str, cwd: Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `python -m kvlab` with the interpreter of the tests, as it is."""
    return subprocess.run(
        [sys.executable, "-m", "kvlab", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "KVLAB_AS_IT_IS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_entry_parses_on_an_old_python():
    source = (ROOT / "kvlab" / "__main__.py").read_text()
    tree = ast.parse(source, feature_version=(3, 4))
    assert not any(isinstance(node, ast.JoinedStr) for node in ast.walk(tree)), "f-strings: 3.6"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert node.returns is None, "annotations are evaluated where they cannot be"


def test_an_old_python_gets_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(entry, "OLDEST", (99, 0))
    assert entry.main() == 2
    said = capsys.readouterr().err
    assert said.startswith("kvlab: Python 99.0 or newer is needed and this is 3.")
    assert said.count("\n") == 1


def test_the_launcher_needs_the_standard_library_alone():
    source = (
        "import sys; sys.path.insert(0, sys.argv[1]); import kvlab.launcher.start as s; "
        "outside = {'typer', 'torch', 'yaml', 'rich', 'tornado'} & sys.modules.keys(); "
        "assert not outside, outside"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", source, str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_package_can_be_started_by_its_folder():
    done = subprocess.run(
        [sys.executable, str(ROOT / "kvlab"), "--help"],
        cwd="/",
        env={**os.environ, "KVLAB_AS_IT_IS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "doctor" in done.stdout


def test_help_is_quick():
    """No torch, no Jupyter: whoever asks for help does not wait for them."""
    began = time.perf_counter()
    done = kvlab("run", "--help")
    assert time.perf_counter() - began < 5
    assert done.returncode == 0
    assert "--summary" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], "No such command 'nope'"),
        (["run"], "Missing argument"),
        (["run", "--nope", "figure-5"], "No such option: --nope"),
        (["app", "--port", "many"], "--port"),
        (["app", "--port", "70000"], "a port is a number from 1 to 65535"),
        (["app", "--notebook", "/nowhere/x.ipynb"], "no such notebook"),
        (["run", "figure-5", "--json", "/nowhere/trace.json"], "in a folder that exists"),
    ],
)
def test_bad_usage_is_one_sentence_and_status_2(arguments: list[str], words: str):
    done = kvlab(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
