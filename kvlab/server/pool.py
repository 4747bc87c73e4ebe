"""Kernels that have rendered the page before anybody asks for it.

A kernel and its page belong together: the widgets live in the one, the page names them. So a page
is rendered once for each kernel, and handed out once. Voilà can heat kernels too, but refills its
pool without regard to those that are in use: a room of thirty became sixty kernels.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from tornado.web import HTTPError

log = logging.getLogger("kvlab.pages")

AT_ONCE = 2
"""Kernels that are heated at the same time, so that a page which is open stays quick."""
MOST_FAILURES = 3
"""In a row; then nothing is heated any more, and a page starts its own kernel and shows why."""


DEAD = (
    "Kernel died while waiting for execute reply",
    "Error at server while executing cell",
    "Error occurred while starting new kernel client",
)


def not_of_a_dead_kernel(record: logging.LogRecord) -> bool:
    """A filter for Voilà's log: a kernel that ends while it renders was mostly ended by its visitor,
    who has left. What else it may be is told below, in a line and without a traceback."""
    why = record.exc_info[0] if record.exc_info else None
    dead = why is None or why.__name__ in ("DeadKernelError", "RuntimeError")
    return not (dead and record.getMessage().startswith(DEAD))


async def stop_kernel(manager: Any, kernel: str) -> None:
    """End a kernel; one that has ended by itself is as good."""
    with contextlib.suppress(HTTPError, KeyError, RuntimeError):
        await manager.shutdown_kernel(kernel, now=True)


class Rendering:
    """One kernel and the page that it renders, from its start on."""

    def __init__(self, voila: Any, notebook: Path) -> None:
        self.voila, self.notebook = voila, notebook
        self.kernel = ""
        self.pieces: asyncio.Queue[str | None] = asyncio.Queue()
        self.done = self.failed = False
        self.work: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the kernel, and begin to render. Raises what keeps the kernel from starting."""
        renderer = self._renderer()
        await renderer.initialize()
        manager = self.voila.kernel_manager
        name = renderer.notebook.metadata.kernelspec.name
        # Not `kernel_name` alone: the notebook's own folder is where the kernel runs.
        self.kernel = await manager.start_kernel(kernel_name=name, path="", env=dict(os.environ))
        self.work = asyncio.create_task(self._render(renderer))

    async def _render(self, renderer: Any) -> None:
        manager = self.voila.kernel_manager
        try:
            async for piece, _ in renderer.generate_content_generator(
                self.kernel, manager.get_kernel(self.kernel)
            ):
                if not await self.alive():
                    raise RuntimeError("its kernel has ended")
                self.pieces.put_nowait(piece)
        except Exception:
            self.failed = True
            if self.kernel not in manager or self.kernel in manager._pending_kernels:
                log.info("a page was not rendered to its end: its kernel was stopped")
            elif not await self.alive():
                log.error("a page was not rendered to its end: its kernel has ended by itself")
            else:
                log.exception("a page was not rendered to its end")
        finally:
            self.done = True
            self.pieces.put_nowait(None)
            client = getattr(getattr(renderer, "executor", None), "kc", None)
            if self.failed and client is not None:  # else Voilà has closed them
                client.stop_channels()

    async def html(self) -> AsyncIterator[str]:
        """The page, piece by piece; once. It breaks off where the rendering has `failed`."""
        while (piece := await self.pieces.get()) is not None:
            yield piece

    async def stop(self) -> None:
        """End its kernel, in whatever state that is."""
        await stop_kernel(self.voila.kernel_manager, self.kernel)

    async def alive(self) -> bool:
        manager = self.voila.kernel_manager
        return self.kernel in manager and await manager.get_kernel(self.kernel).is_alive()

    def _renderer(self) -> Any:
        from voila.notebook_renderer import NotebookRenderer
        from voila.utils import get_page_config

        app = self.voila
        config = app.voila_configuration
        settings = app.app.settings
        return NotebookRenderer(
            voila_configuration=config,
            traitlet_config=app.config,
            notebook_path=self.notebook.name,
            template_paths=app.template_paths,
            config_manager=app.config_manager,
            contents_manager=app.contents_manager,
            base_url=app.base_url,
            kernel_spec_manager=app.kernel_spec_manager,
            page_config=get_page_config(
                base_url=app.base_url, settings=settings, log=app.log, voila_configuration=config
            ),
            mathjax_config=settings.get("mathjax_config"),
            mathjax_url=settings.get("mathjax_url"),
        )


class Pool:
    """`want` says how many heated kernels there should be just now."""

    def __init__(self, make: Callable[[], Rendering], want: Callable[[], int]) -> None:
        self.make, self.want = make, want
        self.heated: list[Rendering] = []
        self.coming = 0
        """How many wait for their turn, or are just starting."""
        self.turn = asyncio.Semaphore(AT_ONCE)
        self.failures = 0
        self.tasks: set[asyncio.Task[None]] = set()

    async def take(self) -> Rendering:
        """A heated one; where none is ready one that is being heated, else one that starts now."""
        while self.heated:
            one = min(self.heated, key=lambda rendering: not rendering.done)
            self.heated.remove(one)
            self.fill()
            if await one.alive():
                return one
        one = self.make()
        await one.start()
        return one

    def fill(self) -> None:
        """Start what is missing."""
        if self.failures >= MOST_FAILURES:
            return
        for _ in range(self.want() - len(self.heated) - self.coming):
            self.coming += 1
            task = asyncio.ensure_future(self._heat())
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _heat(self) -> None:
        async with self.turn:
            one = self.make()
            try:
                if len(self.heated) >= self.want():
                    return  # people came while this one waited for its turn
                await one.start()
                self.heated.append(one)
            except Exception:
                self.failures += 1
                log.exception("a kernel could not be heated")
                return
            finally:
                self.coming -= 1
            assert one.work is not None
            await one.work
            self.failures = self.failures + 1 if one.failed else 0
            if one.failed and one in self.heated:  # nobody is to be handed half a page
                self.heated.remove(one)
                await one.stop()
                self.fill()
