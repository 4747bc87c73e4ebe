"""Runs a model on the engine's batches: packs the rows, feeds the paged cache, selects tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from kvlab.engine.cost_model import CostModel
from kvlab.engine.mover import Pairs, TextStream
from kvlab.engine.request import Batch, Sampled
from kvlab.models.loading import LoadedModel
from kvlab.runtime.attention import choose_attention
from kvlab.runtime.calibrate import measure_costs
from kvlab.runtime.cuda import choose_decode_steps
from kvlab.runtime.host_blocks import HostBlocks
from kvlab.runtime.kv_cache import KVCache
from kvlab.runtime.overwritten import Overwritten
from kvlab.runtime.packed import PackedDecoder, why_not_packed
from kvlab.runtime.sampler import logprob, select
from kvlab.runtime.to_device import to_device
from kvlab.runtime.transfer import Transfer


class ModelRunner:
    """A loaded model with its two KV pools: `cache` on the device, `host` in CPU memory.

    The host pool is pinned on CUDA. On the CPU both are real, separate allocations.
    `keeps_overwritten` remembers what a batch wrote over, for `copy_out(before_last_write=True)`.
    `attention` names a backend (None: what suits), `cuda_graphs` False runs decode steps as plain
    launches; `attention.why`, `decode_steps.why_not` and `why_not_packed` say what came of it.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        num_blocks: int,
        block_size: int,
        host_blocks: int,
        keeps_overwritten: bool = False,
        attention: str | None = None,
        cuda_graphs: bool | None = None,
    ) -> None:
        config = loaded.config
        self.loaded = loaded
        self.vocab_size = config.vocab_size
        self.context = config.max_positions
        self.eos_ids = frozenset(config.eos_ids)
        self.why_not_packed = why_not_packed(loaded.model)
        self.decoder = loaded.model if self.why_not_packed else PackedDecoder.of(loaded.model)
        self.cache = self._pool(num_blocks, block_size, loaded.device)
        self.host = self._host_pool(host_blocks, block_size)
        self._transfer = Transfer(self.cache, self.host)
        self._keeps_overwritten = keeps_overwritten
        self._overwritten: Overwritten | None = None
        self.attention = choose_attention(self.cache, config.num_heads, attention)
        self.decode_steps = choose_decode_steps(
            loaded.model, self.cache, self.attention, False if keeps_overwritten else cuda_graphs
        )

    def _pool(self, num_blocks: int, block_size: int, device: torch.device) -> KVCache:
        config = self.loaded.config
        return KVCache(
            layers=config.num_layers,
            num_blocks=num_blocks,
            block_size=block_size,
            kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            dtype=self.loaded.dtype,
            device=device,
        )

    def _host_pool(self, num_blocks: int, block_size: int) -> KVCache:
        config = self.loaded.config
        if self.loaded.device.type != "cuda":
            return self._pool(num_blocks, block_size, torch.device("cpu"))
        return HostBlocks(
            layers=config.num_layers,
            num_blocks=num_blocks,
            block_size=block_size,
            kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            dtype=self.loaded.dtype,
            pinned=True,
        )

    @torch.inference_mode()
    def execute(self, batch: Batch) -> list[Sampled]:
        """One pass of the model over all rows of the batch; then the tokens it asks for."""
        self._transfer.settle(block for scheduled in batch for block in scheduled.table)
        if decoded := self.decode_steps.run(batch):
            return self._select(batch, decoded.logits, decoded.greedy)
        device = self.loaded.device
        layout = self.attention.layout(batch)
        ids = to_device([t for s in batch for t in s.tokens], device)
        if self._keeps_overwritten:
            self._overwritten = Overwritten(self.cache, layout.slot_mapping)
        positions = to_device([p for s in batch for p in range(s.start, s.end)], device)
        hidden = self.decoder(
            ids, positions, lambda layer, q, k, v: layout.attend(self.cache, layer, q, k, v)
        )
        ends = [end - 1 for end in accumulate(len(scheduled.tokens) for scheduled in batch)]
        return self._sample(batch, hidden, ends)

    def _sample(self, batch: Batch, hidden: Tensor, last_rows: Sequence[int]) -> list[Sampled]:
        """Logits are computed for the rows that select a token, and for no others."""
        rows = [row for row, s in zip(last_rows, batch, strict=True) if s.sampling]
        if not rows:
            return []
        if len(rows) < len(hidden):
            hidden = hidden.index_select(0, to_device(rows, hidden.device))
        logits = self.decoder.logits(hidden)
        # In bfloat16 `max` takes a quarter of `argmax`'s time. Both name the first among equals.
        return self._select([s for s in batch if s.sampling], logits, logits.max(-1).indices)

    def _select(self, batch: Batch, logits: Tensor, greedy: Tensor) -> list[Sampled]:
        """A token for each sampling of each row; greedy ones come from the device in one piece."""
        best: list[int] = greedy.tolist()
        choices: list[Sampled] = []
        for scheduled, of, highest in zip(batch, logits, best, strict=True):
            for sampling in scheduled.sampling:
                token = highest
                if sampling.temperature:
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
        self._transfer.settle(block for block, _ in blocks)
        return [self.cache.fingerprint(block, length) for block, length in blocks]

    def copy_out(self, pairs: Pairs, *, before_last_write: bool = False) -> None:
        self._transfer.copy_out(pairs)
        if before_last_write and self._overwritten is not None:
            self._transfer.finish()
            self._overwritten.put_back(self.host, pairs)

    def copy_in(self, pairs: Pairs) -> None:
        self._transfer.copy_in(pairs)

    def settle(self, blocks: Iterable[int]) -> None:
        """For readers of `cache` between steps: what was copied into these blocks is there. `execute`,
        `fingerprints` and the copies see to it themselves."""
        self._transfer.settle(blocks)

    def copy_block(self, source: int, target: int) -> None:
        self._transfer.copy_block(source, target)

    def text_stream(self, stop: Sequence[str]) -> TextStream:
        return self.loaded.text_stream(stop)
