"""Which build of torch to take, and what it costs, said before the download starts.

On Linux PyPI's torch is a CUDA build of several gigabytes. Where no NVIDIA driver answers that is
a waste, so a CPU build is taken when one is on offer: by pip's own settings, or from PyTorch's
CPU index where that can be reached.
"""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kvlab.errors import CannotStart, size
from kvlab.launcher.needs import Pin
from kvlab.launcher.pip import Planned

CPU_INDEX = "https://download.pytorch.org/whl/cpu"

DOWNLOAD = {"CUDA": 2_700_000_000, "CPU": 200_000_000}
"""Bytes, torch's own parts included; about."""

UNPACKED = {"CUDA": 10_000_000_000, "CPU": 2_500_000_000}
"""Free disk that a whole install needs at its peak, the other packages included."""


class Planner(Protocol):
    """Says what pip would fetch; raises CannotStart where it finds nothing."""

    def plan(self, arguments: Sequence[str], quick: bool = False) -> Planned: ...


@dataclass(frozen=True)
class Choice:
    """The torch to install."""

    arguments: tuple[str, ...]
    torch: Planned
    driver: bool

    @property
    def build(self) -> str:
        """`CUDA` or `CPU`: as its version says, else by whether it can bring NVIDIA's parts along
        (it names them on every platform, but they are Linux's)."""
        _, _, variant = self.torch.version.partition("+")
        if variant:
            return "CPU" if variant == "cpu" else "CUDA"
        parts = any(name.startswith(("nvidia", "cuda", "triton")) for name in self.torch.needs)
        return "CUDA" if parts and sys.platform == "linux" else "CPU"

    def __str__(self) -> str:
        local = self.torch.url.startswith("file:")
        cost = "from this machine's disk" if local else "to download"
        remark = ""
        if self.build == "CUDA" and not self.driver:
            remark = " (no NVIDIA driver answers here, but no CPU build is on offer)"
        if self.build == "CPU" and self.driver and sys.platform == "linux":
            remark = " (an NVIDIA driver answers here, but pip's settings offer the CPU build)"
        about = size(DOWNLOAD[self.build])
        return f"torch {self.torch.version}, {self.build} build: about {about} {cost}{remark}"


def choose(pin: Pin, pip: Planner, driver: bool) -> Choice:
    """The build to take for this pin. Raises CannotStart when pip finds none at all."""
    plain = Choice((str(pin),), pip.plan([str(pin)]), driver)
    if driver or plain.build == "CPU":
        return plain
    # By pip's own settings; else of PyTorch's index alone, so that the answer comes at once where
    # it is out of reach.
    wanted = f"{pin}+cpu"
    for asked, told in (((), ()), (("--index-url", CPU_INDEX), ("--extra-index-url", CPU_INDEX))):
        with contextlib.suppress(CannotStart):
            return Choice((*told, wanted), pip.plan([*asked, wanted], quick=True), driver)
    return plain


def nvidia_driver_answers() -> bool:
    """Whether there is a GPU that a CUDA build could use."""
    if tool := shutil.which("nvidia-smi"):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            listed = subprocess.run(
                [tool, "-L"], capture_output=True, text=True, timeout=20, check=False
            )
            if listed.returncode == 0 and listed.stdout.startswith("GPU "):
                return True
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
