"""pip as a child process: it shows its own progress, and its failures become a sentence."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvlab.errors import CannotStart, Console, duration

QUIET_OPTIONS = ("--no-input", "--no-color", "--disable-pip-version-check")


@dataclass(frozen=True)
class Pip:
    """A pip that installs into one environment."""

    command: tuple[str, ...]
    console: Console
    log: Path
    """What pip complains of; the sentence that a failure becomes names it."""
    keep_open: tuple[int, ...] = ()
    """Descriptors that a running pip holds on to: the lock, so that a pip that outlives a killed
    launcher still keeps the next start out."""

    def install(self, what: str, arguments: Sequence[str]) -> None:
        """Install. On a terminal pip shows how far it is; elsewhere it is not heard. Raises
        CannotStart."""
        began = time.monotonic()
        command = [*self.command, "install", *QUIET_OPTIONS, "--no-warn-script-location"]
        # Not to stdout, which belongs to the command that is started.
        shown = sys.stderr if self.console.terminal else subprocess.DEVNULL
        with self.log.open("w+", encoding="utf-8", errors="replace") as log:
            done = self._run([*command, *arguments], stdout=shown, stderr=log)
            if done.returncode != 0:
                log.seek(0)
                raise CannotStart(explain(log.read(), done.returncode, self.log))
        self.console.say(f"{what}: done in {duration(time.monotonic() - began)}")

    def plan(self, arguments: Sequence[str], quick: bool = False) -> Planned:
        """The first file that `pip install --no-deps` with these arguments would fetch, without
        fetching it. `quick` gives up at the first sign of no answer. Raises CannotStart."""
        patience = ("--timeout", "5", "--retries", "0") if quick else ()
        options = ("--dry-run", "--no-deps", "--quiet", "--report", "-")
        command = [*self.command, "install", *QUIET_OPTIONS, *patience, *options, *arguments]
        done = self._run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != 0:
            raise CannotStart(explain(done.stdout + done.stderr, done.returncode, None))
        try:
            report = json.loads(done.stdout[done.stdout.index("{") :])
            return Planned.read(report["install"][0])
        except (ValueError, LookupError, TypeError) as error:
            raise CannotStart(
                f"pip's plan for {' '.join(arguments)} cannot be read ({error}): "
                f"update pip with `{' '.join(self.command)} install --upgrade pip`"
            ) from error

    def _run(self, command: list[str], **streams: Any) -> subprocess.CompletedProcess[str]:
        kept: dict[str, Any] = {"pass_fds": self.keep_open} if os.name == "posix" else {}
        try:
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                encoding="utf-8",
                errors="replace",
                env=clean_environment(),
                check=False,
                **streams,
                **kept,
            )
        except OSError as error:
            raise CannotStart(f"{command[0]} does not start: {error.strerror}") from error


@dataclass(frozen=True)
class Planned:
    """One file that pip would take."""

    version: str
    url: str
    needs: tuple[str, ...] = ()
    """Names of what it may need, on this machine or another."""

    @classmethod
    def read(cls, item: dict[str, Any]) -> Planned:
        """From an item of pip's report. Raises LookupError and TypeError."""
        metadata = item["metadata"]
        needs = metadata.get("requires_dist", [])
        names = tuple(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in needs)
        return cls(metadata["version"], item["download_info"]["url"], names)


CAUSES = (
    (
        r"No space left on device|Errno 28\b|not enough space on the disk",
        "the disk is full: free some space (or set TMPDIR to a folder with room) and start again",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError|SSLCertVerificationError",
        "the package index's certificate could not be checked: where a proxy has its own, name "
        "its file in PIP_CERT",
    ),
    (
        r"ProxyError|Tunnel connection failed|407 Proxy",
        "the proxy refused: check HTTPS_PROXY",
    ),
    (
        r"NewConnectionError|NameResolutionError|Temporary failure in name resolution"
        r"|Failed to establish a new connection|getaddrinfo failed|Network is unreachable"
        r"|ConnectTimeoutError|ReadTimeoutError|Connection refused|ConnectionResetError"
        r"|Read timed out|Connection broken|IncompleteRead",
        "the package index did not answer: check the network and start again (packages that are "
        "already there are kept)",
    ),
    (
        r"Errno 13\b|Permission denied|Errno 30\b|Read-only file system|Access is denied",
        "a folder may not be written: give yourself the right to write there, or copy the "
        "checkout to a folder of your own",
    ),
    (
        r"DO NOT MATCH THE HASHES|BadZipFile|is invalid|Wheel .* is invalid",
        "a downloaded file was damaged: start again",
    ),
)


def explain(output: str, status: int, log: Path | None) -> str:
    """One sentence for a pip that failed."""
    where = f" (pip's own words: {log})" if log else ""
    for pattern, cause in CAUSES:
        if re.search(pattern, output):
            return f"pip could not install: {cause}{where}"
    if match := re.search(r"No matching distribution found for (\S+)", output):
        return (
            f"pip found no build of {match[1]} for this Python and machine: start kvlab with "
            f"Python 3.11, 3.12 or 3.13, or check pip's index settings{where}"
        )
    errors = re.findall(r"\bERROR: (.+)", output)
    last = errors[-1].strip() if errors else f"it ended with status {status}"
    return f"pip could not install: {last}{where}"


UNWANTED = {
    *("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_REQUIRE_VIRTUALENV"),
    *("PYTHONHOME", "PYTHONPATH", "__PYVENV_LAUNCHER__"),
}


def clean_environment() -> dict[str, str]:
    """This process's environment without what would send packages elsewhere than `.venv`, or
    show the child modules of another place."""
    kept = {key: value for key, value in os.environ.items() if key not in UNWANTED}
    return {**kept, "PIP_USER": "0"}
