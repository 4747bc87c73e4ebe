"""Reads back what really lies in a KV pool."""

from __future__ import annotations

from typing import Any

from kvlab.engine.events import KvWritten
from kvlab.runtime.kv_cache import KVCache


class CacheProbe:
    """Checksums and norms of written slots, for the trace's measurements."""

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache

    def look(self, event: KvWritten) -> dict[str, Any]:
        """`checksum` (CRC-32 of the bytes of all layers, K and V, as 8 hex digits) of the block, and
        the Euclidean norms of the written slots' K and V, one number a layer."""
        count = event.last - event.first + 1
        values = self._cache.block(event.block)[:, :, event.slot : event.slot + count].float()
        norms = values.square().sum(dim=(2, 3, 4)).sqrt().cpu()
        return {
            "block": event.block,
            "checksum": f"{self._cache.checksum(event.block, event.slot + count):08x}",
            "k_norm": [round(float(x), 6) for x in norms[:, 0]],
            "v_norm": [round(float(x), 6) for x in norms[:, 1]],
        }
