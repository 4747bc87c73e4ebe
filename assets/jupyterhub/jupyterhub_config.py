"""The lab under a JupyterHub on one machine, to try it out: README.md beside this file.

Two lines are for a trial alone: the dummy login lets anybody in under any name, and the simple
spawner runs everybody's server under one account. A real Hub changes these two; the rest stays.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
c = get_config()  # noqa: F821

c.JupyterHub.bind_url = "http://127.0.0.1:8000"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = str(Path.cwd() / "homes" / "{username}")

c.Spawner.cmd = [sys.executable, "-m", "jupyterhub.singleuser"]
c.Spawner.args = [f"--config={HERE / 'jupyter_server_config.py'}"]
if os.geteuid() == 0:
    c.Spawner.args.append("--allow-root")  # as in a container, whose only account that may be
c.Spawner.environment = {
    # Where the page's template lies, and kvlab itself.
    "JUPYTER_PATH": os.pathsep.join(
        filter(None, [str(ROOT / "assets"), os.environ.get("JUPYTER_PATH")])
    ),
    "PYTHONPATH": str(ROOT),
}
c.Spawner.default_url = "/"
c.Spawner.disable_user_config = True
# A server without a page ends by itself; these bound what a rush can start.
c.JupyterHub.active_server_limit = 30
c.JupyterHub.concurrent_spawn_limit = 5
c.Spawner.start_timeout = 120
c.Spawner.http_timeout = 60
