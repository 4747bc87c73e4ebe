"""Reads back what really lies in a KV pool, for a trace's measurements."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kvlab.engine.events import Event, Finished, KvWritten, SwapInFinished, SwapOutStarted
from kvlab.runtime.model_runner import ModelRunner


class CacheProbe:
    """Looks at blocks at the moment of an event.

    Every entry has `block` and `checksum` (CRC-32 over all layers, K and V, of the slots in use, as 8
    hex digits). Written KV has `k_norm` and `v_norm` too, the Euclidean norms of the written slots,
    one number a layer; rebuilt KV `max_diff`, the largest difference of K and of V to the values that
    the request had there before. A copy has one entry a block: before it leaves, and when it is back.
    """

    def __init__(self, runner: ModelRunner) -> None:
        """Looking is no part of a step: the runner's clock counts it apart."""
        self._runner = runner
        self._cache = runner.cache
        self._last: dict[str, dict[int, Tensor]] = {}  # values by request and position

    def look(self, event: Event) -> list[dict[str, Any]]:
        """The measurements of an event; none for kinds that move no values."""
        match event:
            case KvWritten():
                with self._runner.clock.aside():
                    return [self._written(event)]
            case SwapOutStarted() | SwapInFinished():
                with self._runner.clock.aside():
                    self._runner.settle(event.blocks)
                    return [
                        {"block": at, "checksum": self._checksum(at, self._used(event.kv, place))}
                        for place, at in enumerate(event.blocks)
                    ]
            case Finished():
                self._last.pop(event.id, None)
        return []

    def _used(self, kv: int, place: int) -> int:
        size = self._cache.block_size
        return min(size, kv - place * size)

    def _checksum(self, block: int, length: int) -> str:
        return f"{self._cache.checksum(block, length):08x}"

    def _written(self, event: KvWritten) -> dict[str, Any]:
        end = event.slot + event.last - event.first + 1
        values = self._cache.block(event.block)[:, :, event.slot : end].float().cpu().clone()
        norms = values.square().sum(dim=(2, 3, 4)).sqrt()
        entry: dict[str, Any] = {
            "block": event.block,
            "checksum": self._checksum(event.block, end),
            "k_norm": [round(float(norm), 6) for norm in norms[:, 0]],
            "v_norm": [round(float(norm), 6) for norm in norms[:, 1]],
        }
        known = self._last.setdefault(event.id, {})
        before = [known.get(position) for position in range(event.first, event.last + 1)]
        if event.why == "rebuilt" and all(value is not None for value in before):
            entry["max_diff"] = largest_differences(values, before)
        for place, position in enumerate(range(event.first, event.last + 1)):
            known[position] = values[:, :, place]
        return entry


def largest_differences(values: Tensor, before: list[Tensor | None]) -> dict[str, float]:
    """Of K and of V, between values [layers, 2, slots, …] and those before, one tensor a slot."""
    largest = {"k": 0.0, "v": 0.0}
    for place, old in enumerate(before):
        if old is not None:
            difference = (values[:, :, place] - old).abs()
            for half, name in enumerate(largest):
                largest[name] = max(largest[name], float(difference[:, half].max()))
    return largest
