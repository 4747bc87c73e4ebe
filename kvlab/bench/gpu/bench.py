"""The run of a few parts, each within its time: what each found, and which of them did not hold.

A part that fails says why and the next one runs; the JSON file is written after each, so that
whatever was found is kept.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

Late = Callable[[], bool]
"""Asks whether the part's time is over; who hears that it is leaves the rest out."""


@dataclass
class Bench:
    """Where it runs, until when (`time.perf_counter`), and what it has found so far."""

    device: torch.device
    path: Path | None
    say: Callable[[str], None]
    until: float
    found: dict[str, Any] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    """By part: why it counts as failed."""

    @property
    def tiny(self) -> bool:
        """A rehearsal: tiny shapes, on a machine without a GPU."""
        return self.device.type != "cuda"

    def part(
        self, name: str, most: float, work: Callable[[Late], Any], needs: Sequence[str] = ()
    ) -> None:
        """Run one part for at most `most` seconds, unless one that it `needs` has failed, and write
        the file."""
        started = time.perf_counter()
        end = min(self.until, started + most)
        left_out = False

        def late() -> bool:
            nonlocal left_out
            left_out = left_out or time.perf_counter() >= end
            return left_out

        lacking = [other for other in needs if other in self.faults]
        if lacking:
            self.found[name] = {"skipped": f"it needs {lacking[0]}"}
        elif started >= self.until:
            self.found[name] = {"skipped": "no time was left"}
        else:
            try:
                self.found[name] = work(late)
            except Exception as error:
                why = str(error) or type(error).__name__
                self.found[name] = {"failed": why, "traceback": traceback.format_exc()}
        seconds = time.perf_counter() - started
        self.found.setdefault("seconds", {})[name] = seconds
        if fault := fault_of(self.found[name], left_out):
            self.faults[name] = fault
            self.say(f"{name}: FAILED after {seconds:.1f} s: {fault}")
        else:
            self.say(f"{name}: done in {seconds:.1f} s")
        self.write()

    def write(self) -> None:
        if self.path is not None:
            beside = self.path.with_name(self.path.name + ".part")
            beside.write_text(json.dumps(self.found, indent=1) + "\n", encoding="utf-8")
            beside.replace(self.path)


def fault_of(found: Any, left_out: bool) -> str:
    """Why what a part found does not hold; empty where it does."""
    one = found if isinstance(found, dict) else {}
    if "failed" in one:
        return f"it failed ({one['failed']})"
    if "skipped" in one:
        return f"it did not run ({one['skipped']})"
    if one.get("right") is False:
        return "what it found is wrong"
    return "its time ran out before its end" if left_out else ""
