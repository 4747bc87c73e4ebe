"""The dashboard's server: Voilà on one notebook, with nothing else of the machine in sight."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvlab.errors import BadInput
from kvlab.server import address, open_files
from kvlab.server.frames import MOST_BYTES
from kvlab.server.scratch import PREFIX, scratch_folder

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT / "assets"
FIRST_PORT = 8866
HEAD_SECONDS = 30
STARTING_SECONDS = 5
"""How long the end waits for kernels that are just being started, so that none is left over."""
SPARE = 2
"""Kernels beyond the seats, so that a page that is loaded again finds one."""
LONGEST_SOCKET = 107
"""Bytes of a Unix socket's path, by the size of `sun_path` in Linux."""
SOCKET_NAME = len(
    f"/{PREFIX}12345678/voila_12345678/kernel-01234567-89ab-4def-8123-456789abcdef-ipc-12345"
)
ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(:\d{1,5})?")

OF_A_KERNEL = 16
"""Sockets of ZeroMQ's, at most: between a server, a kernel and its page."""

EXTENSIONS = [
    "@jupyter-widgets/jupyterlab-manager",
    "@voila-dashboards/widgets-manager8",
    "anywidget",
    "jupyterlab-plotly",
]


def content_policy(ancestors: Sequence[str] = ()) -> str:
    """What the browser itself refuses: anything that the page might ask of other machines, and to
    be shown inside pages other than our own and those of `ancestors`, such as a course's."""
    rules = [
        "default-src 'self'",
        # Widgets load their modules from blobs; Jupyter's validators and plotly build functions.
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self' data: blob:",
        "worker-src 'self' blob:",
        " ".join(["frame-ancestors 'self'", *ancestors]),
        "form-action 'self'",
        "base-uri 'self'",
        "object-src 'none'",
    ]
    return "; ".join(rules)


CONTENT_POLICY = content_policy()


@dataclass(frozen=True)
class DashboardSettings:
    """How the dashboard is served. Everything that a visitor could lean on is decided here."""

    notebook: Path
    port: int | None = None
    """None: the first free one from FIRST_PORT on."""
    open_browser: bool = True
    hint: str = ""
    """Said before the address of a server that this machine alone can open."""
    verbose: bool = False
    idle_seconds: int = 600
    """A kernel on which nobody has done anything for this time ends."""
    cull_every_seconds: int = 30
    cull_connected: bool = False
    """Whether an idle kernel ends although its page is still open."""
    abandoned_seconds: int = 600
    """A kernel that no page is connected to ends after this time; a closed page's ends at once."""
    ip: str = address.HOST
    seats: int = 24
    """Pages at a time, each with a kernel of its own."""
    pages: int = 24
    """Of one visitor."""
    heated: int = 0
    """Kernels that render the page before anybody asks; fewer where the seats are taken."""
    token: str = ""
    """What visitors must know; empty: nothing."""
    memory: int = 0
    """Bytes of its own that a kernel may take (RLIMIT_DATA); 0: no bound. Where kernels fork."""
    fork: bool = False
    """Whether kernels are forks of one process that has imported everything (forkserver.py)."""
    frame_ancestors: tuple[str, ...] = ()
    """Origins, such as https://course.example, whose pages may show the lab in a frame."""

    @property
    def public(self) -> bool:
        return not address.is_loopback(self.ip)


def serve_dashboard(settings: DashboardSettings) -> None:
    """Serve until Ctrl-C or a termination signal; then every kernel has ended. Raises BadInput
    for a port or address that cannot be taken or a notebook that is not there."""
    notebook = settings.notebook.absolute()
    if not notebook.is_file():
        raise BadInput(f"{notebook}: there is no such notebook to serve")
    for origin in settings.frame_ancestors:
        if not ORIGIN.fullmatch(origin):
            raise BadInput(f"--frame {origin}: give an origin, such as https://course.example")
    sockets = address.listen(settings.port, FIRST_PORT, settings.ip)
    port = address.number(sockets)
    # Read by Jupyter when it looks for templates; ours lie in the checkout, not in the environment.
    os.environ["JUPYTER_PATH"] = os.pathsep.join(
        filter(None, [str(ASSETS), os.environ.get("JUPYTER_PATH")])
    )
    address.make_importable(str(ROOT))
    logging.setLogRecordFactory(OneLine)
    if not settings.verbose:
        logging.getLogger("tornado").setLevel(logging.ERROR)  # refused requests, ping settings
        logging.getLogger("tornado.access").setLevel(logging.CRITICAL)  # a full room is no error
    open_files.make_room(settings.seats + SPARE)
    # The one instance: Voilà's parts find their logger by it.
    config = _config(settings, notebook, port)
    config.MappingKernelManager.cull_idle_timeout = 0  # room.py knows better who is idle
    config.KernelManager.transport = transport()
    config.Voila.identity_provider_class = "kvlab.server.visitors.Visitors"
    if settings.frame_ancestors:
        # In a frame of another site a browser sends no other cookies, and these over HTTPS alone.
        config.Visitors.cookie_options = {"samesite": "None", "secure": True}
    server = _server_class().instance(config=config)
    server.sockets = sockets
    server.given = settings
    server.when_ready = lambda: announce(settings, port)
    with scratch_folder() as folder:
        server.connection_dir_root = folder
        # Not from the command line, which is ours.
        server.initialize(argv=[])
        server.start()


