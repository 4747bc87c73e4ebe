"""The tab's JavaScript in a Node process, as the `call` that Python's end of it takes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DRIVER = Path(__file__).with_name("node_tab.mjs")
STORY = ROOT / "assets" / "models" / "story"


def why_no_node() -> str:
    """Empty where there is a Node that runs the tab's modules."""
    return "" if shutil.which("node") else "there is no Node"


class NodeTab:
    """One process; its pools are those of the last `begin`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", str(DRIVER), str(STORY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def call(self, method: str, given: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"method": method, "given": given}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        if "fault" in answer:
            raise RuntimeError(answer["fault"])
        found: str = answer["found"]
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)
        assert self._process.stdout is not None
        self._process.stdout.close()


def node_tab() -> Iterator[NodeTab]:
    tab = NodeTab()
    yield tab
    tab.close()
