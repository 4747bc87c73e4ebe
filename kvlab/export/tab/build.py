"""Writes the page that runs, `lab.html`, and what it loads, into a site's folder."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvlab.course.record import recorded
from kvlab.draw.packed import with_picture
from kvlab.export.page import BUNDLE, as_data
from kvlab.export.tab.archive import ROOT, library_archive, python_archive
from kvlab.files.write import write_whole
from kvlab.pages.lab_scenarios import spec
from kvlab.pages.scenario_form import HERE as FORM
from kvlab.pages.scenario_form import LARGEST_FILE
from kvlab.runs.scenario import load_scenario, scenario_names
from kvlab.trace.narration import FOLDER as WORDS
from kvlab.trace.narration import languages, load_words
from kvlab.trace.speech import Speech

HERE = Path(__file__).parent
STORY = ROOT / "assets" / "models" / "story"
MODEL_FILES = ("config.json", "tokenizer.json", "model.safetensors")
FOLDER, PAGE, OFFLINE = "tab", "lab.html", "offline.js"
PACKED = ".packed"
"""Ends the names of deflated files; one that servers know (.gz) could be inflated on the way."""
FIRST = "victims"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self' 'wasm-unsafe-eval'",
        "worker-src 'self' blob:",
        "connect-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    )
)
"""Everything from this folder, nothing from elsewhere, nothing that stands in the page itself. Python
needs WebAssembly to be compiled; no text is ever run as a script."""


def write_lab(folder: Path, python: dict[str, bytes]) -> Iterator[Path]:
    """Write the page and its folder, and yield each file; `python` are Pyodide's files."""
    files, sizes = engine_files(python)
    files |= page_files()
    whole = page(
        {
            "sizes": sizes,
            "specs": {language: form_of(Speech(language)) for language in languages()},
            "scenarios": {name: load_scenario(name).raw for name in scenario_names()},
            "first": FIRST,
            "languages": languages(),
        }
    )
    version = hashlib.sha256(whole.encode() + b"".join(files.values())).hexdigest()[:16]
    offline = (HERE / "js" / OFFLINE).read_text("utf-8").replace("VERSION", version)
    for name, data in files.items():
        path = folder / FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
        yield path
    for name, text in ((OFFLINE, offline), (PAGE, whole)):
        write_whole(folder / name, text)
        yield folder / name


def form_of(speech: Speech) -> dict[str, Any]:
    """The form's words, choices and bounds; a tab has the bundled model and no other."""
    models = [["story", speech("lab.story_model")], [None, speech("lab.no_model")]]
    own = {"models": models, "model_note": "", "largest_file": LARGEST_FILE}
    return spec(speech) | own


def engine_files(python: dict[str, bytes]) -> tuple[dict[str, bytes], dict[str, tuple[int, bool]]]:
    """What a run needs, by name: the files as they are written, and for those that the worker loads
    (bytes, whether deflated)."""
    loaded = {f"pyodide/{name}": data for name, data in python.items()}
    library = "pyodide/python_stdlib.zip"
    loaded[library] = library_archive(loaded[library])
    loaded |= {f"story/{name}": (STORY / name).read_bytes() for name in MODEL_FILES}
    loaded["python.zip"] = python_archive()
    files: dict[str, bytes] = {}
    sizes: dict[str, tuple[int, bool]] = {}
    for name, data in loaded.items():
        if name.endswith(".mjs"):  # a browser imports a module as it lies there
            files[name] = data
            continue
        smaller = packed(data)
        deflated = len(smaller) < len(data)
        files |= {f"{name}{PACKED}": smaller} if deflated else {name: data}
        sizes[name] = (min(len(smaller), len(data)), deflated)
    return files, sizes


def page_files() -> dict[str, bytes]:
    """What the page needs before the first run."""
    modules = [path for path in (HERE / "js").glob("*.js") if path.name != OFFLINE]
    files = {path.name: path.read_bytes() for path in sorted(modules)}
    files["player.js"] = (BUNDLE / "player.js").read_bytes()
    files["form.js"] = (FORM / "scenario_form.js").read_bytes()
    styles = (
        BUNDLE / "player.css",
        BUNDLE / "pair.css",
        FORM / "scenario_form.css",
        HERE / "js" / "lab.css",
    )
    files["lab.css"] = b"".join(path.read_bytes() for path in styles)
    for language in languages():
        own = json.loads((WORDS / "tab" / f"{language}.json").read_text("utf-8"))
        files[f"words-{language}.json{PACKED}"] = packed_json([load_words(language), own])
    for name in scenario_names():
        files[f"runs/{name}.json{PACKED}"] = packed_json(with_picture(recorded(name)))
    return files


def packed(data: bytes) -> bytes:
    """gzip, the same bytes for the same data."""
    return gzip.compress(data, 9, mtime=0)


def packed_json(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return packed(text.encode("utf-8", "replace"))


def page(settings: dict[str, Any]) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{FOLDER}/lab.css">
<title>kvlab</title>
</head>
<body>
<main></main>
<script type="application/json" id="kvlab-lab">{as_data(settings)}</script>
<script type="module" src="{FOLDER}/lab.js"></script>
</body>
</html>
"""
