"""The lab under a JupyterHub: two people, a page each, and nobody gets further than their own."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import site
import socket
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[2]
HUB_FILES = ROOT / "assets" / "jupyterhub"

pytestmark = [pytest.mark.browser, pytest.mark.full]


@pytest.fixture(scope="module")
def hub_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has JupyterHub on top of what the lab runs on; fetched, nothing else is."""
    if sys.platform == "win32":
        pytest.skip("JupyterHub does not run on Windows")
    folder = tmp_path_factory.mktemp("hub") / "venv"
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    where = "import site; print(site.getsitepackages()[0])"
    packages = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True)
    lab = "\n".join(site.getsitepackages())
    (Path(packages.stdout.strip()) / "lab.pth").write_text(lab + "\n")
    needs = ["-m", "pip", "install", "--quiet", "-r", str(HUB_FILES / "requirements.txt")]
    done = subprocess.run([python, *needs], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"JupyterHub could not be installed: {done.stderr.strip().splitlines()[-1]}")
    return python


@pytest.fixture(scope="module")
def proxy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the Hub's proxy, in the version that the README has."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("the Hub's proxy needs Node and npm")
    named = re.search(r"npm install -g (\S+)", (HUB_FILES / "README.md").read_text())
    assert named
    folder = tmp_path_factory.mktemp("proxy")
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), named[1]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"{named[1]} could not be installed: {done.stderr.strip().splitlines()[-1]}")
    return folder / "node_modules" / ".bin"


@dataclass(frozen=True)
class Hub:
    """A running Hub."""

    url: str
    process: psutil.Process
    log: Path

    def kernels(self) -> list[psutil.Process]:
        """Of all its people."""
        found = []
        for child in self.process.children(recursive=True):
            with contextlib.suppress(psutil.Error):  # one that is ending just now
                if "ipykernel_launcher" in " ".join(child.cmdline()):
                    found.append(child)
        return found


@pytest.fixture(scope="module")
def hub(
    hub_python: Path, proxy_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Hub]:
    """A Hub with the committed configuration; only its ports are others."""
    folder = tmp_path_factory.mktemp("state")
    front, inside, proxy = (f"http://127.0.0.1:{port}" for port in free_ports(3))
    command = [
        *(str(hub_python), "-m", "jupyterhub", "-f", str(HUB_FILES / "jupyterhub_config.py")),
        f"--JupyterHub.bind_url={front}",
        f"--JupyterHub.hub_bind_url={inside}",
        f"--ConfigurableHTTPProxy.api_url={proxy}",
    ]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")},
        "PATH": os.pathsep.join([str(proxy_folder), os.environ["PATH"]]),
        # The lab's packages have put these beside its own Python, not beside the Hub's.
        "JUPYTER_PATH": str(Path(sys.prefix) / "share" / "jupyter"),
    }
    log = folder / "log"
    with log.open("w") as output:
        process = psutil.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        until(lambda: process.poll() is not None or "JupyterHub is now running" in log.read_text())
        assert process.poll() is None, log.read_text()
        yield Hub(front, process, log)
    finally:
        ours = [process, *process.children(recursive=True)]
        process.terminate()  # the Hub ends its proxy and everybody's server
        _, left = psutil.wait_procs(ours, timeout=30)
        for one in left:
            one.kill()


def free_ports(count: int) -> list[int]:
    """Ports that nobody has just now, each another one."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


@dataclass(frozen=True)
class Person:
    """Somebody who has logged in and sees their page."""

    page: Page
    kernel: str
    """The address of the websocket between the page and its kernel."""

    def at(self) -> str:
        """Where the player stands, as it is read."""
        return self.page.locator(".kvlab-player .k-guide").inner_text()

    def step(self) -> None:
        self.page.locator(".kvlab-player [data-control=forward]").click()

    def reaches(self, websocket: str) -> bool:
        """Whether this person's browser gets a connection to the kernel at this address."""
        return bool(
            self.page.evaluate(
                """url => new Promise(done => {
                    const socket = new WebSocket(url, "v1.kernel.websocket.jupyter.org");
                    socket.onopen = () => { socket.close(); done(true); };
                    socket.onerror = () => done(false);
                })""",
                websocket,
            )
        )


@pytest.fixture
def log_in(hub: Hub, new_page: Callable[..., Page]) -> Callable[[str], Person]:
    """Through the Hub's form to the page."""

    def enter(name: str) -> Person:
        page = new_page(viewport={"width": 1280, "height": 1000})
        page.goto(f"{hub.url}/hub/login")
        page.get_by_label("Username").fill(name)
        with page.expect_websocket(lambda one: "/channels" in one.url, timeout=120_000) as socket:
            page.get_by_role("button", name="Sign in").click()
        page.locator(".kvlab-player [data-free]").wait_for(timeout=60_000)
        assert page.url.startswith(f"{hub.url}/user/{name}/")
        return Person(page, socket.value.url)

    return enter


def test_two_people_step_each_on_a_page_of_their_own(
    hub: Hub, log_in: Callable[[str], Person], trouble: Any
):
    ana, ben = log_in("ana"), log_in("ben")
    assert "/user/ana/api/kernels/" in ana.kernel
    assert "/user/ben/api/kernels/" in ben.kernel
    before = ana.at()
    assert ben.at() == before
    ana.step()
    ana.page.wait_for_function(
        "before => document.querySelector('.kvlab-player .k-guide').innerText !== before",
        arg=before,
    )
    assert ben.at() == before, "a step of the one moved the other"
    ben.page.locator(".kvlab-page button", has_text="Run it now").click()
    ben.page.get_by_text("Run of 2").first.wait_for(timeout=120_000)
    assert ana.page.get_by_text("Run of 2").count() == 0
    # The Hub's own page, which waits for the server, breaks off a request when it goes.
    assert all("/hub/api/" in one for one in trouble.failed), trouble
    assert not trouble.outside, trouble
    assert not trouble.console, trouble

    # The other's server, page and kernel; the same requests to the own ones are answered.
    assert ana.reaches(ana.kernel)
    assert not ana.reaches(ben.kernel)
    kernel = re.sub(r"/channels.*", "", ben.kernel.replace("ws://", "http://"))
    for who, status in ((ben, 200), (ana, 403)):
        assert who.page.context.request.get(kernel).status == status
    answer = ana.page.goto(f"{hub.url}/user/ben/")
    assert answer is not None
    assert answer.status == 403
    assert ana.page.locator(".kvlab-player").count() == 0

    # Nor does the one's own server do more than show the page.
    for path in ("lab", "api/contents", "api/kernels", "api/terminals", "voila/tree", "files/x"):
        assert ben.page.context.request.get(f"{hub.url}/user/ben/{path}").status == 404, path

    kernels = hub.kernels()
    ben.page.close(run_before_unload=True)
    _, left = psutil.wait_procs(kernels, timeout=20)
    assert left == [], "a closed page left its kernel behind"
