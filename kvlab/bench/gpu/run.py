"""Every part of `kvlab bench gpu`, on a machine that has torch, Triton and a GPU and nothing else."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvlab.errors import BadInput

if TYPE_CHECKING:
    import torch

SECONDS = 240
TARGETS = {"decode_of_floor": 0.7, "swap_of_plain": 0.9}


def run(
    json_path: Path | str | None,
    *,
    device: str = "cuda",
    seconds: float = SECONDS,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Run every part and return (and write) what was found: `faults` says by part what failed, did
    not run or came out wrong.

    `device="cpu"` is a rehearsal: the same parts on tiny shapes, kernels only under Triton's
    interpreter (TRITON_INTERPRET=1). Raises BadInput where there is no CUDA device, or the file
    cannot be written.
    """
    try:
        import torch
    except ImportError:
        raise BadInput("bench gpu needs torch, which is not installed.") from None
    if device == "cuda" and not torch.cuda.is_available():
        raise BadInput("bench gpu needs a CUDA device, and torch sees none here.")
    from kvlab.bench.gpu.bench import Bench
    from kvlab.bench.gpu.parts import run_all, targets
    from kvlab.models.loading import choose_device

    path = None if json_path is None else Path(json_path)
    if path is not None and not path.resolve().parent.is_dir():
        raise BadInput(f"{path} cannot be written: there is no folder {path.resolve().parent}.")
    where = choose_device(device)
    bench = Bench(where, path, say, time.perf_counter() + seconds)
    bench.part("machine", 10, lambda late: machine(where))
    run_all(bench)
    bench.found["targets"] = targets(bench.found, TARGETS)
    bench.found["faults"] = bench.faults
    bench.write()
    return bench.found


def command(json_path: Path | None, *, device: str = "cuda", seconds: float = SECONDS) -> int:
    """Run, print the targets and a line for each part that does not hold; the exit status, 1 where
    there is such a part. A target that was missed is a finding, not a failure."""
    found = run(json_path, device=device, seconds=seconds)
    print(json.dumps(found["targets"], indent=1))
    for part, why in found["faults"].items():
        print(f"{part}: {why}")
    return 1 if found["faults"] else 0


def machine(device: torch.device) -> dict[str, Any]:
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
