"""The lab's own Python for the tab, in one archive: the very files that run here.

Which ones follows from their imports: all that the tab's module asks for, and all that those ask for.
Imports inside of functions are followed within a room alone (the engine's unsafe modes, say); what else
they bring is what a tab does not have, torch above all, or one of EXTRAS.
"""

from __future__ import annotations

import ast
import importlib.util
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import kvlab

ROOT = Path(kvlab.__file__).resolve().parent.parent
ENTRY = "kvlab.export.tab.visit"
DATA = (
    "kvlab/files/schemas",
    "kvlab/runs/scenarios",
    "kvlab/trace/words",
    "kvlab/trace/words/pages",
)
"""Folders that those modules read as data."""
EXTRAS = ("yaml", "jsonschema", "jsonschema_specifications", "referencing", "attr", "attrs")
"""Packages of others, as they are installed here: for YAML files, and for the words about a scenario
that does not fit. They are loaded when one of these is met."""
NEVER_IMPORTED = {
    *("pdb", "bdb", "doctest", "unittest", "pydoc", "pydoc_data", "_pyrepl", "pickletools"),
    *("profile", "cProfile", "profiling", "pstats", "trace", "tracemalloc", "timeit", "optparse"),
    *("xmlrpc", "wsgiref", "ftplib", "imaplib", "poplib", "smtplib", "mailbox"),
    *(
        "multiprocessing",
        "plistlib",
        "netrc",
        "webbrowser",
        "turtle",
        "idlelib",
        "ensurepip",
        "venv",
    ),
}
"""What a lab in a tab has no use for: debuggers, test frames, profilers, clients and servers of other
protocols."""
LEFT_OUT = {"tests", "benchmarks", "__pycache__"}
COMPILED = {".so", ".pyd", ".pyi"}
STAND_INS = {"rpds/__init__.py": Path(__file__).with_name("rpds.py")}
"""jsonschema's maps are compiled for this machine; what it needs of them is little."""


def python_archive() -> bytes:
    """A zip with kvlab's modules, their data and EXTRAS."""
    return stored({name: path.read_bytes() for name, path in members()})


def library_archive(whole: bytes) -> bytes:
    """Python's standard library out of Pyodide's zip, less NEVER_IMPORTED."""
    with zipfile.ZipFile(BytesIO(whole)) as archive:
        return stored(
            {
                name: archive.read(name)
                for name in archive.namelist()
                if not name.endswith("/") and name.split("/")[0].split(".")[0] not in NEVER_IMPORTED
            }
        )


def stored(files: dict[str, bytes]) -> bytes:
    """A zip without compression, the same bytes for the same files: as a whole it is deflated to less,
    and Python reads it sooner."""
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name), data)
    return packed.getvalue()


def members() -> Iterator[tuple[str, Path]]:
    """(name in the archive, file) of everything in it."""
    for module in modules_of(ENTRY):
        path = file_of(module)
        yield path.relative_to(ROOT).as_posix(), path
    for folder in DATA:
        for path in (ROOT / folder).iterdir():
            if path.suffix in (".json", ".yaml"):
                yield path.relative_to(ROOT).as_posix(), path
    for package in EXTRAS:
        yield from package_files(package)
    yield from STAND_INS.items()


def package_files(package: str) -> Iterator[tuple[str, Path]]:
    """An installed package's files, its tests and what is compiled left out."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise RuntimeError(f"{package} is not installed")
    folder = Path(found.origin).parent
    for path in folder.rglob("*"):
        inside = path.relative_to(folder)
        left_out = LEFT_OUT & set(inside.parts) or path.suffix in COMPILED
        if path.is_file() and not left_out:
            yield f"{package}/{inside.as_posix()}", path


def modules_of(entry: str) -> set[str]:
    """The module, all of ours that it imports, and the packages that they lie in."""
    found: set[str] = set()
    left = [entry]
    while left:
        module = left.pop()
        if module in found:
            continue
        found.add(module)
        left += parents(module)
        left += [name for name in imported(module) if is_module(name)]
    return found


def parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def imported(module: str) -> Iterator[str]:
    """Names that could be modules of ours in a module's imports, but for those of type checkers."""
    tree = ast.parse(file_of(module).read_text("utf-8"))
    room = ".".join(module.split(".")[:2])
    for at_once, node in import_nodes(tree.body, at_once=True):
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name}" for name in names] + [str(node.module)]
        yield from (name for name in names if at_once or name.startswith(f"{room}."))


def import_nodes(
    body: list[ast.stmt], at_once: bool
) -> Iterator[tuple[bool, ast.Import | ast.ImportFrom]]:
    """Each with whether it runs when the module is imported, and not in a function only."""
    for node in body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from import_nodes(node.orelse, at_once)
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield at_once, node
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for part in ("body", "orelse", "handlers", "finalbody"):
            yield from import_nodes(getattr(node, part, []), at_once and not inside)


def is_module(name: str) -> bool:
    return name.split(".")[0] == "kvlab" and file_of(name).is_file()


def file_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
