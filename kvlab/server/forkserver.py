"""Kernels that share what they import: one process imports it all, and each kernel is a fork of it.

For a room of people: a kernel of its own takes seconds of CPU and, with torch, some 200 MB; a fork
takes milliseconds and, of what was imported, only the pages that it writes to. POSIX alone, and
only where the importing process has a single thread: what a fork copies of other threads' locks
stays locked for ever. So nothing that computes is called here, and torch is imported, not used.

This file is the importing process (`python -m kvlab.server.forkserver FD`); forked.py is its client.
Messages are JSON, one a line, over the socket FD. To it: {"id", "argv", "env", "cwd", "memory"}.
From it: {"ready": threads}, {"id", "pid"} or {"id", "failed": why}, and {"ended": pid, "status":
exit status}.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
from typing import Any, NoReturn

IMPORTS = (
    "ipykernel.kernelapp",
    "ipykernel.ipkernel",
    "ipykernel.zmqshell",
    "ipywidgets",
    "anywidget",
    "kvlab.pages.dashboard",
    "torch",
    "kvlab.runs.run",
    "kvlab.models.loading",
)


def threads() -> int:
    """How many this process has, by Linux's account; 1 where there is none."""
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/task"))
    return 1


class ForkServer:
    """One loop, one thread: reads requests, forks, and tells of children that have ended."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.left = b""
        self.children: set[int] = set()
        self.wake, told = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(told, False)
        self.told = told
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which tells us

    def say(self, **message: Any) -> None:
        self.line.sendall(json.dumps(message).encode() + b"\n")

    def run(self) -> None:
        """Until the server closes its end; then its kernels end, too."""
        # Broken off: the server has gone while it was told something.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.serve()
        for pid in self.children:
            os.kill(pid, signal.SIGKILL)

    def serve(self) -> None:
        self.say(ready=threads())
        with selectors.DefaultSelector() as selector:
            selector.register(self.line, selectors.EVENT_READ)
            selector.register(self.wake, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fd == self.wake:
                        with contextlib.suppress(BlockingIOError):
                            os.read(self.wake, 4096)
                        self.reap()
                    elif not self.listen(selector):
                        return

    def listen(self, selector: selectors.BaseSelector) -> bool:
        got = self.line.recv(65536)
        *lines, self.left = (self.left + got).split(b"\n")
        for one in lines:
            request = json.loads(one)
            try:
                pid = os.fork()
            except OSError as error:  # no memory, or too many processes: the others live on
                self.say(id=request["id"], failed=error.strerror)
                continue
            if pid == 0:
                selector.close()
                self.become(request)
            self.children.add(pid)
            self.say(id=request["id"], pid=pid)
        return bool(got)

    def reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                self.children.discard(pid)
                self.say(ended=pid, status=os.waitstatus_to_exitcode(status))

    def become(self, request: dict[str, Any]) -> NoReturn:
        """In the child: a kernel. Never returns."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.line.close()
            os.close(self.wake)
            os.close(self.told)
            os.setsid()
            # What ipykernel has read at its import: whose end is the kernel's end.
            os.environ.clear()
            os.environ.update(request["env"])
            os.chdir(request["cwd"])
            if request["memory"]:
                limit(request["memory"])
            with contextlib.suppress(OSError):
                os.nice(5)  # the server answers even while everybody runs something
            sys.argv = request["argv"]
            from ipykernel.kernelapp import IPKernelApp
            from ipywidgets import register_comm_target

            register_comm_target()  # its import had no kernel yet to do that in
            IPKernelApp.launch_instance(argv=sys.argv[1:])
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)


def limit(memory: int) -> None:
    """Bound what this process may take of its own: heap, stacks, private mappings that can be
    written. Weights that are mapped from a file do not count. Linux 4.7 or newer."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))


def learn() -> None:
    """Import what a kernel goes on to import: a child builds the page and tells what that took."""
    reader, writer = os.pipe()
    before = set(sys.modules)
    pid = os.fork()
    if pid == 0:
        try:
            from IPython.core.interactiveshell import InteractiveShell

            from kvlab.pages.dashboard import Dashboard

            InteractiveShell.instance()
            Dashboard()
            names = [name for name in sys.modules if name not in before]
            with os.fdopen(writer, "w") as out:
                json.dump(names, out)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        names = json.loads(told.read() or "[]")
    os.waitpid(pid, 0)
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def main() -> None:
    line = socket.socket(fileno=int(sys.argv[1]))
    os.environ["JPY_PARENT_PID"] = str(os.getpid())
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    sys.modules["debugpy"] = None  # type: ignore[assignment]  # 15 MB a kernel that nobody debugs
    for name in IMPORTS:
        importlib.import_module(name)
    learn()
    gc.collect()
    gc.freeze()  # a collection in a child must not write to what it shares
    ForkServer(line).run()


if __name__ == "__main__":
    main()
