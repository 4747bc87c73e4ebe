"""Pyodide, CPython for browsers: one release, taken once from npm's registry and checked by its hash.

It is not in the repository. The package is kept in the user's cache; what a site gets of it are four
files. See https://pyodide.org (Mozilla Public License 2.0).
"""

from __future__ import annotations

import hashlib
import http.client
import tarfile
import urllib.request
from io import BytesIO
from pathlib import Path

from kvlab.errors import BadInput
from kvlab.files.write import write_whole
from kvlab.models.cache import cache_folder

VERSION = "314.0.7"
PACKAGE = f"pyodide-{VERSION}.tgz"
ADDRESS = f"https://registry.npmjs.org/pyodide/-/{PACKAGE}"
SIZE = 6_488_647  # bytes
FILES = {
    "pyodide.mjs": "6f1d60f7bf529beb300f0f47983c921d3982363640ba20af0e38efdddbc66109",
    "pyodide.asm.mjs": "f7cdc8ece80678ceb712f8e65ebe6d3a83203a180c399865f49612a051693635",
    "pyodide.asm.wasm": "cc36e3cab04fdfc9a63ff13eb52eae2b911bf46c025cc7b281f394bd3de1d5e6",
    "python_stdlib.zip": "fa1957e5777068fc4f7437f96d860ae2fbe9c19732ba06c84e004ec16dd7dd7a",
}
"""The files that a site needs, with the SHA-256 of each."""
SECONDS = 30
"""Without a byte from the registry for so long, it counts as not there."""


class NoPyodide(BadInput):
    """It is neither at hand nor to be had."""


def pyodide_from(place: Path) -> dict[str, bytes]:
    """The four files from a folder that holds them or from npm's package (.tgz).

    Raises BadInput for what is missing or has other bytes than this release.
    """
    if place.is_dir():
        inner = place / "package"  # npm's package, unpacked
        return checked({name: read(place, inner, name) for name in FILES}, str(place))
    if not place.is_file():
        raise BadInput(f"--pyodide {place}: there is no such folder or file.")
    return unpacked(place.read_bytes(), str(place))


def read(place: Path, inner: Path, name: str) -> bytes:
    for folder in (place, inner):
        if (folder / name).is_file():
            return (folder / name).read_bytes()
    raise BadInput(f"{place}: {name} of Pyodide {VERSION} is not there.")


def fetched_pyodide() -> dict[str, bytes]:
    """The four files of the package in the cache, fetched from npm's registry where it is not there.

    Raises NoPyodide where there is neither.
    """
    kept = cache_folder() / "pyodide" / PACKAGE
    if kept.is_file():
        try:
            return unpacked(kept.read_bytes(), str(kept))
        except BadInput:
            kept.unlink()  # damaged: once more from the registry
    package = download()
    files = unpacked(package, ADDRESS)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_whole(kept, package)
    except (BadInput, OSError):
        pass  # a cache that cannot be written only costs the next site its download
    return files


def download() -> bytes:
    try:
        with urllib.request.urlopen(ADDRESS, timeout=SECONDS) as answer:
            package: bytes = answer.read(SIZE + 1)
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
        reason = getattr(error, "reason", None) or error
        raise NoPyodide(
            f"npm's registry did not give Pyodide ({str(reason)[:100]}): check the network, or name "
            f"a folder with `npm pack pyodide@{VERSION}`, unpacked, by --pyodide."
        ) from None
    return package


def unpacked(package: bytes, source: str) -> dict[str, bytes]:
    """The four files out of npm's package."""
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=BytesIO(package), mode="r:gz") as archive:
            for name in FILES:
                member = archive.extractfile(f"package/{name}")
                files[name] = member.read() if member else b""
    except (tarfile.TarError, KeyError, OSError, EOFError):
        raise BadInput(f"{source} is not npm's package of Pyodide {VERSION}.") from None
    return checked(files, source)


def checked(files: dict[str, bytes], source: str) -> dict[str, bytes]:
    for name, data in files.items():
        if hashlib.sha256(data).hexdigest() != FILES[name]:
            raise BadInput(f"{source}: {name} has other bytes than that of Pyodide {VERSION}.")
    return files
