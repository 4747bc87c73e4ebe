"""Stands in for pip in the launcher's tests: `python fake_pip.py FOLDER install …`.

FOLDER/site-packages receives what is "installed", FOLDER/calls.txt every call. FOLDER/fails.txt,
where it exists, is printed on stderr in place of an install, which then fails; where FOLDER/wait.txt
exists, an install is not whole before that has gone.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def main(folder: Path, arguments: list[str]) -> int:
    with (folder / "calls.txt").open("a") as calls:
        calls.write(" ".join(arguments) + "\n")
    pins = [argument for argument in arguments if "==" in argument]
    if "--report" in arguments:
        metadata = {"name": "torch", "version": "2.13.0+cpu", "requires_dist": ["filelock>=3"]}
        item = {"metadata": metadata, "download_info": {"url": "https://index.invalid/torch.whl"}}
        print("WARNING: a line before the report")
        print(json.dumps({"install": [item]}))
        return 0
    fails = folder / "fails.txt"
    if fails.exists():
        print(fails.read_text(), file=sys.stderr)
        return 1
    for pin in pins:
        name, version = pin.split("==")
        print(f"Collecting {pin}")
        info = folder / "site-packages" / f"{name}-{version}.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        while (folder / "wait.txt").exists():
            time.sleep(0.01)
        (info / "INSTALLER").write_text("pip")
        (info / "RECORD").write_text("")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
