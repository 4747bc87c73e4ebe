"""pip as a child process: its progress made visible, its failures made a sentence."""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvlab.console import CannotStart, Console, duration, size

QUIET_OPTIONS = ("--no-input", "--no-color", "--disable-pip-version-check")


@dataclass(frozen=True)
class Pip:
    """A pip that installs into one environment."""

    command: tuple[str, ...]
    console: Console
    log: Path
    """Where the whole output goes; the sentence that a failure becomes names it."""
    keep_open: tuple[int, ...] = ()
    """Descriptors that a running pip holds on to: the lock, so that a pip that outlives a killed
    launcher still keeps the next start out."""

    def install(self, what: str, arguments: Sequence[str]) -> None:
        """Install, showing which package and how long. Raises CannotStart."""
        began = time.monotonic()
        progress = Progress(what)
        output: list[str] = []
        command = [
            *self.command,
            "install",
            *QUIET_OPTIONS,
            "--no-warn-script-location",
            "--progress-bar",
            "raw" if self._version() >= (24, 1) else "off",
            *arguments,
        ]
        child = self._start(command)
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_pump, args=(child, lines), daemon=True).start()
        try:
            with self.log.open("a", encoding="utf-8") as log:
                log.write(f"$ {' '.join(command)}\n")
                while True:
                    try:
                        line = lines.get(timeout=0.5)
                    except queue.Empty:
                        line = ""
                    if line is None:
                        break
                    if line:
                        progress.read(line)
                        if not line.startswith("Progress "):
                            output.append(line)
                            log.write(line)
                    self.console.status(f"{progress} [{duration(time.monotonic() - began)}]")
                log.write("\n")
        finally:
            self.console.done()
            if child.poll() is None:
                _stop(child)
        if child.wait() != 0:
            raise CannotStart(explain("".join(output), child.returncode, self.log))
        self.console.say(f"{what}: done in {duration(time.monotonic() - began)}")

    def plan(self, arguments: Sequence[str], quick: bool = False) -> list[Planned]:
        """What `pip install` with these arguments would fetch, without fetching it. `quick` gives
        up at the first sign of no answer. Raises CannotStart."""
        patience = ("--timeout", "5", "--retries", "0") if quick else ()
        command = [*self.command, "install", *QUIET_OPTIONS, *patience]
        command += ["--dry-run", "--quiet", "--report", "-", *arguments]
        status, said, complaint = self._ask(command, "asking pip for its plan")
        if status != 0:
            raise CannotStart(explain(said + complaint, status, None))
        try:
            report = json.loads(said[said.index("{") :])
            return [Planned.read(item) for item in report["install"]]
        except (ValueError, KeyError, TypeError) as error:
            raise CannotStart(
                f"pip's plan for {' '.join(arguments)} cannot be read ({error}): "
                f"update pip with `{' '.join(self.command)} install --upgrade pip`"
            ) from error

    def _version(self) -> tuple[int, ...]:
        _, said, _ = self._ask([*self.command, "--version"], "starting pip")
        match = re.match(r"pip (\d+)\.(\d+)", said)
        return (int(match[1]), int(match[2])) if match else (0, 0)

    def _ask(self, command: list[str], what: str) -> tuple[int, str, str]:
        """Exit status, stdout and stderr of a pip that answers and installs nothing."""
        began = time.monotonic()
        child = self._start(command, subprocess.PIPE)
        try:
            while True:
                try:
                    said, complaint = child.communicate(timeout=0.5)
                    return child.returncode, said, complaint
                except subprocess.TimeoutExpired:
                    if (elapsed := time.monotonic() - began) > 2:
                        self.console.status(f"{what} [{duration(elapsed)}]")
        finally:
            self.console.done()
            if child.poll() is None:
                _stop(child)

    def _start(
        self, command: list[str], complaints: int = subprocess.STDOUT
    ) -> subprocess.Popen[str]:
        kept: dict[str, Any] = {"pass_fds": self.keep_open} if os.name == "posix" else {}
        try:
            return subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=complaints,
                stdin=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                errors="replace",
                env=clean_environment(),
                **kept,
            )
        except OSError as error:
            raise CannotStart(f"{command[0]} does not start: {error.strerror}") from error


@dataclass(frozen=True)
class Planned:
    """One file that pip would take."""

    name: str
    version: str
    url: str
    needs: tuple[str, ...] = ()
    """Names of what it may need, on this machine or another."""

    @classmethod
    def read(cls, item: dict[str, Any]) -> Planned:
        metadata = item["metadata"]
        needs = [re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in _needs(metadata)]
        return cls(
            metadata["name"], metadata["version"], item["download_info"]["url"], tuple(needs)
        )


def _needs(metadata: dict[str, Any]) -> list[str]:
    lines = metadata.get("requires_dist", [])
    return lines if isinstance(lines, list) else []


class Progress:
    """Reads pip's lines and says in a few words what it is doing."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._packages = 0
        self._doing = "looking up"
        self._share = ""

    def read(self, line: str) -> None:
        text = line.strip()
        if match := re.match(r"Progress (\d+) of (\d+)", text):
            got, total = int(match[1]), int(match[2])
            self._share = f", {size(got)} of {size(total)}" if total > 10**6 else ""
        elif match := re.match(r"Collecting ([A-Za-z0-9._-]+)", text):
            self._packages += 1
            self._doing, self._share = f"looking up {match[1]}", ""
        elif match := re.match(
            r"(Downloading|Using cached|Processing) (\S+)(?: \(([\d.]+ [kMG]B)\))?", text
        ):
            name = match[2].replace("\\", "/").rsplit("/", 1)[-1]
            if not name.endswith(".metadata"):
                verb = "downloading" if match[1] == "Downloading" else "reading"
                package = "-".join(name.split("-")[:2])
                self._doing, self._share = f"{verb} {package}", f", {match[3]}" if match[3] else ""
        elif match := re.match(r"Installing collected packages: (.*)", text):
            count = match[1].count(",") + 1
            self._doing, self._share = f"unpacking {count} package{'s' * (count > 1)}", ""
        elif text.startswith("Building wheel"):
            self._doing, self._share = text.split("(")[0].strip().lower(), ""

    def __str__(self) -> str:
        count = f" {self._packages} so far," if self._doing.startswith("looking up ") else ""
        return f"{self._what}:{count} {self._doing}{self._share}"


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
    where = f" (all of pip's output: {log})" if log else ""
    for pattern, cause in CAUSES:
        if re.search(pattern, output):
            return f"pip could not install: {cause}{where}"
    if match := re.search(r"No matching distribution found for (\S+)", output):
        return (
            f"pip found no build of {match[1]} for this Python and machine: start kvlab with "
            f"Python 3.11, 3.12 or 3.13, or check pip's index settings{where}"
        )
    errors = [line for line in output.splitlines() if line.startswith("ERROR:")]
    last = errors[-1].removeprefix("ERROR:").strip() if errors else f"it ended with status {status}"
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


def _pump(child: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert child.stdout is not None
    for line in child.stdout:
        lines.put(line)
    lines.put(None)


def _stop(child: subprocess.Popen[str]) -> None:
    child.terminate()
    try:
        child.wait(timeout=10)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
