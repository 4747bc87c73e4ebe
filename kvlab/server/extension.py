"""The dashboard inside a Jupyter server: under a Hub's login, or on Binder.

`kvlab app` is a Voilà of its own. Under JupyterHub each person gets a Jupyter server, and Voilà is
an extension of that. Such a server can do far more than show a page: it runs code, lists files,
opens terminals. So there are two ways to set one up. Closed, the default: the addresses of
`kvlab app` with its limits (handlers.py), and every other one is refused, whoever asks. Open: with
JupyterLab on the notebooks as well, for servers that are walled off from each other, in a container
or an account each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvlab.server.server import EXTENSIONS, ROOT, DashboardSettings, _config, furnish

PAGE = ROOT / "notebooks" / "dashboard.ipynb"

SETTINGS = DashboardSettings(PAGE, seats=3, pages=3, abandoned_seconds=90, idle_seconds=1_800)
"""One person's server: three pages at a time, and no kernel before it is asked for."""

SHARED = ("VoilaConfiguration", "VoilaExecutor", "KernelManager")
"""What holds for the page whether `kvlab app` serves it or this."""

MESSAGES = (
    "comm_open",
    "comm_close",
    "comm_msg",
    "comm_info_request",
    "kernel_info_request",
    "shutdown_request",
)
"""What may be said to a kernel, whatever handler it comes through: none of it is code."""

OTHERS = (
    "jupyterlab",
    "jupyter_lsp",
    "jupyter_server_terminals",
    "notebook_shim",
    "voila.server_extension",
)
"""Extensions that an installation of the lab switches on and a closed server goes without."""


def configure(config: Any, notebooks: bool = False, idle_server_seconds: int = 1_800) -> None:
    """Fill in a Jupyter server's configuration, `c` in a jupyter_server_config.py.

    `notebooks`: open, see above. `idle_server_seconds`: a server without kernels and requests
    ends after this time. Whoever starts the server puts `assets` on its JUPYTER_PATH and the
    checkout on its PYTHONPATH: Jupyter settles its paths before it reads a configuration.
    """
    page = _config(SETTINGS, PAGE, 0)
    for name in SHARED:
        config[name].merge(page[name])
    config.ServerApp.shutdown_no_activity_timeout = idle_server_seconds
    # Left out, Voilà would ask another machine for MathJax, which nothing on the page needs.
    config.ServerApp.tornado_settings = {"mathjax_url": None, "mathjax_config": None}
    if notebooks:
        config.MappingKernelManager.merge(page.MappingKernelManager)
        config.ServerApp.jpserver_extensions = {"voila.server_extension": True}
        return
    config.KernelRestarter.merge(page.KernelRestarter)
    config.MappingKernelManager.allowed_message_types = list(MESSAGES)
    config.ServerApp.root_dir = str(PAGE.parent)
    config.ServerApp.default_url = "/"
    config.ServerApp.max_body_size = 64 * 1024
    config.ServerApp.jpserver_extensions = {__name__: True, **dict.fromkeys(OTHERS, False)}
    for name in ("headers", "websocket_max_message_size"):
        config.ServerApp.tornado_settings[name] = page.Voila.tornado_settings[name]


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """Jupyter's hook: which module to load."""
    return [{"module": __name__}]


def _load_jupyter_server_extension(server: Any) -> None:
    """Jupyter's hook: put the page into the server, and close everything else."""
    from kvlab.server.handlers import Login, routes

    host = Host(server)
    base_url = host.base_url.rstrip("/")
    who = [
        (base_url + path, *rest) for path, *rest in server.identity_provider.get_handlers()
    ]  # the Hub's login comes back by these
    page = [rule for rule in routes(host, EXTENSIONS) if rule[1] is not Login]
    server.web_app.add_handlers(".*$", who + page)
    # In front of all that Jupyter's own parts have put there: the last of ours refuses.
    rules = server.web_app.default_router.rules
    rules.insert(0, rules.pop(-2))


class Host:
    """What handlers.py and pool.py need of a Voilà, from a Jupyter server."""

    def __init__(self, server: Any) -> None:
        from tornado.ioloop import PeriodicCallback
        from voila.configuration import VoilaConfiguration
        from voila.paths import collect_static_paths, collect_template_paths
        from voila.utils import get_voila_labextensions_path

        self.app = server.web_app
        self.config = server.config
        self.log = server.log
        self.base_url = self.server_url = self.app.settings["base_url"]
        self.config_manager = server.config_manager
        self.contents_manager = server.contents_manager
        self.kernel_manager = server.kernel_manager
        self.kernel_spec_manager = server.kernel_spec_manager
        self.voila_configuration = VoilaConfiguration(parent=server)
        template = self.voila_configuration.template
        self.template_paths = collect_template_paths(["voila", "nbconvert"], template)
        self.static_paths = collect_static_paths(["voila", "nbconvert"], template)
        self.labextensions_path = get_voila_labextensions_path()
        room, _ = furnish(self, replace(SETTINGS, cull_connected=True))
        self.sweep = PeriodicCallback(room.sweep, 1000 * SETTINGS.cull_every_seconds)
        self.sweep.start()
