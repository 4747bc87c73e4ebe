"""What the requirement files ask for, and whether an interpreter has it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LAB = "requirements.txt"
TESTS = "tests/requirements.txt"

TORCH_OLDEST = (2, 11)
"""A torch that is already there is kept from this release on, up to the pin's next major one."""


@dataclass(frozen=True)
class Pin:
    """One package and the release that the lab was tested with."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


def normal(name: str) -> str:
    """A package name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins(root: Path, files: Sequence[str]) -> list[Pin]:
    """The pins of these files, each once, in their order. `-r` lines are not followed: the
    caller names every file. Raises ValueError for a line that is not a pin."""
    pins: dict[str, Pin] = {}
    for name in files:
        for raw in (root / name).read_text(encoding="utf-8").splitlines():
            line = raw.split("#", 1)[0].strip()
            if not line or line.startswith("-r "):
                continue
            match = re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!]+)(?:\s*;(.*))?", line)
            try:
                if match is None:
                    raise ValueError("is not of the form name==version")
                if match[3] is None or applies(match[3]):
                    pins.setdefault(normal(match[1]), Pin(match[1], match[2]))
            except ValueError as error:
                raise ValueError(f"{name}: {raw!r} {error}") from error
    return list(pins.values())


MARKERS: Mapping[str, Callable[[], str]] = {
    "sys_platform": lambda: sys.platform,
    "platform_system": platform.system,
    "platform_machine": platform.machine,
    "os_name": lambda: os.name,
}


def applies(marker: str) -> bool:
    """Whether a marker such as `sys_platform == "linux" and platform_machine != "arm64"` holds
    here. Enough of PEP 508 for our own files; raises ValueError for the rest."""
    for alternative in re.split(r"\bor\b", marker):
        held = True
        for comparison in re.split(r"\band\b", alternative):
            match = re.fullmatch(r"\s*(\w+)\s*(==|!=)\s*(['\"])([^'\"]*)\3\s*", comparison)
            if match is None or match[1] not in MARKERS:
                raise ValueError(f"has a marker that cannot be read: {comparison.strip()!r}")
            held &= (MARKERS[match[1]]() == match[4]) is (match[2] == "==")
        if held:
            return True
    return False


def fingerprint(path: Path) -> str:
    """Changes with the text of a requirement file, not with its line ends."""
    return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()


def suits(pin: Pin, version: str) -> bool:
    """Whether an installed release will do: the pinned one in any build, for torch a range."""
    public = version.split("+", 1)[0]
    if public == pin.version:
        return True
    return normal(pin.name) == "torch" and TORCH_OLDEST <= release(public) < (
        release(pin.version)[0] + 1,
    )


def release(version: str) -> tuple[int, ...]:
    """`2.13.0rc1` as (2, 13, 0): enough to compare releases of one project."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else (0,)


def missing(pins: Sequence[Pin], installed: Mapping[str, str]) -> list[Pin]:
    """The pins that `installed` (normal name → version) does not meet."""
    return [
        pin
        for pin in pins
        if normal(pin.name) not in installed or not suits(pin, installed[normal(pin.name)])
    ]


def installed_here(pins: Sequence[Pin]) -> dict[str, str]:
    """The versions that the running interpreter has of these packages."""
    from importlib import metadata

    found: dict[str, str] = {}
    for pin in pins:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[normal(pin.name)] = metadata.version(pin.name)
    return found


def unfinished(site_packages: Path) -> list[Path]:
    """What an install that was cut short left behind: packages whose files are not all there
    (pip writes INSTALLER and RECORD last), and the `~name` folders of a replaced release."""
    if not site_packages.is_dir():
        return []
    return [
        entry
        for entry in sorted(site_packages.iterdir())
        if entry.name.startswith("~")
        or (
            entry.suffix == ".dist-info"
            and not ((entry / "INSTALLER").is_file() and (entry / "RECORD").is_file())
        )
    ]
