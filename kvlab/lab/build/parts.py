"""What an engine that learners build is made of: requests, pools, copies, and what a log sees of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kvlab.engine.block_pool import BlockPool
from kvlab.engine.config import EngineConfig
from kvlab.lab.build.guard import Fault


@dataclass(eq=False)
class Request:
    """A request. `history` is prompt and outputs, `computed` counts its positions with KV, `table` has
    its physical blocks in logical order, `host_table` those in CPU memory while it is swapped."""

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    arrived: int = 0
    priority: int = 0
    history: list[int] = field(default_factory=list)
    computed: int = 0
    table: list[int] = field(default_factory=list)
    host_table: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.history = list(self.prompt)

    @property
    def outputs(self) -> int:
        """Tokens that its user has received."""
        return len(self.history) - len(self.prompt)

    def __repr__(self) -> str:
        return f"{self.id}: history {len(self.history)}, KV {self.computed}, table {self.table}"


class Pool:
    """A pool of blocks: `allocate` takes the front of the free list, `release` joins the back.
    With `last_first`, as in vLLM, the block released last is the next to be handed out."""

    def __init__(self, num_blocks: int, last_first: bool = False) -> None:
        self._blocks = BlockPool(num_blocks, "vllm_v1" if last_first else "head_first")

    @property
    def free(self) -> int:
        return self._blocks.free

    def allocate(self, count: int) -> list[int]:
        return list(self._blocks.allocate(count))

    def release(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            if self._blocks.is_free(block):
                raise Fault(f"P{block} is released, and it is free already")
        self._blocks.release(list(blocks))


@dataclass(eq=False)
class Copy:
    """KV on its way between the pools. `done` once all blocks have arrived."""

    request: Request
    out: bool
    pairs: list[tuple[int, int]]  # (GPU block, host block)
    number: int
    moved: int = 0

    @property
    def done(self) -> bool:
        return self.moved == len(self.pairs)


class Watched(Protocol):
    """An engine, as far as its log looks at it."""

    config: EngineConfig
    num_blocks: int
    block_size: int
    steps: int
    shares: bool
    running: list[Request]
    waiting: list[Request]
    requests: dict[str, Request]
    references: dict[int, int]
    copies: list[Copy]
    batch: dict[str, int]
    preempted: list[str]
    ended: set[str]
    pool: Any
    host: Any

    @property
    def to_come(self) -> bool: ...
    @property
    def has_work(self) -> bool: ...
