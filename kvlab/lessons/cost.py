"""Which method costs less, as a model on paper: time to bring a request of N tokens back.

    T_recompute(N) = max(weight bytes / memory bandwidth, 2 P N / (F u)) + 2 L H D N^2 / (F u)
    T_swap(N)      = 2 N (2 L K D bytes) / link + c copies(N)

P parameters without the embedding, L layers, H heads, K KV heads, D head size, F peak operations a
second, u the share of the peak that is reached. Swap moves KV twice, out and back. Copies are one
for each direction, or one for each block, layer and direction; c is the cost of starting one.
Nothing here is measured.
"""

from __future__ import annotations

from dataclasses import dataclass

FORMULA = (
    "Modelled, not measured. T_recompute(N) = max(weight bytes / memory bandwidth, 2·P·N / (F·u)) "
    "+ 2·L·H·D·N² / (F·u). T_swap(N) = 2·N·(2·L·K·D·bytes) / link + c·copies(N)."
)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the formula needs of a model; `bytes` of a value in weights and KV."""

    name: str
    parameters: float
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    bytes: int
    source: str

    @property
    def kv_bytes_per_token(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head_dim * self.bytes


@dataclass(frozen=True, slots=True)
class Hardware:
    """What the formula needs of a machine: per second, bytes where not operations."""

    name: str
    operations: float
    memory: float
    link: float
    source: str


LLAMA = ModelShape(
    "Llama 3 8B, bf16", 7.5e9, 32, 32, 8, 128, 2, "its config.json; P without the embedding"
)
MACHINES = {
    "H100, PCIe 5": Hardware("H100, PCIe 5", 989e12, 3.35e12, 51e9, "NVIDIA H100 SXM data sheet"),
    "A100, PCIe 4": Hardware("A100, PCIe 4", 312e12, 2.04e12, 25e9, "NVIDIA A100 80 GB data sheet"),
}
REACHED = 0.5
BLOCK_SIZE = 16
COPY_SECONDS = 10e-6
LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)


def recompute_seconds(tokens: int, model: ModelShape, machine: Hardware) -> float:
    """Time to compute the KV of so many tokens in one pass."""
    rate = machine.operations * REACHED
    weights = model.parameters * model.bytes / machine.memory
    attention = 2 * model.layers * model.heads * model.head_dim * tokens**2 / rate
    return max(weights, 2 * model.parameters * tokens / rate) + attention


def swap_seconds(tokens: int, model: ModelShape, machine: Hardware, small_copies: bool) -> float:
    """Time to move the KV of so many tokens out and back."""
    blocks = -(-tokens // BLOCK_SIZE)
    copies = 2 * (blocks * model.layers if small_copies else 1)
    return 2 * tokens * model.kv_bytes_per_token / machine.link + COPY_SECONDS * copies


def assumptions(model: ModelShape, machine: Hardware) -> str:
    """The numbers behind a curve, with their sources, in one paragraph."""
    return (
        f"{model.name}: {model.source}; {model.kv_bytes_per_token:,} bytes of KV a token. "
        f"{machine.name}: {machine.operations / 1e12:,.0f} TFLOP/s and "
        f"{machine.memory / 1e12:.2f} TB/s ({machine.source}). Assumed: half of the peak is "
        f"reached, {machine.link / 1e9:.0f} GB/s over the link in each direction (80% of its "
        f"peak), {COPY_SECONDS * 1e6:.0f} µs to start a copy, blocks of {BLOCK_SIZE} tokens."
    )
