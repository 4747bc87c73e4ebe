"""Kernels that share what they import: one process imports it all, and each kernel is a fork of it.

For a room of people: a kernel of its own takes seconds of CPU and, with torch, some 200 MB; a fork
takes milliseconds and, of what was imported, only the pages that it writes to. Linux alone, and
only where the importing process has a single thread: what a fork copies of other threads' locks
stays locked for ever. So nothing that computes is called here, and torch is imported, not used.

The standard library has such a server (multiprocessing.forkserver), but that ends, and takes its
knowledge of all children along, once the system has no room for a process. This one is asked and
answers over one of that library's connections (`python -m kvlab.server.forkserver FD`): to (argv,
env, cwd, memory) with the pid, or with the words why there is none. forked.py asks.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from typing import Any

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
PR_SET_PDEATHSIG = 1


def serve(line: Connection) -> None:
    """Fork when asked, until the server closes its end."""
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            request = line.recv()
            try:
                answer: int | str = fork(become, line, *request)
            except OSError as error:  # no memory, or too many processes: the others live on
                answer = error.strerror or "no reason given"
            line.send(answer)


def fork(work: Callable[..., None], *given: Any) -> int:
    """A child that does this work and ends, and ends with this process whatever ends that; its pid.
    Raises OSError where the system has no room for it."""
    if pid := os.fork():
        return pid
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        work(*given)
    except SystemExit:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


def become(line: Connection, argv: list[str], env: dict[str, str], cwd: str, memory: int) -> None:
    """In the child: a kernel. `memory`: bytes of its own that it may take, 0: any."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    line.close()
    os.setsid()
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    if memory:
        limit(memory)
    with contextlib.suppress(OSError):
        os.nice(5)  # the server answers even while everybody runs something
    sys.argv = argv
    from ipykernel.kernelapp import IPKernelApp
    from ipywidgets import register_comm_target

    register_comm_target()  # its import had no kernel yet to do that in
    IPKernelApp.launch_instance(argv=argv[1:])


def limit(memory: int) -> None:
    """Bound what this process may take of its own: heap, stacks, private mappings that can be
    written. Weights that are mapped from a file do not count. Linux 4.7 or newer."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))


def learn() -> None:
    """Import what a kernel goes on to import: a child builds the page and tells what that took."""
    here, there = Pipe(duplex=False)
    fork(build, there)
    there.close()
    with contextlib.suppress(EOFError):  # it failed, and has said why; a page will say it again
        for name in here.recv():
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    here.close()


def build(told: Connection) -> None:
    """In the child: what the first page imports."""
    before = set(sys.modules)
    from IPython.core.interactiveshell import InteractiveShell

    from kvlab.pages.dashboard import Dashboard

    InteractiveShell.instance()
    Dashboard()
    told.send([name for name in sys.modules if name not in before])


def main() -> None:
    """The importing process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends us
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no child is waited for
    os.environ["JPY_PARENT_PID"] = str(os.getpid())  # ipykernel reads it when it is imported
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    sys.modules["debugpy"] = None  # type: ignore[assignment]  # 15 MB a kernel that nobody debugs
    for name in IMPORTS:
        importlib.import_module(name)
    learn()
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        print(f"kvlab: the fork server has {threads} threads", file=sys.stderr)
    gc.collect()
    gc.freeze()  # a collection in a child must not write to what it shares
    serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
