"""Runs a model on the engine's batches: packs the rows, feeds the paged cache, selects tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvlab.engine.cost_model import CostModel
from kvlab.engine.mover import Pairs, TextStream
from kvlab.engine.request import Batch, Sampled
from kvlab.models.loading import LoadedModel
from kvlab.runtime.attention.paged import Attention
from kvlab.runtime.calibrate import measure_costs
from kvlab.runtime.kv_cache import KVCache
from kvlab.runtime.overwritten import Overwritten
from kvlab.runtime.sampler import logprob, select
from kvlab.runtime.transfer import Transfer


class ModelRunner:
    """A loaded model with its two KV pools: `cache` on the device, `host` in CPU memory.

    The host pool is pinned on CUDA. On the CPU both are real, separate allocations.
    `keeps_overwritten` remembers what each batch wrote over, for `copy_out(before_last_write=True)`.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        num_blocks: int,
        block_size: int,
        host_blocks: int,
        keeps_overwritten: bool = False,
    ) -> None:
        config = loaded.config
        self.loaded = loaded
        self.vocab_size = config.vocab_size
        self.context = config.max_positions
        self.eos_ids = frozenset(config.eos_ids)
        self.cache = self._pool(num_blocks, block_size, loaded.device)
        cuda = loaded.device.type == "cuda"
        self.host = self._pool(host_blocks, block_size, torch.device("cpu"), pinned=cuda)
        self._transfer = Transfer(self.cache, self.host)
        self._keeps_overwritten = keeps_overwritten
        self._overwritten: Overwritten | None = None

    def _pool(
        self, num_blocks: int, block_size: int, device: torch.device, pinned: bool = False
    ) -> KVCache:
        config = self.loaded.config
        return KVCache(
            layers=config.num_layers,
            num_blocks=num_blocks,
            block_size=block_size,
            kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            dtype=self.loaded.dtype,
            device=device,
            pinned=pinned and num_blocks > 0,
        )

    @torch.inference_mode()
    def execute(self, batch: Batch) -> list[Sampled]:
        """One pass of the model over all rows of the batch; then the tokens it asks for."""
        device = self.loaded.device
        layout = Attention.layout(batch, self.cache.block_size, device)
        ids = torch.tensor([t for s in batch for t in s.tokens], device=device)
        if self._keeps_overwritten:
            self._overwritten = Overwritten(self.cache, layout.slot_mapping)
        positions = torch.tensor([p for s in batch for p in range(s.start, s.end)], device=device)
        hidden = self.loaded.model(
            ids, positions, lambda layer, q, k, v: layout.attend(self.cache, layer, q, k, v)
        )
        return self._sample(batch, hidden)

    def _sample(self, batch: Batch, hidden: torch.Tensor) -> list[Sampled]:
        """Logits are computed for the rows that select a token, and for no others."""
        last_rows: list[int] = []
        row = 0
        for scheduled in batch:
            row += len(scheduled.tokens)
            if scheduled.sampling:
                last_rows.append(row - 1)
        if not last_rows:
            return []
        logits = self.loaded.model.logits(hidden[last_rows])
        choices: list[Sampled] = []
        for scheduled, of in zip((s for s in batch if s.sampling), logits, strict=True):
            for sampling in scheduled.sampling:
                token = select(of, sampling, scheduled.end)
                score = logprob(of, token) if sampling.logprobs else None
                choices.append(Sampled(scheduled.id, token, score))
        return choices

    def scratch(self, *, num_blocks: int, host_blocks: int) -> ModelRunner:
        """A runner of the same model with pools of its own, for measurements."""
        return ModelRunner(
            self.loaded,
            num_blocks=num_blocks,
            block_size=self.cache.block_size,
            host_blocks=host_blocks,
        )

    def costs(self) -> CostModel:
        return measure_costs(self)

    def fingerprints(self, blocks: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
        return [self.cache.fingerprint(block, length) for block, length in blocks]

    def copy_out(self, pairs: Pairs, *, before_last_write: bool = False) -> None:
        self._transfer.copy_out(pairs)
        if before_last_write and self._overwritten is not None:
            self._overwritten.put_back(self.host, pairs)

    def copy_in(self, pairs: Pairs) -> None:
        self._transfer.copy_in(pairs)

    def copy_block(self, source: int, target: int) -> None:
        self._transfer.copy_block(source, target)

    def text_stream(self, stop: Sequence[str]) -> TextStream:
        return self.loaded.text_stream(stop)
