"""How much memory is there, and whether a model's weights fit, before any of it is used."""

from __future__ import annotations

from pathlib import Path

import torch

from kvlab.errors import BadInput, size

CGROUP = Path("/sys/fs/cgroup")


def available_memory() -> int | None:
    """Bytes of main memory that a program can still take without swapping; None where the system
    does not say. A container's own limit counts."""
    try:
        import psutil  # late: bench gpu runs where there is none
    except ImportError:
        return _container_memory()
    free, limit = int(psutil.virtual_memory().available), _container_memory()
    return free if limit is None else min(free, limit)


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
