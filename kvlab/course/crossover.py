"""Where recompute is cheaper than swap, on paper: over the length, the block size and the copies.

With s seconds a token for a swap, a for reading the weights once, and b N + q N^2 for computing N
positions, swap costs more than recompute where s N > max(a, b N) + q N^2. The difference of the two
sides is concave in N, so that these lengths are one stretch. It ends at N = (s - b) / q:

    s = 2 L K D bytes (1 / out + 1 / in) + 2 L c / block size     b = 2 P / (F u)     q = 2 L H D / (F u)

The letters are those of kvlab.engine.cost_model.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvlab.course.cost import source
from kvlab.engine.cost_model import CostModel, Machine, ModelShape
from kvlab.trace.speech import ENGLISH, Speech
from kvlab.trace.table import Table

BLOCK_SIZES = (1, 4, 16, 64, 256)
EXAMPLE = 2_048
"""Tokens for which the copies are counted."""
LONGEST = 65_536
"""Tokens up to which the two methods are compared."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Lengths at which recompute is cheaper, in tokens that fill whole blocks."""

    first: int
    last: int

    def told(self, speech: Speech) -> str:
        """`from 16 to 2,048`."""
        key = "cost.stretch_open" if self.last + 1 > LONGEST else "cost.stretch"
        return speech(key, first=speech.number(self.first), last=speech.number(self.last))


def recompute_is_cheaper(costs: CostModel) -> Stretch | None:
    """The stretch of lengths up to LONGEST; None where swap is cheaper at each of them."""
    size = costs.block_size
    cheaper = [
        blocks * size
        for blocks in range(1, LONGEST // size + 1)
        if costs.recompute_seconds(blocks * size) < costs.swap_seconds(blocks)
    ]
    return Stretch(cheaper[0], cheaper[-1]) if cheaper else None


@dataclass(frozen=True, slots=True)
class Crossovers:
    """For several block sizes, where recompute is cheaper; shows itself in a notebook."""

    shape: ModelShape
    machine: Machine

    def costs(self, block_size: int, large: bool = False) -> CostModel:
        """A copy for each block, layer and way; with `large` one copy each way."""
        copies = 0 if large else self.shape.layers
        return CostModel(self.shape, self.machine, block_size, "on paper", copies)

    def copies(self, block_size: int, large: bool = False) -> int:
        """Copies that a swap of EXAMPLE tokens takes, out and back."""
        costs = self.costs(block_size, large)
        return costs.copies(costs.blocks_for(EXAMPLE))

    def table(self, speech: Speech = ENGLISH) -> Table:
        """One row a block size, and one for a swap in one large copy each way."""
        n, tokens = speech.number, speech.number(EXAMPLE)
        ways = [(speech.count(size, "token"), size, False) for size in BLOCK_SIZES]
        ways.append((speech("cost.one_copy"), 16, True))
        rows = []
        for name, size, large in ways:
            found = recompute_is_cheaper(self.costs(size, large))
            cheaper = found.told(speech) if found else speech("cost.nowhere")
            rows.append((name, n(self.copies(size, large)), cheaper))
        return Table(
            speech("cost.table", model=self.shape.name, machine=self.machine.name),
            (
                speech("cost.head_block"),
                speech("cost.head_copies", tokens=tokens),
                speech("cost.head_cheaper"),
            ),
            tuple(rows),
            speech(
                "cost.table_note",
                tokens=n(LONGEST),
                copy=n(self.machine.copy_seconds * 1e6, ",.0f"),
                source=source(self.machine.source, speech),
            ),
        )

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        return self.table()._repr_mimebundle_()
