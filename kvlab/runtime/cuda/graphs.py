"""Decode steps as CUDA graphs: one launch replays all kernels of a step.

A graph is fixed: the same kernels on the same addresses. So a batch is padded to the next of a few
sizes, and what changes from step to step (tokens, positions, slots, block tables) lies in buffers
that are filled before each replay. A padding row has no slot and length 0: it touches no KV.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kvlab.engine.request import Batch
from kvlab.models.llama import Llama
from kvlab.runtime.attention.launch import Decoding, first_line
from kvlab.runtime.attention.paged import slot_of
from kvlab.runtime.attention.triton_paged import TritonAttention, joined_tables
from kvlab.runtime.cuda.budget import MOST_TABLE_ENTRIES, SIZES
from kvlab.runtime.cuda.fused import FusedDecoder, Rows
from kvlab.runtime.kv_cache import KVCache

WARM_UPS = 2  # a kernel is compiled, and libraries make their workspaces, outside of a capture


@dataclass(frozen=True, slots=True)
class Decoded:
    """Logits [N, vocab] and the highest logit's token, int64 [N], of a batch's rows.

    Both are overwritten by the next step.
    """

    logits: Tensor
    greedy: Tensor


class Inputs:
    """What a step's kernels read, in one buffer, sent with one copy from pinned memory.

    The tables come last and one after the other, so that what is sent grows with the blocks in use.
    """

    FIELDS = ("ids", "positions", "slot_mapping", "firsts", "lengths")
    PADDING = (0, 0, -1, 0, 0)

    def __init__(self, rows: int, table_entries: int, device: torch.device) -> None:
        self._header = 8 * len(self.FIELDS) * rows
        size = self._header + 4 * table_entries
        cuda = device.type == "cuda"
        self._here = torch.zeros(size, dtype=torch.uint8, pin_memory=cuda)
        self._there = torch.zeros(size, dtype=torch.uint8, device=device)
        self._sent = torch.cuda.Event() if cuda else None
        self._numbers = self._here[: self._header].view(torch.int64).view(len(self.FIELDS), rows)
        self._tables = self._here[self._header :].view(torch.int32)
        on_device = self._there[: self._header].view(torch.int64).view(len(self.FIELDS), rows)
        self.fields = dict(zip(self.FIELDS, on_device, strict=True))
        self.tables = self._there[self._header :].view(torch.int32)
        self.rows = torch.arange(rows, device=device)

    def fill(self, batch: Batch, size: int, block_size: int) -> bool:
        """The batch's rows and padding up to `size`. False: the tables are too long together."""
        tables, firsts = joined_tables(batch, block_size)
        if len(tables) > len(self._tables):
            return False
        if self._sent is not None:
            self._sent.synchronize()  # the copy before has left the pinned buffer: long ago
        columns = [
            (s.tokens[0], s.start, slot_of(s, s.start, block_size), first, s.end)
            for s, first in zip(batch, firsts, strict=True)
        ]
        columns += [self.PADDING] * (size - len(columns))
        self._numbers[:, :size] = torch.tensor(columns).T
        self._tables[: len(tables)] = torch.tensor(tables, dtype=torch.int32)
        used = self._header + 4 * len(tables)
        self._there[:used].copy_(self._here[:used], non_blocking=True)
        if self._sent is not None:
            self._sent.record()
        return True


@dataclass(frozen=True, slots=True)
class Captured:
    """A step of one size. `decoding` is kept because the graph writes into its memory."""

    replay: Callable[[], object]
    decoded: Decoded
    decoding: Decoding


class DecodeGraphs:
    """Graphs of one model and pool, each captured when its size is first needed.

    `why_not` says why there are none any more, once a capture has failed: steps then run as plain
    launches. On the CPU (Triton's interpreter, for tests) the same kernels run uncaptured.
    """

    def __init__(self, model: Llama, cache: KVCache, attention: TritonAttention) -> None:
        self.why_not = ""
        self.captured: list[int] = []
        self._model = model
        self._attention = attention
        self._block_size = cache.block_size
        self._longest = min(model.config.max_positions, cache.num_blocks * cache.block_size)
        self._cache = cache
        self._fused: FusedDecoder | None = None  # joins the weights, so not before it is needed
        device = cache.data.device
        blocks = -(-self._longest // cache.block_size)
        self._inputs = Inputs(SIZES[-1], min(SIZES[-1] * blocks, MOST_TABLE_ENTRIES), device)
        cuda = device.type == "cuda"
        self._memory = torch.cuda.graph_pool_handle() if cuda else None
        # One for all captures: each stream has a workspace of cuBLAS for itself. torch's own would be
        # the process's, on the device of its first capture.
        self._side = torch.cuda.Stream(device) if cuda else None
        self._steps: dict[int, Captured] = {}

    @torch.inference_mode()
    def prepare(self, rows: int) -> None:
        """Capture the sizes of batches of up to `rows` requests, over padding alone."""
        for below, size in zip((0, *SIZES), SIZES, strict=False):
            if below < rows and not self.why_not and self._inputs.fill([], size, self._block_size):
                self._step(size)

    @torch.inference_mode()
    def run(self, batch: Batch) -> Decoded | None:
        """Write the KV of a batch whose requests all decode, and compute its logits.

        None: not such a batch, or one that has to run as plain launches.
        """
        if self.why_not or len(batch) > SIZES[-1] or self._watched():
            return None
        if any(len(scheduled.tokens) != 1 for scheduled in batch):
            return None
        count = len(batch)
        size = next(size for size in SIZES if size >= count)
        if not self._inputs.fill(batch, size, self._block_size):
            return None
        step = self._step(size)
        if step is None:
            return None
        step.replay()
        return Decoded(step.decoded.logits[:count], step.decoded.greedy[:count])

    def _step(self, size: int) -> Captured | None:
        """The step of this size, captured if it has not been; None where that fails, and `why_not`
        says why from then on."""
        if size not in self._steps:
            try:
                self._steps[size] = self._capture(size)
            except Exception as error:  # whatever the compiler, the driver or a library raised
                self.why_not = f"the capture of {size} rows failed: {first_line(error)}"
        return self._steps.get(size)

    def _watched(self) -> bool:
        """A hook is to see every pass of the model, which a replay does not go through."""
        modules = (self._model, self._model.lm_head)
        return any(module._forward_hooks or module._forward_pre_hooks for module in modules)

    def _capture(self, size: int) -> Captured:
        fields = {name: values[:size] for name, values in self._inputs.fields.items()}
        rows = Rows(fields["ids"], fields["positions"], fields["slot_mapping"])
        decoding = self._attention.decoding(
            self._inputs.rows[:size],
            self._inputs.tables,
            fields["firsts"],
            fields["lengths"],
            longest=self._longest,
        )
        if self._fused is None:
            self._fused = FusedDecoder(self._model, self._cache)
        fused = self._fused

        def step() -> Decoded:
            logits = fused.logits(rows, decoding)
            return Decoded(logits, logits.argmax(-1))

        if self._side is None:
            return uncaptured(step, decoding)
        # Warm up on a side stream, as a capture wants it. Each pass writes the same KV again.
        side = self._side
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory, stream=side):
            decoded = step()
        self.captured.append(size)
        return Captured(graph.replay, decoded, decoding)


def uncaptured(step: Callable[[], Decoded], decoding: Decoding) -> Captured:
    """For the interpreter: what would be captured, run each time."""
    decoded = step()

    def replay() -> None:
        new = step()
        decoded.logits.copy_(new.logits)
        decoded.greedy.copy_(new.greedy)

    return Captured(replay, decoded, decoding)
