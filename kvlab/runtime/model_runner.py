"""Runs a model on the engine's batches: packs the rows, feeds the paged cache, selects tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from kvlab.engine.cost_model import CostModel
from kvlab.engine.request import Batch, Sampled, Sampling, ScheduledRequest
from kvlab.engine.runner import Pairs, TextStream
from kvlab.errors import BadInput
from kvlab.models.loading import LoadedModel
from kvlab.runtime.attention import choose_attention
from kvlab.runtime.calibrate import measure_costs
from kvlab.runtime.clock import StepClock
from kvlab.runtime.cuda import choose_decode_steps
from kvlab.runtime.host_blocks import HostBlocks
from kvlab.runtime.kv_cache import KVCache
from kvlab.runtime.overwritten import Overwritten
from kvlab.runtime.packed import PackedDecoder, why_not_packed
from kvlab.runtime.sampler import logprob, select
from kvlab.runtime.to_device import on_device, to_device, to_host
from kvlab.runtime.transfer import Transfer


class ModelRunner:
    """A loaded model with its two KV pools: `cache` on the device, `host` in CPU memory.

    The host pool is pinned on CUDA. On the CPU both are real, separate allocations.
    `keeps_overwritten` remembers what a batch wrote over, for `copy_out(before_last_write=True)`.
    `attention` names a backend (None: what suits), `cuda_graphs` False runs decode steps as plain
    launches; `attention.why`, `decode_steps.why_not` and `why_not_packed` say what came of it.
    `clock` splits the seconds of a step, for whoever starts and stops it.
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
        config, device = loaded.config, loaded.device
        self.loaded = loaded
        self.vocab_size = config.vocab_size
        self.context = config.max_positions
        self.eos_ids = frozenset(config.eos_ids)
        self.clock = StepClock(self._finish)
        self.why_not_packed = why_not_packed(loaded.model)
        self.decoder = loaded.model if self.why_not_packed else PackedDecoder.of(loaded.model)
        pools: dict[str, Any] = {
            "layers": config.num_layers,
            "block_size": block_size,
            "kv_heads": config.num_kv_heads,
            "head_dim": config.head_dim,
            "dtype": loaded.dtype,
        }
        self.cache = KVCache(num_blocks=num_blocks, device=device, **pools)
        self.host: KVCache = (
            HostBlocks(num_blocks=host_blocks, pinned=True, **pools)
            if device.type == "cuda"
            else KVCache(num_blocks=host_blocks, device=device, **pools)
        )
        self._keeps_overwritten = keeps_overwritten
        self._overwritten: Overwritten | None = None
        with on_device(device):
            self._transfer = Transfer(self.cache, self.host)
            self.attention = choose_attention(self.cache, config.num_heads, attention)
            self.decode_steps = choose_decode_steps(
                loaded.model,
                self.cache,
                self.attention,
                False if keeps_overwritten else cuda_graphs,
            )

    def _finish(self) -> None:
        """Wait until the device has done all that it was given, on every stream."""
        if self.loaded.device.type == "cuda":
            torch.cuda.synchronize(self.loaded.device)

    @torch.inference_mode()
    def warm_up(self, rows: int) -> None:
        """All that happens once, before a step is timed: weights are read from their file, kernels
        compiled, and the graphs of decode steps with up to `rows` requests captured.

        No KV of this runner is touched. A pass that fails here will fail in the run, and say so there.
        """
        with on_device(self.loaded.device), suppress(RuntimeError, BadInput):
            scratch = self.scratch(num_blocks=3, host_blocks=1)  # three tokens, if blocks hold one
            for tokens, start in (((0, 0), 0), ((0,), min(2, self.context - 1))):
                batch = [ScheduledRequest("warm up", tokens, start, (0, 1, 2), (Sampling(),))]
                scratch.execute(batch)
            scratch.copy_out([(0, 0)])
            scratch.copy_in([(0, 1)])
            self.decode_steps.prepare(rows)
            self._finish()

    @torch.inference_mode()
    def execute(self, batch: Batch) -> list[Sampled]:
        """One pass of the model over all rows of the batch; then the tokens it asks for."""
        with self.clock.work(), on_device(self.loaded.device):
            return self._execute(batch)

    def _execute(self, batch: Batch) -> list[Sampled]:
        self._transfer.settle(block for scheduled in batch for block in scheduled.table)
        if decoded := self.decode_steps.run(batch):
            return self._select(batch, decoded.logits, decoded.greedy)
        device = self.loaded.device
        layout = self.attention.layout(batch)
        ids = to_device([t for s in batch for t in s.tokens], device)
        if self._keeps_overwritten:
            with self.clock.aside():
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
        """A token for each sampling of each row. What the CPU has to look at comes from the device in
        one piece: the step waits for it once."""
        looked = [
            row
            for row, scheduled in enumerate(batch)
            if any(sampling.temperature or sampling.logprobs for sampling in scheduled.sampling)
        ]
        if looked:
            rows = logits.index_select(0, to_device(looked, logits.device))
            of = dict(zip(looked, to_host(rows), strict=True))
        best: list[int] = greedy.tolist()  # this waits
        choices: list[Sampled] = []
        for row, scheduled in enumerate(batch):
            for sampling in scheduled.sampling:
                token = best[row]
                if sampling.temperature:
                    token = select(of[row], sampling, scheduled.end)
                score = logprob(of[row], token) if sampling.logprobs else None
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
        with self.clock.aside():
            return measure_costs(self)

    def fingerprints(self, blocks: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
        with self.clock.aside():
            self._transfer.settle(block for block, _ in blocks)
            return [self.cache.fingerprint(block, length) for block, length in blocks]

    def copy_out(self, pairs: Pairs, *, before_last_write: bool = False) -> None:
        with self.clock.work():
            self._transfer.copy_out(pairs)
        if before_last_write and self._overwritten is not None:
            with self.clock.aside():
                self._transfer.finish()
                self._overwritten.put_back(self.host, pairs)

    def copy_in(self, pairs: Pairs) -> None:
        with self.clock.work():
            self._transfer.copy_in(pairs)

    def settle(self, blocks: Iterable[int]) -> None:
        """For readers of `cache` between steps: what was copied into these blocks is there. `execute`,
        `fingerprints` and the copies see to it themselves."""
        self._transfer.settle(blocks)

    def copy_block(self, source: int, target: int) -> None:
        with self.clock.work():
            self._transfer.copy_block(source, target)

    def text_stream(self, stop: Sequence[str]) -> TextStream:
        return self.loaded.text_stream(stop)
