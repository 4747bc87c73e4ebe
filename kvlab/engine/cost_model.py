"""What a resumption would cost by either method, from measured rates."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CostModel:
    """Rates of one machine, model and block size; seconds come out.

    recompute: positions to compute again / tokens_per_second
    swap:      bytes / out_bytes_per_second + bytes / in_bytes_per_second, bytes = blocks x
               bytes_per_block

    Both leave out what they share: the token that comes next is processed either way. The form is
    that of the PagedAttention paper's comparison (Kwon et al. 2023, section 4.5): computation
    against transfer in both directions. `source` says where the rates come from.
    """

    tokens_per_second: float
    bytes_per_block: int
    out_bytes_per_second: float
    in_bytes_per_second: float
    source: str

    def recompute_seconds(self, tokens: int) -> float:
        """Seconds to compute `tokens` positions again."""
        return tokens / self.tokens_per_second

    def swap_seconds(self, blocks: int) -> float:
        """Seconds to store `blocks` blocks and to bring them back."""
        size = blocks * self.bytes_per_block
        return size / self.out_bytes_per_second + size / self.in_bytes_per_second


MODELLED = CostModel(
    tokens_per_second=10_000.0,
    bytes_per_block=16 * 131_072,
    out_bytes_per_second=20e9,
    in_bytes_per_second=20e9,
    source="modelled: 10,000 tokens/s, 16 x 128 KiB a block, 20 GB/s each way; nothing was measured",
)
"""Stands in where there is no model to measure."""
