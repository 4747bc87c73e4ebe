"""JupyterLab on the notebooks' folder, for learners who want to change the code."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kvlab.errors import BadInput
from kvlab.server import address

ROOT = Path(__file__).resolve().parents[2]
FIRST_PORT = 8888


@dataclass(frozen=True)
class LabSettings:
    """How JupyterLab is started."""

    folder: Path
    port: int | None = None
    """None: the first free one from FIRST_PORT on."""
    open_browser: bool = True
    verbose: bool = False


def serve_lab(settings: LabSettings) -> None:
    """Serve until Ctrl-C or a termination signal. The address carries a token: whoever has it
    may run any code here. Raises BadInput for a port that is taken or a missing folder."""
    folder = settings.folder.absolute()
    if not folder.is_dir():
        raise BadInput(f"{folder}: there is no such folder of notebooks")
    # JupyterLab binds by itself: make sure that it will get the port, and let it go again.
    sockets = address.listen(settings.port, FIRST_PORT)
    port = address.number(sockets)
    for one in sockets:
        one.close()
    address.make_importable(str(ROOT))
    # Where JupyterLab finds our defaults: no news, light or dark as the system has it. What a
    # person has set for JupyterLab wins over them.
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(
        filter(None, [os.environ.get("JUPYTER_CONFIG_PATH"), str(ROOT / "assets" / "jupyter")])
    )
    token = secrets.token_urlsafe(24)

    from jupyterlab.labapp import LabApp
    from traitlets.config import Config

    server = LabApp.initialize_server(
        argv=[], config=Config(_config(settings, folder, port, token))
    )
    address.announce(
        "JupyterLab is",
        f"http://{address.HOST}:{port}/lab{start(folder)}?token={token}",
        settings.open_browser,
    )
    server.start()


def hand_out(folder: Path) -> Path:
    """Copy the notebooks that `folder` lacks into it, solutions apart; what is there stays.

    Raises BadInput where it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for notebook in sorted((ROOT / "notebooks").glob("[0-9][0-9]-*.ipynb")):
            if not (folder / notebook.name).exists():
                shutil.copyfile(notebook, folder / notebook.name)
    except OSError as error:
        raise BadInput(f"{folder}: cannot be written ({error.strerror})") from None
    return folder


def start(folder: Path) -> str:
    """The path of the first notebook, which is opened: an empty launcher tells nobody where to
    begin. Empty where there is none."""
    first = min((path.name for path in folder.glob("[0-9][0-9]*.ipynb")), default=None)
    return "" if first is None else f"/tree/{quote(first)}"


def _config(settings: LabSettings, folder: Path, port: int, token: str) -> dict[str, Any]:
    level = logging.INFO if settings.verbose else logging.ERROR
    own = Path(sys.prefix) / "share" / "jupyter" / "lab" / "kvlab-workspaces"
    # Which notebooks were open is remembered apart from a person's other JupyterLabs.
    decided = "JUPYTERLAB_WORKSPACES_DIR" in os.environ or not os.access(sys.prefix, os.W_OK)
    workspaces = {} if decided else {"workspaces_dir": str(own)}
    return {
        "ServerApp": {
            "ip": address.HOST,
            "port": port,
            "port_retries": 0,
            "root_dir": str(folder),
            "open_browser": False,
            "answer_yes": True,  # Ctrl-C ends it without a question
            "allow_root": True,
            "log_level": level,
            # Only for settings of the classic notebook, and prints warnings about them.
            "jpserver_extensions": {"notebook_shim": False},
        },
        "IdentityProvider": {"token": token},
        "KernelManager": {"transport_encryption": "auto"},
        "LabApp": {
            # The lab asks no other machine for anything.
            "news_url": None,
            "check_for_updates_class": "jupyterlab.handlers.announcements.NeverCheckForUpdate",
            "extension_manager": "readonly",
            "log_level": level,
            **workspaces,
        },
    }
