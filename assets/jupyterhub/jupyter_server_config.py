"""One person's Jupyter server, under a Hub or on Binder: kvlab/server/extension.py says what it is.

KVLAB_NOTEBOOKS=1 opens it: JupyterLab and the notebooks beside the page, and with them any code.
"""

import os

from kvlab.server.extension import configure

configure(get_config(), notebooks=os.environ.get("KVLAB_NOTEBOOKS") == "1")  # noqa: F821
