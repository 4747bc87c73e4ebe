"""`kvlab doctor`: what this machine has, what is missing, and what to do about it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvlab.errors import size
from kvlab.launcher.needs import LAB, TESTS, installed_here, missing, normal, read_pins


@dataclass
class Examination:
    """The findings, in the order in which they are printed."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    can_run: bool = True

    def found(self, what: str, how: str) -> None:
        self.lines.append((what, how))

    def lacks(self, what: str, how: str, remedy: str, needed: bool) -> None:
        """Something is not there. `needed`: the lab cannot run without it."""
        self.lines.append((what, how))
        self.advice.append(remedy)
        self.can_run = self.can_run and not needed

    def report(self) -> str:
        """What the command prints."""
        rows = [f"{what:<12} {how}" for what, how in self.lines]
        verdict = "The lab can run." if self.can_run else "The lab cannot run:"
        return "\n".join([*rows, "", verdict, *(f"- {remedy}" for remedy in self.advice)]) + "\n"


def examine(root: Path) -> Examination:
    """Look at everything; nothing that is wrong keeps the rest from being looked at."""
    examination = Examination()
    for part in (_python, _memory, _packages, _torch, _story, _pool, _browser, _node):
        try:
            part(examination, root)
        except Exception as error:
            name = part.__name__.strip("_")
            text = f"{type(error).__name__}: {' '.join(str(error).split())}"
            examination.lacks(name, text, f"{name}: could not be examined ({text})", needed=False)
    return examination


def _python(examination: Examination, root: Path) -> None:
    examination.found("Python", f"{platform.python_version()} ({sys.executable})")
    examination.found("platform", f"{platform.system()} {platform.release()}, {platform.machine()}")
    examination.found("checkout", str(root))


def _memory(examination: Examination, root: Path) -> None:
    cores = f"{os.cpu_count()} CPUs"
    if hasattr(os, "sched_getaffinity"):
        cores = f"{len(os.sched_getaffinity(0))} of {cores}"
    try:
        import psutil

        memory = psutil.virtual_memory()
        free = f", {size(memory.available)} of {size(memory.total)} memory free"
    except ImportError:
        free = ""
    disk = size(shutil.disk_usage(root).free)
    examination.found("machine", f"{cores}{free}, {disk} disk free")


def _packages(examination: Examination, root: Path) -> None:
    developing = " (only for developing: the tests use them)"
    for what, files, use in (("packages", LAB, ""), ("test tools", TESTS, developing)):
        pins = read_pins(root, [files])
        have = installed_here(pins)
        absent = missing(pins, have)
        if not absent:
            examination.found(what, f"{len(pins)} of {len(pins)} as {files} has them{use}")
            continue
        names = ", ".join(f"{pin} ({have.get(normal(pin.name), 'absent')})" for pin in absent)
        command = "doctor" if files == LAB else "test"
        examination.lacks(
            what,
            f"{len(absent)} of {len(pins)} differ: {names}{use}",
            f"`python3 -m kvlab {command}` installs what {files} asks for{use}",
            needed=files == LAB,
        )


def _torch(examination: Examination, root: Path) -> None:
    try:
        import torch
    except (ImportError, OSError) as error:
        examination.lacks(
            "torch",
            f"does not load: {' '.join(str(error).split())}",
            f"remove {root / '.venv'} and start again: torch is installed anew",
            needed=True,
        )
        return
    build = f"CUDA {torch.version.cuda} build" if torch.version.cuda else "CPU build"
    examination.found("torch", f"{torch.__version__}, {build}, {torch.get_num_threads()} threads")
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(index)
            examination.found("CUDA", f"{about.name}, {size(about.total_memory)}")
        return
    from kvlab.launcher.torch_build import nvidia_driver_answers

    if not nvidia_driver_answers():
        examination.found("CUDA", "no NVIDIA driver answers: the engine runs on the CPU")
    elif torch.version.cuda:
        examination.lacks(
            "CUDA",
            "a driver answers, but this torch cannot use it",
            f"torch {torch.__version__} may want a newer NVIDIA driver",
            needed=False,
        )
    else:
        examination.lacks(
            "CUDA",
            "a driver answers, but this torch is a CPU build",
            "to use the GPU, install a CUDA build of torch into .venv as pytorch.org describes: "
            "it is kept",
            needed=False,
        )


def _story(examination: Examination, root: Path) -> None:
    """The bundled model, by running the article's story on it."""
    try:
        from kvlab.runs.run import run_scenario
        from kvlab.runs.scenario import load_scenario

        scenario = load_scenario("figure-5")
        began = time.perf_counter()
        run = run_scenario(scenario)
        seconds = time.perf_counter() - began
    except Exception as error:  # whatever it is, this is the lab's heart
        examination.lacks(
            "story model",
            f"does not run: {type(error).__name__}: {' '.join(str(error).split())}",
            "the checkout is not complete: clone it again",
            needed=True,
        )
        return
    summary = run.summary
    examination.found(
        "story model",
        f"loads and runs: {summary['tokens_processed']} tokens in {seconds:.2f} s "
        f"on {summary['device']}",
    )
    examination.found("arithmetic", arithmetic(run.runner))


def arithmetic(runner: Any) -> str:
    """What was chosen to compute with, and why."""
    packed, graphs = runner.why_not_packed, runner.decode_steps.why_not
    return "; ".join(
        (
            f"attention: {runner.attention.name} ({runner.attention.why})",
            f"weights: {f'as stored ({packed})' if packed else 'packed for this CPU'}",
            f"decode steps: {f'op by op ({graphs})' if graphs else 'CUDA graphs'}",
        )
    )


def _pool(examination: Examination, root: Path) -> None:
    """What a KV pool may take here."""
    from kvlab.runtime.memory import report

    rows = dict(
        report("story", block_size=16, length=None, share=None, dtype="float32", device="cpu")
    )
    examination.found(
        "KV pool", f"up to {rows['pool']}: {rows['tokens']} tokens of the story model"
    )


def _browser(examination: Examination, root: Path) -> None:
    from kvlab.launcher.suite import BROWSER_VARIABLE, FETCH_BROWSER, find_chromium

    browser = find_chromium()
    if browser is not None:
        examination.found("browser", f"{browser} (only the tests need one)")
        return
    examination.lacks(
        "browser",
        "no Chromium found (only the tests need one)",
        f"for the browser tests install Chromium, or run `{sys.executable} "
        f"{' '.join(FETCH_BROWSER)}`, or set {BROWSER_VARIABLE}",
        needed=False,
    )


def _node(examination: Examination, root: Path) -> None:
    use = "only to rebuild the player's bundle"
    tool = shutil.which("node")
    if tool is None:
        examination.found("node", f"not found ({use})")
        return
    done = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
    examination.found("node", f"{done.stdout.strip()} ({use})")
