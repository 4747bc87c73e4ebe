"""The server's side of forkserver.py: a provisioner that Jupyter starts its kernels with."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import signal
import subprocess
import sys
import threading
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any, ClassVar

from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

log = logging.getLogger("kvlab.pages")

NAME = "kvlab-forked"
OPTIONS = ("--HistoryManager.enabled=False",)
"""Nobody types into these kernels: no history of what was, in a file that all would share."""


def can_fork() -> bool:
    """Linux alone, from 5.3 on: elsewhere system libraries start threads of their own when they are
    loaded, and a process that is not our child cannot be held."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


class Child:
    """A kernel, as much of `subprocess.Popen` as Jupyter asks for. It is the fork server's child:
    held by a descriptor of its process, as its number may be another's once it has ended."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        try:
            self.held = os.pidfd_open(pid)
        except ProcessLookupError:
            self.returncode = 1  # it has ended already

    def poll(self) -> int | None:
        if self.returncode is None:
            ended = select.poll()
            ended.register(self.held, select.POLLIN)
            if ended.poll(0):
                os.close(self.held)
                self.returncode = 1  # why it ended is known to nobody, and asked by nobody
        return self.returncode

    wait = poll

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.held, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forks:
    """The fork server's process. Whoever asks it before it has imported everything waits."""

    def __init__(self, memory: int, root: Path) -> None:
        self.line, theirs = Pipe()
        self.memory = memory
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kvlab.server.forkserver", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=root,
            # Each thread would keep a heap of its own; a kernel has a dozen that do little.
            env={**os.environ, "MALLOC_ARENA_MAX": "2"},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal reaches the server alone
        )
        theirs.close()
        self.turn = threading.Lock()
        self.broken = self.closed = False

    def ask(self, *request: Any) -> Child | None:
        """A kernel by (argv, env, cwd), or None once the fork server has ended. Blocks. Raises
        RuntimeError where the system lets no process be made."""
        with self.turn:
            if self.broken:
                return None
            try:
                self.line.send((*request, self.memory))
                answer = self.line.recv()
            except (EOFError, OSError):
                self.broken = True
                if not self.closed:
                    log.error(
                        "the fork server has ended: kernels start one by one, without a bound on "
                        "memory"
                    )
                return None
        if isinstance(answer, str):
            raise RuntimeError(f"a kernel could not be forked: {answer}")
        return Child(answer)

    def close(self) -> None:
        """End it, and with it whatever kernels are left."""
        self.closed = True
        self.process.kill()
        self.process.wait()


class Forked(LocalProvisioner):
    """Starts a kernel as a fork; where the fork server is broken as Jupyter does by itself."""

    forks: ClassVar[Forks]

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        forks = type(self).forks
        self.cwd = kwargs.get("cwd") or os.getcwd()
        # `python -m ipykernel_launcher -f FILE`: what comes after the module is the kernel's.
        argv = ["ipykernel_launcher", *cmd[cmd.index("-f") :], *OPTIONS]
        environment = {str(key): str(value) for key, value in kwargs.get("env", {}).items()}
        child = await asyncio.to_thread(forks.ask, argv, environment, str(self.cwd))
        if child is None:
            if forks.closed:
                raise RuntimeError("the server ends")
            return await super().launch_kernel(cmd, **kwargs)
        self.process = child  # type: ignore[assignment]
        self.pid = self.pgid = child.pid  # it leads a session of its own
        return self.connection_info


def use(forks: Forks) -> None:
    """Have Jupyter start all kernels of this process by these forks."""
    from importlib.metadata import EntryPoint

    Forked.forks = forks
    factory = KernelProvisionerFactory.instance()
    group = KernelProvisionerFactory.GROUP_NAME
    factory.provisioners[NAME] = EntryPoint(NAME, f"{__name__}:Forked", group)
    factory.default_provisioner_name = NAME
