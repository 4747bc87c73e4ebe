"""Settings of an engine, checked once when they are made."""

from __future__ import annotations

from dataclasses import dataclass

from kvlab.engine.policies import VictimFunction
from kvlab.errors import BadInput

METHODS = ("recompute", "swap", "auto", "pause_only")
VICTIMS = (
    "newest",
    "oldest",
    "random",
    "lowest_priority",
    "least_computed",
    "most_computed",
    "most_reclaimable",
    "cost_score",
)
FREE_ORDERS = ("head_first", "tail_first")
ALLOCATIONS = ("on_demand", "reserve_max")
ADMISSIONS = ("whole_sequence", "first_chunk")
UNSAFE = ("write_before_copy_out", "reuse_before_copied", "read_before_copy_in")
ENGINE_PRESETS: dict[str, dict[str, str]] = {
    "vllm_v1": {"victim": "newest", "free_order": "vllm_v1", "admission": "whole_sequence"}
}
"""Settings that a scenario's `preset` brings together; a key given beside it wins."""

NO_LIMIT = 1 << 60
MOST_BLOCKS = 1_000_000
MOST_BLOCK_SIZE = 4_096
MOST_SLOTS = 1 << 22
"""Of a pool that is to be shown: whoever replays a run keeps a cell for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What design decision the engine takes where engines differ; the defaults give the figures.

    Counts are blocks or tokens as named; None means no limit. `victim` is a name of VICTIMS or, in
    Python only, a VictimFunction. `free_order` is head_first, tail_first, or vllm_v1 (which the
    preset of that name sets). Raises BadInput, naming the setting, for a value that cannot work.
    """

    num_blocks: int
    block_size: int
    host_blocks: int = 4
    method: str = "recompute"
    victim: str | VictimFunction = "newest"
    victim_seed: int = 0
    free_order: str = "head_first"
    prefix_cache: bool = False
    allocation: str = "on_demand"
    step_tokens: int | None = None
    chunk_tokens: int | None = None
    max_running: int | None = None
    watermark_blocks: int = 0
    admission: str = "whole_sequence"
    copy_blocks_per_step: int | None = None
    async_scheduling: bool = False  # a step is decided before the one before it has ended
    preempt_for_priority: bool = False
    unsafe: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _count("num_blocks", self.num_blocks, 1, MOST_BLOCKS)
        _count("block_size", self.block_size, 1, MOST_BLOCK_SIZE)
        _count("host_blocks", self.host_blocks, 0, MOST_BLOCKS)
        _count("watermark_blocks", self.watermark_blocks, 0, MOST_BLOCKS)
        for name in ("step_tokens", "chunk_tokens", "max_running", "copy_blocks_per_step"):
            if getattr(self, name) is not None:
                _count(name, getattr(self, name), 1, MOST_BLOCKS)
        _choice("method", self.method, METHODS)
        if not callable(self.victim):
            _choice("victim", self.victim, VICTIMS)
        _choice("free_order", self.free_order, (*FREE_ORDERS, "vllm_v1"))
        _choice("allocation", self.allocation, ALLOCATIONS)
        _choice("admission", self.admission, ADMISSIONS)
        for name in ("prefix_cache", "async_scheduling", "preempt_for_priority"):
            if not isinstance(getattr(self, name), bool):
                raise BadInput(f"engine.{name} = {getattr(self, name)!r} must be true or false.")
        for switch in self.unsafe:
            _choice("unsafe", switch, UNSAFE)
        if self.preempt_for_priority and self.method == "pause_only":
            raise BadInput(
                "engine.preempt_for_priority = true cannot go with engine.method = pause_only: a "
                "pause releases nothing, so nobody could make way."
            )
        if self.watermark_blocks >= self.num_blocks:
            raise BadInput(
                f"engine.watermark_blocks = {self.watermark_blocks} must be less than "
                f"engine.num_blocks = {self.num_blocks}, or no second request is ever admitted."
            )

    @property
    def places(self) -> int:
        """Requests that the batch has a place for: each that runs needs a token a step at least."""
        return min(self.max_running or NO_LIMIT, self.step_tokens or NO_LIMIT)

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold `tokens` positions: the ceiling of tokens / block_size."""
        return -(-tokens // self.block_size)


def _count(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadInput(
            f"engine.{name} = {value!r} must be a whole number from {least:,} to {most:,}."
        )


def _choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise BadInput(f"engine.{name} = {value!r} must be one of {', '.join(choices)}.")
