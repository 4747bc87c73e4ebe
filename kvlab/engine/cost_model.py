"""What a resumption costs by either method: the one model behind `auto`, the cost page, the benches.

    T_recompute(N) = max(weight bytes / memory bandwidth, 2 P N / (F u)) + 2 L H D N^2 / (F u)
    T_swap(N)      = bytes / out + bytes / in + c copies,  bytes = N (2 L K D bytes of a value)

N positions of history; P parameters in the layers, without embedding and head; L layers, H heads,
K KV heads, D head size; F peak operations a second, u the share of it that is reached. Swap moves the
KV twice, out and back in, over a link that may have two speeds; c is the cost of starting a copy.

Where the terms come from:
- That computing is weighed against moving, and that the number of copies, so the block size, decides:
  Kwon et al. 2023, "Efficient Memory Management for Large Language Model Serving with PagedAttention",
  sections 4.5 and 7.3.
- 2 P operations a token and 2 L N H D for attention to N positions: Kaplan et al. 2020, "Scaling Laws
  for Neural Language Models", section 2.1. QK^T and the weighted sum of V are 4 H D operations for
  each pair of positions, and a causal pass over N has N^2 / 2 pairs: 2 L H D N^2 in all.
- The larger of reading and computing: the roofline, Williams et al. 2009. Below the ridge a pass takes
  as long as reading the weights once.

Left out is what both methods share: the token that comes next is processed either way. A recompute
that rides along in a step which waits for memory anyway costs less than this says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the formulas need of a model. `parameters` those of the layers: the embedding is looked up,
    and the head is computed for the last position alone. `bytes` of one value, in weights and in KV.
    """

    name: str
    parameters: float
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    bytes: int
    source: str

    @classmethod
    def of_llama(
        cls,
        name: str,
        *,
        layers: int,
        width: int,
        inner: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        bytes: int,
        source: str,
    ) -> ModelShape:
        """A llama-family decoder: q, k, v, o and the three matrices of the MLP in each layer."""
        attention = 2 * width * heads * head_dim + 2 * width * kv_heads * head_dim
        parameters = layers * (attention + 3 * width * inner)
        return cls(name, parameters, layers, heads, kv_heads, head_dim, bytes, source)

    @property
    def weight_bytes(self) -> float:
        """Bytes that a pass reads at least."""
        return self.parameters * self.bytes

    @property
    def kv_bytes_per_token(self) -> int:
        """K and V of one position over all layers: 2 L K D values."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.bytes

    def linear_operations(self, tokens: int) -> float:
        """Of the products with weights: 2 P N."""
        return 2 * self.parameters * tokens

    def attention_operations(self, tokens: int) -> float:
        """Of causal attention: 2 L H D N^2."""
        return 2 * self.layers * self.heads * self.head_dim * tokens**2


@dataclass(frozen=True, slots=True)
class Machine:
    """What the formulas need of a machine.

    operations         F: operations a second in the model's dtype, dense
    memory             bytes a second between the processor and the memory that holds the weights
    out_link, in_link  bytes a second from the device's memory to the host's, and back
    copy_seconds       c: seconds to start one copy
    reached            u: share of `operations` that products with weights reach
    attention_reached  the same for attention, where it is known to be another; None: `reached`
    """

    name: str
    operations: float
    memory: float
    out_link: float
    in_link: float
    copy_seconds: float
    source: str
    reached: float = 1.0
    attention_reached: float | None = None


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds for one model on one machine with blocks of `block_size` tokens.

    `copies_per_block` says how a swap is done: 0, one copy each way, whatever the blocks; n, so many
    copies for each block and way (the layers, for a copy per block and layer). `source` says where
    the rates come from.
    """

    shape: ModelShape
    machine: Machine
    block_size: int
    source: str
    copies_per_block: int = 0

    def recompute_seconds(self, tokens: int, found: int = 0) -> float:
        """Seconds to compute the KV of `tokens` positions again in one pass: T_recompute. The first
        `found` of them have theirs (in a prefix cache): they are read by attention alone.
        """
        shape, machine = self.shape, self.machine
        reached = machine.operations * machine.reached
        attention = machine.operations * (machine.attention_reached or machine.reached)
        pass_over_weights = max(
            shape.weight_bytes / machine.memory, shape.linear_operations(tokens - found) / reached
        )
        pairs = shape.attention_operations(tokens) - shape.attention_operations(found)
        return pass_over_weights + pairs / attention

    def swap_seconds(self, blocks: int) -> float:
        """Seconds to store `blocks` blocks and to bring them back: T_swap. Whole blocks move, so N is
        their number of slots."""
        size, machine = blocks * self.bytes_per_block, self.machine
        moving = size / machine.out_link + size / machine.in_link
        return moving + machine.copy_seconds * self.copies(blocks)

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold `tokens` positions."""
        return -(-tokens // self.block_size)

    def copies(self, blocks: int) -> int:
        """Copies that moving `blocks` blocks out and back takes."""
        return 2 * (self.copies_per_block * blocks if self.copies_per_block else 1)

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block over all layers, K and V."""
        return self.block_size * self.shape.kv_bytes_per_token

    @property
    def tokens_per_second(self) -> float:
        """Positions that a pass computes a second where it is bound by computing, attention left
        out."""
        return self.machine.operations * self.machine.reached / (2 * self.shape.parameters)

    def as_json(self) -> dict[str, Any]:
        """The rates, each under its unit, and where they are from."""
        machine = self.machine
        reached = machine.operations * machine.reached
        attention = machine.operations * (machine.attention_reached or machine.reached)
        return {
            "model": self.shape.name,
            "machine": machine.name,
            "tokens_per_second": self.tokens_per_second,
            "operations_per_second": reached,
            "attention_operations_per_second": attention,
            "weight_bytes_per_second": machine.memory,
            "out_bytes_per_second": machine.out_link,
            "in_bytes_per_second": machine.in_link,
            "seconds_per_copy": machine.copy_seconds,
            "bytes_per_block": self.bytes_per_block,
            "source": self.source,
        }


LLAMA_3_8B = ModelShape.of_llama(
    "Llama 3 8B, bf16",
    layers=32,
    width=4096,
    inner=14336,
    heads=32,
    kv_heads=8,
    head_dim=128,
    bytes=2,
    source="its config.json",
)
REACHED = 0.5
"""Of the peak, in prefill with large products: what is assumed where nothing was measured."""
COPY_SECONDS = 10e-6
"""To start one copy from a program: assumed too."""
LINK_REACHED = 0.8
"""Of a link's peak, with pinned memory and large copies: assumed."""
A100 = Machine(
    "A100, PCIe 4",
    operations=312e12,
    memory=2.039e12,
    out_link=LINK_REACHED * 31.5e9,
    in_link=LINK_REACHED * 31.5e9,
    copy_seconds=COPY_SECONDS,
    source="NVIDIA A100 80 GB SXM data sheet; PCI-SIG, PCI Express 4.0, 16 lanes",
    reached=REACHED,
)
MODELLED = CostModel(
    LLAMA_3_8B,
    A100,
    block_size=16,
    source="modelled: Llama 3 8B on an A100 over PCIe 4, as on the cost page; nothing was measured",
)
"""Stands in where there is no model to measure."""
