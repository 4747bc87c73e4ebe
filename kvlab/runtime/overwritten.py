"""What a batch wrote over, so that a copy that did not wait for the write can be shown."""

from __future__ import annotations

from torch import Tensor

from kvlab.engine.runner import Pairs
from kvlab.runtime.kv_cache import KVCache


class Overwritten:
    """Values [layers, 2, N, kv_heads, head_dim] that lay in the N slots before a batch wrote them."""

    def __init__(self, cache: KVCache, slot_mapping: Tensor) -> None:
        self._slots = [int(slot) for slot in slot_mapping]
        flat = cache.data.flatten(2, 3)
        self._values = flat.index_select(2, slot_mapping).cpu()

    def put_back(self, host: KVCache, pairs: Pairs) -> None:
        """Give the host blocks of a copy what the copy would have read before the write."""
        stored = dict(pairs)
        for row, slot in enumerate(self._slots):
            block, offset = divmod(slot, host.block_size)
            if block in stored:
                host.data[:, :, stored[block], offset] = self._values[:, :, row]
