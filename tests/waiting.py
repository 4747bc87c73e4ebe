"""Waiting for what happens outside the test, for as long as a busy machine may take."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE = 60
"""Seconds. Not what anything may take: only when to give up."""


def until(happens: Callable[[], Any], page: Any = None) -> Any:
    """What `happens` returns as soon as that is true of it. A Playwright `page` goes on meanwhile."""
    end = time.monotonic() + PATIENCE
    while not (found := happens()):
        assert time.monotonic() < end, f"not within {PATIENCE} s: {happens}"
        if page is None:
            time.sleep(0.05)
        else:
            page.wait_for_timeout(50)
    return found
