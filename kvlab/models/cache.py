"""The user's cache of converted models: where it is, and whether what lies there is whole.

`$KVLAB_CACHE`, else the platform's place for such files. A model appears under its name in one
rename, after all its files were written; the manifest, written last, says what they must be.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kvlab.errors import BadInput
from kvlab.models.config import read_json

VARIABLE = "KVLAB_CACHE"
MANIFEST = "kvlab-model.json"
UNFINISHED = ".part"


def cache_folder() -> Path:
    """The cache; it need not exist yet."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "kvlab" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "kvlab"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvlab"


def model_folder(name: str, dtype: str) -> Path:
    """Where a converted model lies, in each dtype that was asked for."""
    return cache_folder() / "models" / name / dtype


def cached_models() -> Iterator[tuple[str, str, Path]]:
    """(name, dtype, folder) of what lies in the cache, whole or not."""
    for folder in sorted((cache_folder() / "models").glob("*/*")):
        if folder.is_dir() and not folder.name.endswith(UNFINISHED):
            yield folder.parent.name, folder.name, folder


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a converted model was made from, and its files' sizes and SHA-256 sums."""

    name: str
    dtype: str
    source: str
    files: dict[str, dict[str, Any]]

    @classmethod
    def of(cls, folder: Path, name: str, dtype: str, source: str) -> Manifest:
        files = sorted(file for file in folder.iterdir() if file.is_file())
        return cls(
            name,
            dtype,
            source,
            {file.name: {"size": file.stat().st_size, "sha256": sha256(file)} for file in files},
        )

    def write(self, folder: Path) -> None:
        text = json.dumps(asdict(self), indent=2) + "\n"
        (folder / MANIFEST).write_text(text, encoding="utf-8")


def damage(folder: Path, *, thorough: bool = False) -> str | None:
    """What is wrong with a converted model, in a few words; None for one that is whole. Sizes are
    compared; when `thorough` the sums too, which reads every byte."""
    try:
        manifest = read_json(folder / MANIFEST)
    except BadInput:
        manifest = None
    files = manifest.get("files") if manifest else None
    if not isinstance(files, dict) or not files:
        return f"{MANIFEST} is missing or damaged"
    for name, facts in files.items():
        file = folder / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != facts.get("size"):
            return f"{name} has {file.stat().st_size:,} bytes, not {facts.get('size'):,}"
        if thorough and sha256(file) != facts.get("sha256"):
            return f"{name} is not what was written"
    return None


def sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def start_unfinished(final: Path) -> Path:
    """An empty folder beside `final` to build in; what an interrupted run left there is removed."""
    folder = final.with_name(final.name + UNFINISHED)
    remove(folder)
    remove(_old(final))
    folder.mkdir(parents=True)
    return folder


def publish(unfinished: Path, final: Path) -> None:
    """Give a finished folder its name, in place of one that may be there."""
    if final.exists():
        final.rename(_old(final))
    unfinished.rename(final)
    remove(_old(final))


def _old(final: Path) -> Path:
    return final.with_name(f"{final.name}.old{UNFINISHED}")


def remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
