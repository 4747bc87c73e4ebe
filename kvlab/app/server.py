"""The dashboard's server: Voilà on one notebook, with nothing else of the machine in sight."""

from __future__ import annotations

import logging
import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvlab.app import address
from kvlab.errors import BadInput

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT / "assets"
FIRST_PORT = 8866

EXTENSIONS = [
    "@jupyter-widgets/jupyterlab-manager",
    "@voila-dashboards/widgets-manager8",
    "anywidget",
    "jupyterlab-plotly",
]

CONTENT_POLICY = "; ".join(
    [
        "default-src 'self'",
        # Widgets load their modules from blobs; Jupyter's validators and plotly build functions.
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self' data: blob:",
        "worker-src 'self' blob:",
        "frame-ancestors 'self'",
        "form-action 'self'",
        "base-uri 'self'",
        "object-src 'none'",
    ]
)
"""The browser itself refuses what the page might ask of other machines."""


@dataclass(frozen=True)
class DashboardSettings:
    """How the dashboard is served. Everything that a visitor could lean on is decided here."""

    notebook: Path
    port: int | None = None
    """None: the first free one from FIRST_PORT on."""
    open_browser: bool = True
    verbose: bool = False
    idle_seconds: int = 600
    """A kernel that no page is connected to ends after this time."""
    cull_every_seconds: int = 30
    cull_connected: bool = False
    """Whether an idle kernel ends although its page is still open."""


def serve_dashboard(settings: DashboardSettings) -> None:
    """Serve until Ctrl-C or a termination signal; then every kernel has ended. Raises BadInput
    for a port that is taken or a notebook that is not there."""
    notebook = settings.notebook.absolute()
    if not notebook.is_file():
        raise BadInput(f"{notebook}: there is no such notebook to serve")
    sockets = address.listen(settings.port, FIRST_PORT)
    port = address.number(sockets)
    # Read by Jupyter when it looks for templates; ours lie in the checkout, not in the environment.
    os.environ["JUPYTER_PATH"] = os.pathsep.join(
        filter(None, [str(ASSETS), os.environ.get("JUPYTER_PATH")])
    )
    address.make_importable(str(ROOT))
    if not settings.verbose:
        logging.getLogger("tornado").setLevel(logging.ERROR)  # refused requests, ping settings
    # The one instance: Voilà's parts find their logger by it.
    server = _server_class().instance(config=_config(settings, notebook, port))
    server.sockets = sockets
    server.when_ready = lambda: address.announce(
        "the lab is", f"http://{address.HOST}:{port}/", settings.open_browser
    )
    # Not from the command line, which is ours.
    server.initialize(argv=[])
    server.start()


def _config(settings: DashboardSettings, notebook: Path, port: int) -> Any:
    from traitlets.config import Config

    return Config(
        {
            "Voila": {
                "ip": address.HOST,
                "port": port,
                "notebook_path": str(notebook),
                "root_dir": str(notebook.parent),
                "open_browser": False,
                # A voila.json of the machine or of the working folder could undo all of this.
                "config_file_paths": [],
                "log_level": logging.INFO if settings.verbose else logging.ERROR,
                "tornado_settings": {
                    # Answer to this machine's own names only: a page elsewhere whose name is
                    # made to point here is refused.
                    "allow_remote_access": False,
                    "local_hostnames": ["localhost", address.HOST],
                    "headers": {
                        "Content-Security-Policy": CONTENT_POLICY,
                        "X-Content-Type-Options": "nosniff",
                        "Referrer-Policy": "no-referrer",
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
            # Also what keeps ipykernel from warning about the lack of it in our terminal.
            "KernelManager": {"transport_encryption": "auto"},
        }
    )


def _server_class() -> Any:
    """Our Voilà. Built when it is needed: importing Voilà takes a second."""
    from voila.app import Voila
    from voila.shutdown_kernel_handler import VoilaShutdownKernelHandler

    class ShutdownHandler(VoilaShutdownKernelHandler):
        """Ends a page's kernel when the page is closed.

        The page cannot send the cross-site token that Voilà asks for, so that every closed page
        left its kernel behind. The kernel's id, which only its page knows, is proof enough.
        """

        def check_xsrf_cookie(self) -> None:
            return None

    class Dashboard(Voila):
        """Voilà on a socket of ours, ended by any of the signals that mean it."""

        sockets: list[socket.socket]
        when_ready: Any

        def init_handlers(self) -> Any:
            return [
                (rule[0], ShutdownHandler, *rule[2:])
                if rule[1] is VoilaShutdownKernelHandler
                else rule
                for rule in super().init_handlers()
            ]

        def listen(self) -> None:
            import tornado.ioloop
            from tornado.httpserver import HTTPServer

            HTTPServer(self.app).add_sockets(self.sockets)
            self.ioloop = tornado.ioloop.IOLoop.current()
            for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"):
                if hasattr(signal, name):
                    signal.signal(getattr(signal, name), self._handle_signal_stop)
            self.when_ready()
            try:
                self.ioloop.start()
            finally:
                for one in self.sockets:
                    one.close()
                self.stop()

    return Dashboard
