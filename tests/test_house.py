"""The house: rooms (packages and top modules of kvlab) look downwards only, and each says its duty."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HOUSE = ROOT / "kvlab"
FLOORS = (
    ("__main__",),
    ("cli", "doctor", "bench"),
    ("build",),
    ("server", "lab"),
    ("pages", "export"),
    ("draw",),
    ("course", "predict"),
    ("runs",),
    ("runtime",),
    ("models", "trace"),
    ("engine",),
    ("launcher", "files", "errors"),
)
"""From the top; a room may look into those on floors below its own, and on its own."""
MOST_ARROWS = 95


def modules() -> dict[str, Path]:
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in HOUSE.rglob("*.py")
        if "node_modules" not in path.parts
    }


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of ours that a file imports, inside of functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found & known.keys()


def room(module: str) -> str:
    return module.split(".")[1]


@cache
def arrows() -> set[tuple[str, str]]:
    known = modules()
    return {
        (room(name), room(other))
        for name, path in known.items()
        if name != "kvlab"
        for other in imports(path, known) - {"kvlab"}
        if room(name) != room(other)
    }


def test_every_room_has_a_floor() -> None:
    placed = [name for floor in FLOORS for name in floor]
    assert sorted(placed) == sorted({room(name) for name in modules() if name != "kvlab"})


def test_no_arrow_goes_up_and_there_are_few() -> None:
    floor = {name: at for at, names in enumerate(FLOORS) for name in names}
    assert [(a, b) for a, b in sorted(arrows()) if floor[a] > floor[b]] == []
    assert len(arrows()) <= MOST_ARROWS


def test_rooms_of_one_floor_form_no_circle() -> None:
    both = {(a, b) for a, b in arrows() if (b, a) in arrows()}
    assert both == set()


def test_every_module_says_its_duty() -> None:
    silent = [
        name
        for name, path in modules().items()
        if not ast.get_docstring(ast.parse(path.read_text("utf-8")))
    ]
    assert silent == []


def js_imports(path: Path) -> set[Path]:
    """The files of ours that a JavaScript module imports."""
    named = re.findall(r"""(?:from|import)\s+["'](\.[^"']+)["']""", path.read_text("utf-8"))
    return {(path.parent / name).resolve() for name in named}


def circles(arrows_of: dict[Any, set[Any]]) -> list[list[Any]]:
    """What is left when whoever looks at nobody is taken away, again and again."""
    left = {one: seen - {one} for one, seen in arrows_of.items()}
    while ended := [one for one, seen in left.items() if not seen & left.keys()]:
        for one in ended:
            del left[one]
    return [sorted(left, key=str)] if left else []


def test_files_form_no_circle() -> None:
    known = modules()
    python = {name: imports(path, known) - {name, "kvlab"} for name, path in known.items()}
    # `from kvlab.room import module` names the room, too; its __init__ imports nothing of ours.
    assert circles(python) == []
    scripts = [path for path in HOUSE.rglob("*.js") if "node_modules" not in path.parts]
    sources = {path.resolve() for path in scripts if "dist" not in path.parts}
    assert circles({path: js_imports(path) & sources for path in sources}) == []


def test_a_circle_of_files_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == [["a", "b", "c"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
