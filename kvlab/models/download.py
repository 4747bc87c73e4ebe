"""A wheel from the package index by pip, which shows how far it is; kept until it has served.

Only fetched: `--no-deps` and wheels alone, so that nothing in it runs and nothing is installed.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from kvlab.errors import BadInput, Console
from kvlab.models.cache import sha256

STDERR = 2
"""What pip says is for the person who waits: stdout belongs to the command."""


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
    folder.mkdir(parents=True, exist_ok=True)
    if _run_pip(wheel, folder) != 0:
        raise BadInput(
            f"{wheel.requirement} could not be fetched: pip says above what went wrong; check the "
            "network and pip's index settings."
        )
    if not path.is_file():
        raise BadInput(f"pip fetched another file than {wheel.filename}: check its index settings.")
    if sha256(path) != wheel.sha256:
        path.unlink()
        raise BadInput(f"{wheel.filename} came with other bytes than it should have; try again.")
    return path


def _run_pip(wheel: Wheel, folder: Path) -> int:
    """pip's exit status. It writes elsewhere first: a file in `folder` is whole."""
    options = ("--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "download", *options]
    command += ["--dest", str(folder), wheel.requirement]
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=STDERR, check=False).returncode
