"""`.venv` at the checkout's root: is it whole, and how it is made."""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kvlab.errors import CannotStart, Console
from kvlab.launcher.needs import fingerprint, normal, unfinished
from kvlab.launcher.pip import clean_environment

STAMP_FORMAT = 1

PROBE = """
import json, sys, sysconfig
from importlib import metadata
installed = ((d.metadata["Name"], d.version) for d in metadata.distributions())
print(json.dumps({
    "version": list(sys.version_info[:2]),
    "prefix": sys.prefix,
    "site_packages": sysconfig.get_path("purelib"),
    "installed": {name: version for name, version in installed if name},
}))
"""


@dataclass(frozen=True)
class Probe:
    """What the environment's interpreter says of itself."""

    version: tuple[int, int]
    site_packages: Path
    installed: Mapping[str, str]
    """Normal name → version."""


@dataclass(frozen=True)
class Environment:
    """The environment of one checkout. Making it is guarded by its lock; see `start`."""

    root: Path
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", self.root / ".venv")

    @property
    def python(self) -> Path:
        if os.name == "nt":
            return self.folder / "Scripts" / "python.exe"
        return self.folder / "bin" / "python"

    @property
    def lock(self) -> Path:
        return self.folder / "kvlab.lock"

    @property
    def log(self) -> Path:
        return self.folder / "kvlab-install.log"

    @property
    def stamp(self) -> Path:
        return self.folder / "kvlab-stamp.json"

    def runs_this_process(self) -> bool:
        """Whether the running interpreter is this environment's."""
        return os.path.realpath(sys.prefix) == os.path.realpath(self.folder)

    def ready(self, files: Sequence[str]) -> bool:
        """Whether the last install for these requirement files ended well and nothing that it
        rests on has changed since. Costs a few file reads."""
        try:
            stamp = json.loads(self.stamp.read_text(encoding="utf-8"))
            return bool(
                stamp["format"] == STAMP_FORMAT
                and stamp["root"] == str(self.root)
                and stamp["python"] == os.path.realpath(self.python)
                and self.python.exists()
                and self._base_is_there()
                and all(stamp["files"].get(f) == fingerprint(self.root / f) for f in files)
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False

    def _base_is_there(self) -> bool:
        """Whether the Python that the environment was made from still exists."""
        text = (self.folder / "pyvenv.cfg").read_text(encoding="utf-8")
        settings = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        home = next((v.strip() for k, v in settings.items() if k.strip() == "home"), "")
        return bool(home) and os.path.isdir(home)

    def write_stamp(self, files: Sequence[str]) -> None:
        """These requirement files are met. Replaces the old stamp in one piece."""
        known: dict[str, str] = {}
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            old = json.loads(self.stamp.read_text(encoding="utf-8"))["files"]
            known = {f: h for f, h in old.items() if fingerprint(self.root / f) == h}
        stamp = {
            "format": STAMP_FORMAT,
            "root": str(self.root),
            "python": os.path.realpath(self.python),
            "files": known | {f: fingerprint(self.root / f) for f in files},
        }
        draft = self.stamp.with_suffix(".draft")
        draft.write_text(json.dumps(stamp, indent=1), encoding="utf-8")
        os.replace(draft, self.stamp)

    def probe(self) -> Probe | None:
        """Ask the environment's interpreter; None where it is not there or does not run."""
        try:
            done = subprocess.run(
                [str(self.python), "-I", "-c", PROBE],
                capture_output=True,
                text=True,
                timeout=60,
                env=clean_environment(),
                check=False,
            )
            said = json.loads(done.stdout)
            if os.path.realpath(said["prefix"]) != os.path.realpath(self.folder):
                return None
            major, minor = said["version"]
            installed = {normal(name): version for name, version in said["installed"].items()}
            return Probe((major, minor), Path(said["site_packages"]), installed)
        except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired):
            return None

    def make_folder(self) -> None:
        """The folder, so that the lock has a place. Raises OSError."""
        self.folder.mkdir(exist_ok=True)

    def create(self, console: Console) -> None:
        """A fresh environment in place of whatever is in the folder. Raises CannotStart."""
        if importlib.util.find_spec("venv") is None:
            raise CannotStart(needs_system_package("has no venv module"))
        self._clear()
        version = ".".join(str(part) for part in sys.version_info[:3])
        console.say(f"making {self.folder} (Python {version})")
        done = subprocess.run(
            [sys.executable, "-I", "-m", "venv", "--without-pip", str(self.folder)],
            capture_output=True,
            text=True,
            env=clean_environment(),
            check=False,
        )
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["no reason given"]
            raise CannotStart(f"{self.folder} cannot be made: {said[-1]}")

    def _clear(self) -> None:
        kept = {self.lock.name}
        entries = [entry for entry in self.folder.iterdir() if entry.name not in kept]
        foreign = entries and not (self.folder / "pyvenv.cfg").exists()
        if foreign and any(path.is_file() for e in entries for path in [e, *e.rglob("*")]):
            raise CannotStart(
                f"{self.folder} is there and is no Python environment: move it away and start again"
            )
        # The mark of an environment goes last: a clearing that is cut short can be taken up.
        for entry in sorted(entries, key=lambda entry: entry.name == "pyvenv.cfg"):
            try:
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()
            except OSError as error:
                raise CannotStart(
                    f"{entry} cannot be removed ({error.strerror}): end what still uses it, or "
                    f"remove {self.folder} yourself, and start again"
                ) from error

    def repair(self, site_packages: Path) -> int:
        """Remove what an interrupted install left half done, so that pip installs it again.
        Returns how many packages that were. Raises OSError."""
        broken = unfinished(site_packages)
        for entry in broken:
            shutil.rmtree(entry)
        return len(broken)

    def point_to_checkout(self, site_packages: Path) -> None:
        """Make `import kvlab` work from any folder, notebooks' kernels included. The path is
        relative: a checkout that moves takes its environment along."""
        link = site_packages / "kvlab-checkout.pth"
        text = os.path.relpath(self.root, site_packages) + "\n"
        if not link.exists() or link.read_text(encoding="utf-8") != text:
            link.write_text(text, encoding="utf-8")

    def find_pip(self, console: Console) -> tuple[str, ...]:
        """A pip that installs into this environment: its own, one made by ensurepip, the base
        Python's, or Debian's wheel of pip. Raises CannotStart where there is none."""
        own = (str(self.python), "-I", "-X", "utf8", "-m", "pip")
        if _works(own):
            return own
        console.status("getting pip")
        if _works((str(self.python), "-I", "-m", "ensurepip", "--default-pip"), ()) and _works(own):
            return own
        base = (sys.executable, "-I", "-X", "utf8", "-m", "pip", "--python", str(self.python))
        if _works(base):
            return base
        for wheel in sorted(glob.glob("/usr/share/python-wheels/pip-*.whl"), reverse=True):
            packed = (str(self.python), "-X", "utf8", str(Path(wheel) / "pip"))
            if _works(packed):
                return packed
        raise CannotStart(needs_system_package("has neither ensurepip nor pip"))


def needs_system_package(lack: str) -> str:
    """What to install where the system's Python came in pieces."""
    major, minor = sys.version_info[:2]
    return (
        f"{sys.executable} {lack}: install what is missing (on Debian and Ubuntu: "
        f"`apt install python{major}.{minor}-venv`) or use a Python from python.org, "
        "and start again"
    )


def _works(command: Sequence[str], probe: Sequence[str] = ("--version",)) -> bool:
    try:
        done = subprocess.run(
            [*command, *probe],
            capture_output=True,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            timeout=300,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