def transport() -> str:
    """How kernels are spoken to: by sockets that lie beside their connection files, where paths to
    those fit. A TCP port is chosen before the kernel binds it, and another server on this machine
    may choose the same one meanwhile."""
    root = len(os.fsencode(os.path.realpath(tempfile.gettempdir())))
    return "ipc" if sys.platform == "linux" and root + SOCKET_NAME <= LONGEST_SOCKET else "tcp"


def announce(settings: DashboardSettings, port: int) -> None:
    """Where the lab is: two lines, and for a room also the token and a picture to point a phone at."""
    query = f"?token={settings.token}" if settings.token else ""
    first, *others = [f"http://{name}:{port}/" for name in address.names(settings.ip)]
    if not settings.public:
        if settings.hint:
            print(f"kvlab: {settings.hint}")
        address.announce("the lab is", first + query, settings.open_browser)
        return
    for url in others:
        print(f"kvlab: also at {url}{query}")
    if settings.token:
        print(f"kvlab: the token is {settings.token}")
    address.show_code(first + query)
    print(f"kvlab: {settings.seats} seats")
    address.announce("the lab is", first + query, settings.open_browser)


class OneLine(logging.LogRecord):
    """A record whose message stays on its line: what visitors send may be named in one."""

    def getMessage(self) -> str:  # noqa: N802, the base class's name
        return "".join(
            letter if letter.isprintable() else letter.encode("unicode_escape").decode()
            for letter in super().getMessage()
        )


def _config(settings: DashboardSettings, notebook: Path, port: int) -> Any:
    from traitlets.config import Config

    return Config(
        {
            "Voila": {
                "ip": settings.ip,
                "port": port,
                "token": settings.token,
                "notebook_path": str(notebook),
                "root_dir": str(notebook.parent),
                "open_browser": False,
                # A voila.json of the machine or of the working folder could undo all of this.
                "config_file_paths": [],
                "log_level": logging.INFO if settings.verbose else logging.ERROR,
                "tornado_settings": {
                    # Without a token, answer to this machine's own names only: a page elsewhere
                    # whose name is made to point here is refused. With one, such a page has no
                    # cookie, and the lab may have any name.
                    "allow_remote_access": settings.public,
                    "local_hostnames": ["localhost", address.HOST],
                    "websocket_max_message_size": MOST_BYTES,
                    "headers": {
                        "Content-Security-Policy": content_policy(settings.frame_ancestors),
                        "X-Content-Type-Options": "nosniff",
                        # Without a referrer a form would come from the origin "null", and be refused.
                        "Referrer-Policy": "same-origin",
                        "Cross-Origin-Resource-Policy": "same-origin",
                        "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
                        "Server": "kvlab",
                    },
                },
            },
            "VoilaConfiguration": {
                "template": "kvlab",
                "theme": "light",
                "allow_template_override": "NO",
                "allow_theme_override": "NO",
                "strip_sources": True,
                "show_tracebacks": False,
                "file_allowlist": [],
                # Other extensions that a person has for JupyterLab are not for this page.
                "extension_allowlist": EXTENSIONS,
                "resources": {"metadata": {"name": "kvlab"}},
            },
            "VoilaExecutor": {
                "cell_error_instruction": "The terminal that the lab was started in says why."
            },
            "MappingKernelManager": {
                "cull_idle_timeout": settings.idle_seconds,
                "cull_interval": settings.cull_every_seconds,
                "cull_connected": settings.cull_connected,
            },
            # A kernel that was started anew knows nothing of the page: it stays ended, and says so.
            "KernelRestarter": {"restart_limit": 0},
            # Also what keeps ipykernel from warning about the lack of it in our terminal.
            "KernelManager": {"transport_encryption": "auto"},
        }
    )


