"""A wheel from the package index by pip, with progress; kept until it has served.

Only fetched: `--no-deps` and wheels alone, so that nothing in it runs and nothing is installed.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from kvlab.console import Console, duration, size
from kvlab.errors import BadInput
from kvlab.launcher.pip import CAUSES, QUIET_OPTIONS, clean_environment
from kvlab.models.cache import remove, sha256

LOOK_EVERY = 0.3


@dataclass(frozen=True, slots=True)
class Wheel:
    """One file of one release: what pip is asked for, and what must come."""

    requirement: str
    filename: str
    size: int
    sha256: str


def fetch(wheel: Wheel, folder: Path, console: Console) -> Path:
    """The wheel in `folder`, which is made; one that is there already is only checked.

    Raises BadInput when pip cannot have it or when something else came.
    """
    path = folder / wheel.filename
    if path.is_file():
        if sha256(path) == wheel.sha256:
            console.say(f"{wheel.filename} is there already and whole")
            return path
        console.say(f"{wheel.filename} is there but damaged: fetching it again")
        path.unlink()
    partial = folder / "partial"
    remove(partial)
    partial.mkdir(parents=True)
    began = time.monotonic()
    try:
        _run_pip(wheel, folder, partial, console)
    finally:
        console.done()
        remove(partial)
    if not path.is_file():
        raise BadInput(f"pip fetched another file than {wheel.filename}: check its index settings.")
    if sha256(path) != wheel.sha256:
        path.unlink()
        raise BadInput(f"{wheel.filename} came with other bytes than it should have; try again.")
    console.say(f"{wheel.filename}: fetched and checked in {duration(time.monotonic() - began)}")
    return path


def _run_pip(wheel: Wheel, folder: Path, partial: Path, console: Console) -> None:
    """pip writes into its temporary folder first: how far it is, is the size of what lies there."""
    if importlib.util.find_spec("pip") is None:
        raise BadInput(f"this Python has no pip to fetch with: {sys.executable} -m ensurepip.")
    command = [sys.executable, "-m", "pip", "download", *QUIET_OPTIONS, *_resume()]
    command += ["--no-deps", "--only-binary", ":all:", "--progress-bar", "off"]
    command += ["--dest", str(folder), wheel.requirement]
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(partial))
    log = partial / "pip.log"
    with log.open("w", encoding="utf-8") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=clean_environment() | temporary | {"PYTHONIOENCODING": "utf-8"},
        )
        try:
            while child.poll() is None:
                time.sleep(LOOK_EVERY)
                got = _largest(partial)
                console.status(f"{wheel.requirement}: {size(got)} of {size(wheel.size)}")
        finally:
            if child.poll() is None:
                child.terminate()
                child.wait()
    if child.returncode != 0:
        raise BadInput(_explain(wheel, log.read_text(encoding="utf-8", errors="replace")))


def _resume() -> list[str]:
    """Newer pips go on after a broken connection."""
    release = re.match(r"(\d+)\.(\d+)", importlib.metadata.version("pip"))
    newer = release is not None and (int(release[1]), int(release[2])) >= (25, 1)
    return ["--resume-retries", "5"] if newer else []


def _largest(folder: Path) -> int:
    """Size of the largest file below `folder`, while others come and go there."""
    largest = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, (Path(place) / name).stat().st_size)
            except OSError:
                continue
    return largest


def _explain(wheel: Wheel, output: str) -> str:
    what = f"{wheel.requirement} could not be fetched"
    for pattern, cause in CAUSES:
        if re.search(pattern, output):
            return f"{what}: {cause}."
    if "No matching distribution" in output:
        return f"{what}: the package index has no such file, or did not answer: check the network."
    errors = [line for line in output.splitlines() if line.startswith("ERROR:")]
    return f"{what}: {errors[-1].removeprefix('ERROR:').strip() if errors else 'pip failed'}."
