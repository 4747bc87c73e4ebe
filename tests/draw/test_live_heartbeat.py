"""A kernel that is killed under a real page: the banner comes, and replay goes on."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.browser


def test_a_killed_kernel(serve: Any, page: Any) -> None:
    psutil = pytest.importorskip("psutil")
    served = serve("app")
    page.goto(served.url)
    page.wait_for_selector(".kvlab-player [data-control=forward]", timeout=90_000)
    page.wait_for_timeout(6000)
    assert page.locator(".k-banner").count() == 0
    kernels = [
        process
        for process in psutil.Process(served.process.pid).children(recursive=True)
        if "ipykernel_launcher" in " ".join(process.cmdline())
    ]
    assert kernels
    for kernel in kernels:
        kernel.kill()
    page.wait_for_selector(".k-banner", timeout=20_000)
    player = page.locator(".kvlab-player")
    before = player.locator(".k-where").get_attribute("data-event")
    player.locator("[data-control=forward]").click()
    assert player.locator(".k-where").get_attribute("data-event") == str(int(before) + 1)
