"""Where Pyodide comes from: checked by its bytes, kept once, never half of it."""

from __future__ import annotations

import ast
import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kvlab.cli import main
from kvlab.errors import BadInput
from kvlab.export.tab import pyodide
from kvlab.export.tab.archive import NEVER_IMPORTED, members, modules_of, python_archive

FAKE = {name: name.encode() * 10 for name in pyodide.FILES}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A release of a few bytes, and a cache of the test's own."""
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in FAKE.items()}
    monkeypatch.setattr(pyodide, "FILES", sums)
    monkeypatch.setenv("KVLAB_CACHE", str(tmp_path / "cache"))


def package(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def served(monkeypatch: pytest.MonkeyPatch, answer: Callable[[], bytes]) -> list[str]:
    """What the registry gives from now on; the addresses that were asked for."""
    asked: list[str] = []

    def urlopen(address: str, timeout: float) -> io.BytesIO:
        asked.append(address)
        return io.BytesIO(answer())

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    return asked


def no_network() -> bytes:
    raise OSError("no route to host")


@pytest.mark.usefixtures("small")
def test_fetched_once_then_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = served(monkeypatch, lambda: package(FAKE))
    assert pyodide.fetched_pyodide() == FAKE
    assert pyodide.fetched_pyodide() == FAKE
    assert asked == [pyodide.ADDRESS]
    assert pyodide.VERSION in asked[0]


@pytest.mark.usefixtures("small")
def test_a_damaged_copy_is_fetched_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept = tmp_path / "cache" / "pyodide" / pyodide.PACKAGE
    kept.parent.mkdir(parents=True)
    kept.write_bytes(package(FAKE)[:-30])
    asked = served(monkeypatch, lambda: package(FAKE))
    assert pyodide.fetched_pyodide() == FAKE
    assert len(asked) == 1
    assert pyodide.unpacked(kept.read_bytes(), "kept") == FAKE


@pytest.mark.usefixtures("small")
def test_other_bytes_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    served(monkeypatch, lambda: package({**FAKE, "pyodide.mjs": b"evil"}))
    with pytest.raises(BadInput, match=r"pyodide\.mjs has other bytes"):
        pyodide.fetched_pyodide()
    assert not (tmp_path / "cache" / "pyodide" / pyodide.PACKAGE).exists()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("as_package", [False, True])
def test_a_folder_or_a_package_of_ones_own(as_package: bool, tmp_path: Path) -> None:
    place = tmp_path / "own"
    if as_package:
        place.write_bytes(package(FAKE))
    else:
        (place / "package").mkdir(parents=True)
        for name, data in FAKE.items():
            (place / "package" / name).write_bytes(data)
    assert pyodide.pyodide_from(place) == FAKE


def test_a_wrong_place_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.tgz").write_text("no package")
    for place in ("missing", "empty", "text.tgz"):
        site = tmp_path / "site"
        assert main(["site", str(site), "--pyodide", str(tmp_path / place)]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert place in said
        assert not site.exists()


@pytest.mark.usefixtures("small")
def test_without_a_network_there_is_a_sentence_and_a_site_that_replays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served(monkeypatch, no_network)
    assert main(["site", str(tmp_path / "site")]) == 0
    first, *_ = capsys.readouterr().err.splitlines()
    assert "npm's registry did not give Pyodide (no route to host)" in first
    assert (tmp_path / "site" / "index.html").is_file()
    assert "lab.html" not in (tmp_path / "site" / "index.html").read_text("utf-8")
    assert not (tmp_path / "site" / "lab.html").exists()


def test_the_archive_holds_what_is_imported_and_no_torch() -> None:
    modules = modules_of("kvlab.export.tab.visit")
    assert {"kvlab.engine.unsafe_swap", "kvlab.trace.recorder", "kvlab.runs.run"} <= modules
    assert not {name for name in modules if name.startswith(("kvlab.pages", "kvlab.lab"))}
    assert not {"kvlab.draw.player", "kvlab.models.loading", "kvlab.runtime.kv_cache"} & modules
    assert python_archive() == python_archive()


def test_nothing_that_the_archive_imports_was_left_out_of_the_library() -> None:
    """Of kvlab's modules and of those of others, wherever in a file they import."""
    asked = {
        name.split(".")[0]
        for inside, path in members()
        if inside.endswith(".py") and not inside.startswith(("attr/", "yaml/", "jsonschema/cli"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and not node.level
            else []
        )
    }
    assert {"json", "dataclasses", "xml"} <= asked
    assert not asked & NEVER_IMPORTED
