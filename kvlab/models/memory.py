"""How much memory is there, and whether a model's weights fit, before any of it is used."""

from __future__ import annotations

from pathlib import Path

import torch

from kvlab.console import size
from kvlab.errors import BadInput

CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")


def available_memory() -> int | None:
    """Bytes of main memory that a program can still take without swapping; None where the system
    does not say. A container's own limit counts."""
    free = _system_memory()
    limit = _container_memory()
    known = [count for count in (free, limit) if count is not None]
    return min(known) if known else None


def _system_memory() -> int | None:
    try:
        import psutil

        return int(psutil.virtual_memory().available)
    except ImportError:
        pass
    try:
        for line in MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _container_memory() -> int | None:
    """What a cgroup (version 2) leaves: its limit less what is used and cannot be dropped."""
    try:
        limit = int((CGROUP / "memory.max").read_text())  # "max" is no number: no limit
        used = int((CGROUP / "memory.current").read_text())
        stat = (CGROUP / "memory.stat").read_text().split()
        cached = int(stat[stat.index("inactive_file") + 1])
    except (OSError, ValueError, IndexError):
        return None
    return max(0, limit - used + cached)


def device_memory(device: torch.device) -> int | None:
    """Free bytes where a model's weights go."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return available_memory()


def refuse_too_large(what: str, values: int, dtype: torch.dtype, device: torch.device) -> None:
    """Raise BadInput when `values` numbers in `dtype` need more than is free on `device`.

    Weights mapped from a file are counted too: they would fit, but a model whose pages are dropped
    and read again in every step answers nobody. Pages that a file already has in memory count as
    free, so that a second session is not refused what the first one mapped.
    """
    free = device_memory(device)
    needed = values * dtype.itemsize
    if free is None or needed <= free:
        return
    name = str(dtype).removeprefix("torch.")
    place = "memory" if device.type == "cpu" else f"memory on {device}"
    smaller = dtype.itemsize > 2 and values * 2 <= free
    advice = "use dtype: bfloat16, which fits" if smaller else "use a smaller model"
    raise BadInput(
        f"{what} needs {size(needed)} for its weights in {name}, but {size(free)} of {place} are "
        f"free; {advice}."
    )
