"""The server's side of forkserver.py: a provisioner that Jupyter starts its kernels with."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

log = logging.getLogger("kvlab.pages")

NAME = "kvlab-forked"
OPTIONS = ("--HistoryManager.enabled=False",)
"""Nobody types into these kernels: no history of what was, in a file that all would share."""


def can_fork() -> bool:
    """Linux alone: elsewhere system libraries start threads of their own when they are loaded."""
    return sys.platform == "linux"


class Child:
    """A kernel, as much of `subprocess.Popen` as Jupyter asks for."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode

    def wait(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        # Its end is told in order, so that a number is never that of another process by now.
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and that is on its way
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forks:
    """The fork server's process and its children."""

    def __init__(self, memory: int, root: Path) -> None:
        ours, theirs = socket.socketpair()
        self.line, self.memory = ours, memory
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
        self.numbers = itertools.count()
        self.waiting: dict[int, asyncio.Future[Child]] = {}
        self.children: dict[int, Child] = {}
        self.writer: asyncio.StreamWriter | None = None
        self.ready = asyncio.Event()
        self.broken = False
        self.listener: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        reader, self.writer = await asyncio.open_unix_connection(sock=self.line, limit=1 << 20)
        self.listener = asyncio.create_task(self.listen(reader))

    async def listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            message = json.loads(line)
            if "ready" in message:
                if message["ready"] > 1:
                    log.warning("the fork server has %d threads", message["ready"])
                self.ready.set()
            elif "ended" in message:
                child = self.children.pop(message["ended"], None)
                if child is not None:
                    child.returncode = message["status"]
            elif "failed" in message:
                why = RuntimeError(f"a kernel could not be forked: {message['failed']}")
                self.waiting.pop(message["id"]).set_exception(why)
            else:
                child = self.children[message["pid"]] = Child(message["pid"])
                self.waiting.pop(message["id"]).set_result(child)
        self.broken = True
        log.error("the fork server has ended: kernels start one by one, without a bound on memory")
        self.ready.set()
        for future in self.waiting.values():
            future.set_exception(RuntimeError("the fork server has ended"))
        self.waiting.clear()
        for child in self.children.values():
            child.returncode = 1  # children end with their parent

    async def spawn(self, argv: list[str], env: dict[str, str], cwd: str) -> Child:
        """A new kernel. Raises RuntimeError where the system lets no process be made, and once the
        fork server has ended."""
        if self.broken or self.writer is None:
            raise RuntimeError("the fork server has ended")
        number = next(self.numbers)
        future: asyncio.Future[Child] = asyncio.get_running_loop().create_future()
        self.waiting[number] = future
        request = {"id": number, "argv": argv, "env": env, "cwd": cwd, "memory": self.memory}
        self.writer.write(json.dumps(request).encode() + b"\n")
        return await future

    def close(self) -> None:
        """End whatever kernels are left, and the fork server. Needs no running loop."""
        for child in self.children.values():
            child.kill()
            child.returncode = -signal.SIGKILL
        if self.writer is not None:
            self.writer.close()
        else:
            self.line.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Forked(LocalProvisioner):
    """Starts a kernel as a fork; while the fork server is broken as Jupyter does by itself."""

    forks: ClassVar[Forks | None] = None

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        forks = type(self).forks
        if forks is not None:
            await forks.ready.wait()
        if forks is None or forks.broken:
            return await super().launch_kernel(cmd, **kwargs)
        self.cwd = kwargs.get("cwd") or os.getcwd()
        # `python -m ipykernel_launcher -f FILE`: what comes after the module is the kernel's.
        argv = ["ipykernel_launcher", *cmd[cmd.index("-f") :], *OPTIONS]
        environment = {str(key): str(value) for key, value in kwargs.get("env", {}).items()}
        child = await forks.spawn(argv, environment, str(self.cwd))
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
