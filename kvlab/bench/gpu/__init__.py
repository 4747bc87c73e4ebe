"""`kvlab bench gpu`: is the GPU path right, and how near is it to what the hardware can do?

One script of at most four minutes for a machine that has torch, Triton and a GPU and nothing else.
Every part has its share of the time, a part that fails says why and the next one runs, and the JSON
file is written after each, so that whatever was found is kept.
"""

from __future__ import annotations

import json
import platform
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvlab.errors import BadInput

SECONDS = 240
TARGETS = {"decode_of_floor": 0.7, "swap_of_plain": 0.9}


@dataclass
class Bench:
    """One run: where it runs, until when, and what it has found so far."""

    device: Any  # torch.device: torch is imported late
    path: Path | None
    say: Callable[[str], None]
    until: float
    tiny: bool
    found: dict[str, Any] = field(default_factory=dict)

    def part(self, name: str, most: float, work: Callable[[Callable[[], bool]], Any]) -> None:
        """Run one part, which asks its argument whether it is out of time, and write the file."""
        started = time.perf_counter()
        end = min(self.until, started + most)
        if started >= self.until:
            self.found[name] = {"skipped": "no time was left"}
        else:
            try:
                self.found[name] = work(lambda: time.perf_counter() >= end)
            except Exception as error:
                why = str(error) or type(error).__name__
                self.found[name] = {"failed": why, "traceback": traceback.format_exc()}
        seconds = time.perf_counter() - started
        self.found.setdefault("seconds", {})[name] = seconds
        failed = isinstance(self.found[name], dict) and self.found[name].get("failed")
        self.say(f"{name}: {'FAILED: ' + failed if failed else 'done'} in {seconds:.1f} s")
        self.write()

    def write(self) -> None:
        if self.path is not None:
            beside = self.path.with_name(self.path.name + ".part")
            beside.write_text(json.dumps(self.found, indent=1) + "\n", encoding="utf-8")
            beside.replace(self.path)


def run(
    json_path: Path | str | None,
    *,
    device: str = "cuda",
    seconds: float = SECONDS,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Run every part and return (and write) what was found.

    `device="cpu"` is a rehearsal: the same parts on tiny shapes, kernels only under Triton's
    interpreter. Raises BadInput where there is no CUDA device, or the file cannot be written.
    """
    try:
        import torch
    except ImportError:
        raise BadInput("bench gpu needs torch, which is not installed.") from None
    if device == "cuda" and not torch.cuda.is_available():
        raise BadInput("bench gpu needs a CUDA device, and torch sees none here.")
    from kvlab.bench.gpu import parts
    from kvlab.models.loading import choose_device

    path = None if json_path is None else Path(json_path)
    if path is not None and not path.resolve().parent.is_dir():
        raise BadInput(f"{path} cannot be written: there is no folder {path.resolve().parent}.")
    where = choose_device(device)
    bench = Bench(where, path, say, time.perf_counter() + seconds, tiny=device != "cuda")
    bench.part("machine", 10, lambda late: machine(where))
    parts.run_all(bench)
    bench.found["targets"] = parts.targets(bench.found, TARGETS)
    bench.write()
    return bench.found


def machine(device: Any) -> dict[str, Any]:
    """What it ran on."""
    import torch

    facts: dict[str, Any] = {
        "device": device.type,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "processor": platform.processor() or platform.machine(),
    }
    try:
        import triton

        facts["triton"] = triton.__version__
    except ImportError:
        facts["triton"] = None
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        facts |= {
            "name": properties.name,
            "memory_bytes": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
            "capability": list(torch.cuda.get_device_capability(device)),
        }
    return facts
