"""Which build of torch to take, and what it costs, said before the download starts.

On Linux PyPI's torch is a CUDA build of several gigabytes. Where no NVIDIA driver answers that is
a waste, so a CPU build is taken when one is on offer: by pip's own settings, or from PyTorch's
CPU index where that can be reached.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import ssl
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kvlab.console import CannotStart, size
from kvlab.launcher.needs import Pin
from kvlab.launcher.pip import Planned

CPU_INDEX = "https://download.pytorch.org/whl/cpu"

USUAL_SIZE = {"CUDA": 2_700_000_000, "CPU": 200_000_000}
"""Bytes to download, for when the index does not say."""

UNPACKED = {"CUDA": 10_000_000_000, "CPU": 2_500_000_000}
"""Free disk that a whole install needs at its peak, the other packages included."""


class Planner(Protocol):
    """Says what pip would fetch; raises CannotStart where it finds nothing."""

    def plan(self, arguments: Sequence[str], quick: bool = False) -> list[Planned]: ...


@dataclass(frozen=True)
class Choice:
    """The torch to install."""

    arguments: tuple[str, ...]
    version: str
    build: str
    """`CPU` or `CUDA`."""
    download: int | None
    """Bytes, or None where nobody would say."""
    local: bool
    """The file lies on this machine."""
    driver: bool

    def __str__(self) -> str:
        what = f"torch {self.version}, {self.build} build"
        if self.local:
            cost = f"{size(self.download or USUAL_SIZE[self.build])} from this machine's disk"
        elif self.download is None:
            cost = f"about {size(USUAL_SIZE[self.build])} to download"
        else:
            cost = f"{size(self.download)} to download"
        return f"{what}: {cost}{self._remark()}"

    def _remark(self) -> str:
        if self.build == "CUDA" and not self.driver:
            return " (no NVIDIA driver answers here, but no CPU build is on offer)"
        if self.build == "CPU" and self.driver and sys.platform == "linux":
            return " (an NVIDIA driver answers here, but pip's settings offer the CPU build)"
        return ""


def choose(
    pin: Pin,
    pip: Planner,
    driver: bool,
    weigh: Callable[[Sequence[str]], int | None],
) -> Choice:
    """The build to take for this pin. Raises CannotStart when pip finds none at all."""
    wanted: tuple[str, ...] = (str(pin),)
    planned = pip.plan(["--no-deps", *wanted])
    if may_be_cuda(planned[0]):
        offer = None if driver else _cpu_offer(pin, pip)
        if offer is None:
            # Which of its parts this machine would get, and so what it weighs, only a full plan
            # tells: it takes longer.
            planned = pip.plan(wanted)
        else:
            wanted, planned = offer
    torch = next(item for item in planned if item.name == "torch")
    heavy = [item.url for item in planned if item is torch or is_cuda_part(item.name)]
    return Choice(
        arguments=wanted,
        version=torch.version,
        build=build_of(planned),
        download=weigh(heavy),
        local=torch.url.startswith("file:"),
        driver=driver,
    )


def _cpu_offer(pin: Pin, pip: Planner) -> tuple[tuple[str, ...], list[Planned]] | None:
    """A CPU build: what to tell pip to get it, and what pip would fetch. None: not to be had."""
    wanted = f"{pin}+cpu"
    with contextlib.suppress(CannotStart):
        return (wanted,), pip.plan(["--no-deps", wanted], quick=True)
    with contextlib.suppress(CannotStart):
        # Of PyTorch's index alone, so that the answer comes at once where it is out of reach.
        found = pip.plan(["--no-deps", "--index-url", CPU_INDEX, wanted], quick=True)
        return ("--extra-index-url", CPU_INDEX, wanted), found
    return None


def may_be_cuda(torch: Planned) -> bool:
    """Whether this torch can bring NVIDIA's libraries along: its own list of needs names them,
    and its version does not deny it."""
    return "+cpu" not in torch.version and any(is_cuda_part(name) for name in torch.needs)


def build_of(planned: Sequence[Planned]) -> str:
    """`CUDA` where the plan brings NVIDIA's libraries along, else `CPU`."""
    return "CUDA" if any(is_cuda_part(item.name) for item in planned) else "CPU"


def is_cuda_part(name: str) -> bool:
    """Whether a package is one of those that a CUDA build of torch needs."""
    return name.startswith(("nvidia-", "nvidia_", "cuda-", "cuda_")) or name == "triton"


def weigh(urls: Sequence[str]) -> int | None:
    """The bytes of these files, or None unless every one can be asked in a few seconds."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        sizes = list(pool.map(_size_of, urls))
    known = [one for one in sizes if one is not None]
    return sum(known) if len(known) == len(urls) else None


def _size_of(url: str) -> int | None:
    try:
        if url.startswith("file:"):
            path = urllib.request.url2pathname(urllib.parse.urlsplit(url).path)
            return Path(path).stat().st_size
        certificates = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE")
        context = ssl.create_default_context(cafile=certificates)
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=4, context=context) as answer:
            return int(answer.headers["Content-Length"])
    except (OSError, ValueError, TypeError):
        return None


def nvidia_driver_answers() -> bool:
    """Whether there is a GPU that a CUDA build could use."""
    if tool := shutil.which("nvidia-smi"):
        try:
            listed = subprocess.run(
                [tool, "-L"], capture_output=True, text=True, timeout=20, check=False
            )
            if listed.returncode == 0 and listed.stdout.startswith("GPU "):
                return True
        except (OSError, subprocess.TimeoutExpired):
            pass
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        count = ctypes.c_int(0)
        return (
            driver.cuInit(0) == 0
            and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
            and count.value > 0
        )
    except (OSError, AttributeError):
        return False