def furnish(host: Any, settings: DashboardSettings) -> tuple[Any, Any]:
    """The room and the pool of kernels of a Voilà, or of what stands in for one (extension.py)."""
    from kvlab.server.pool import Pool, Rendering, not_of_a_dead_kernel, stop_kernel
    from kvlab.server.room import Room

    room = Room(
        stop=lambda kernel: stop_kernel(host.kernel_manager, kernel),
        seats=settings.seats,
        freed=lambda: pool.fill(),
        pages=settings.pages,
        abandoned_seconds=settings.abandoned_seconds,
        idle_seconds=settings.idle_seconds,
        cull_connected=settings.cull_connected,
    )

    def wanted() -> int:
        if open_files.left() < open_files.OF_A_PAGE:
            return 0
        return min(settings.heated, settings.seats + SPARE - len(room.sessions))

    pool = Pool(lambda: Rendering(host, settings.notebook), wanted)
    host.app.settings.update(room=room, pool=pool)
    host.log.addFilter(not_of_a_dead_kernel)
    return room, pool


def _server_class() -> Any:
    """Our Voilà. Built when it is needed: importing Voilà takes a second."""
    import zmq
    from jupyter_core.utils import run_sync
    from tornado.httpserver import HTTPServer
    from tornado.ioloop import IOLoop, PeriodicCallback
    from voila.app import Voila

    from kvlab.server.forked import Forks, can_fork, use
    from kvlab.server.handlers import routes
    from kvlab.server.pool import stop_kernel

    class Door(HTTPServer):
        """Turns away who comes while there are hardly any files left to open."""

        def handle_stream(self, stream: Any, address: Any) -> None:
            if open_files.left() < open_files.KEPT:
                stream.close()
            else:
                super().handle_stream(stream, address)

    class Dashboard(Voila):
        """Voilà with our own addresses, on a socket of ours, ended by any signal that means it."""

        sockets: list[socket.socket]
        given: DashboardSettings
        when_ready: Any

        def init_handlers(self) -> Any:
            given = self.given
            self.room, self.pool = furnish(self, given)
            sockets = max(1_023, OF_A_KERNEL * (given.seats + SPARE))  # it has 1,023 by itself
            self.kernel_manager.context.set(zmq.MAX_SOCKETS, sockets)
            return routes(self, EXTENSIONS)

        def _handle_signal_stop(self, number: int, frame: Any) -> None:
            if not hasattr(self, "ioloop"):  # it has not begun: there is nothing to stop
                raise SystemExit(0)
            super()._handle_signal_stop(number, frame)

        async def tidy(self) -> None:
            await self.room.sweep()
            self.pool.fill()  # where files had run out

        async def stop_kernels(self) -> None:
            """All of them, at once and without a farewell, those that are just starting included."""
            pending = getattr(self.kernel_manager, "_pending_kernels", {})
            if pending:
                await asyncio.wait(tuple(pending.values()), timeout=STARTING_SECONDS)
            manager = self.kernel_manager
            await asyncio.gather(*(stop_kernel(manager, one) for one in manager.list_kernel_ids()))

        def stop(self) -> None:
            run_sync(self.stop_kernels)()

        def listen(self) -> None:
            server = Door(
                self.app,
                max_body_size=64 * 1024,
                max_header_size=32 * 1024,
                body_timeout=30,
                # Also how long a request's head may take: else who never ends it holds a file.
                idle_connection_timeout=HEAD_SECONDS,
            )
            server.add_sockets(self.sockets)
            self.ioloop = IOLoop.current()
            forks = Forks(self.given.memory, ROOT) if self.given.fork and can_fork() else None
            if forks is not None:
                use(forks)
            sweep = PeriodicCallback(self.tidy, 1000 * self.given.cull_every_seconds)
            sweep.start()
            for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"):
                if hasattr(signal, name):
                    signal.signal(getattr(signal, name), self._handle_signal_stop)
            self.ioloop.add_callback(self.pool.fill)
            self.when_ready()
            try:
                self.ioloop.start()
            finally:
                for one in self.sockets:
                    one.close()
                if forks is not None:
                    forks.close()
                self.stop()

    return Dashboard
