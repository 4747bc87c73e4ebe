"""Coroutines in a thread of their own: Playwright leaves a running loop in the tests' thread."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def run(work: Coroutine[Any, Any, Any], seconds: float = 120) -> Any:
    """Its result; raises what it raises, and TimeoutError."""

    async def bounded() -> Any:
        return await asyncio.wait_for(work, seconds)

    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, bounded()).result()
