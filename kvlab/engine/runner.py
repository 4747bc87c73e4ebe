"""What the engine asks of whoever stores KV and runs the model. No tensor crosses this line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kvlab.engine.cost_model import CostModel
from kvlab.engine.request import Batch, Sampled

Pairs = Sequence[tuple[int, int]]
"""(from block, to block) for each block of a copy."""


class CopyError(RuntimeError):
    """A copy between the pools broke off."""


class BlockMover(Protocol):
    """Copies whole blocks, every layer, K and V. All may raise CopyError."""

    def copy_out(self, pairs: Pairs, *, before_last_write: bool = False) -> None:
        """GPU block to host block. On return, later writes to the GPU block cannot harm the copy.

        `before_last_write` (unsafe, for the lesson): store what was there before the last executed
        batch wrote, as a copy that did not wait for the write would.
        """
        ...

    def copy_in(self, pairs: Pairs) -> None:
        """Host block to GPU block. On return, later reads of the GPU block see the values."""
        ...

    def copy_block(self, source: int, target: int) -> None:
        """GPU block to GPU block (copy on write)."""
        ...


class TextStream(Protocol):
    """Turns tokens into text as they come; the joined pieces are the whole text."""

    def push(self, token: int) -> str:
        """The text that is certain after this token; characters still incomplete are held back."""
        ...

    def flush(self) -> str:
        """What was held back, when no token follows."""
        ...

    @property
    def stopped(self) -> bool:
        """A stop string was found: the text ends before it."""
        ...


class Runner(BlockMover, Protocol):
    """A model with its KV cache."""

    vocab_size: int
    context: int  # most positions that a history can have
    eos_ids: frozenset[int]

    def costs(self) -> CostModel:
        """Rates for method `auto`; measuring them may take a moment."""
        ...

    def fingerprints(self, blocks: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
        """For each (GPU block, slots in use from its first on) a checksum of each layer's bytes."""
        ...

    def execute(self, batch: Batch) -> Sequence[Sampled]:
        """Process the batch: write its KV, select tokens. One Sampled per entry of each request's
        `sampling`, in the batch's order."""
        ...

    def text_stream(self, stop: Sequence[str]) -> TextStream:
        """A fresh stream for one request's outputs, ended by any of the `stop` strings."""
        ...
