"""The committed bundle: one small module without imports, built from the sources beside it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import kvlab.draw

JS = Path(kvlab.draw.__file__).parent / "js"
MODULE = JS / "dist" / "player.js"
STYLE = JS / "dist" / "player.css"


def test_one_module_without_imports() -> None:
    text = MODULE.read_text("utf-8")
    assert len(text.encode()) < 100_000
    assert not re.search(r"(?<![\w.$])import\s*[({\"']", text)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


def test_style_is_scoped_by_the_root_class() -> None:
    """Every rule of the style stands in the player's root, and it asks for nothing from elsewhere."""
    text = STYLE.read_text("utf-8")
    depth, prelude, preludes = 0, "", []
    for sign in text:
        if sign == "{":
            preludes.append((depth, prelude))
            depth, prelude = depth + 1, ""
        elif sign == "}":
            depth, prelude = depth - 1, ""
        else:
            prelude = "" if sign == ";" else prelude + sign
    assert depth == 0
    groups = ("@container", "@media")
    inside = 0  # how many groups stand around
    for level, selectors in preludes:
        if selectors.startswith(groups):
            inside = level + 1
            continue
        inside = min(inside, level)
        if level == inside and not selectors.startswith(("@property", "@keyframes")):
            parts = re.split(r",(?![^()]*\))", selectors)
            assert all(part.startswith(".kvlab-player") for part in parts), selectors
    assert "url(" not in text
    assert "@import" not in text


def test_the_lockfile_names_no_other_registry() -> None:
    lock = json.loads((JS / "package-lock.json").read_text("utf-8"))
    for package in lock["packages"].values():
        address = package.get("resolved", "https://registry.npmjs.org/")
        assert address.startswith("https://registry.npmjs.org/")
    assert lock["packages"]["node_modules/esbuild"]["integrity"]


def test_the_bundle_is_fresh(tmp_path: Path) -> None:
    """What is committed is what the sources give: `npm ci && npm run build` changes nothing."""
    if not shutil.which("node"):
        pytest.skip("no Node on this machine: the bundle's freshness is not checked")
    if not (JS / "node_modules" / "esbuild").exists():
        pytest.skip("esbuild is not installed (npm ci in kvlab/draw/js)")
    subprocess.run(
        ["node", str(JS / "build.mjs"), str(tmp_path)], check=True, capture_output=True, cwd=JS
    )
    for built in (MODULE, STYLE):
        assert (tmp_path / built.name).read_bytes() == built.read_bytes(), (
            f"{built.name} is not what its sources give: npm run build in kvlab/draw/js"
        )
