"""The cost model of `kvlab.engine.cost_model` on paper: public hardware, known models.

Nothing here is measured. Operations are those of dense products in bf16 (no sparsity), as the data
sheets give them; a link's speed is its peak in one direction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from kvlab.engine.cost_model import (
    A100,
    COPY_SECONDS,
    LINK_REACHED,
    LLAMA_3_8B,
    REACHED,
    CostModel,
    ModelShape,
)
from kvlab.engine.cost_model import Machine as Machine
from kvlab.errors import BadInput
from kvlab.trace.table import Table

FORMULA = (
    "Modelled, not measured. T_recompute(N) = max(weight bytes / memory bandwidth, 2·P·N / (F·u)) "
    "+ 2·L·H·D·N² / (F·u). T_swap(N) = 2·N·(2·L·K·D·bytes) / link + c·copies(N)."
)


@dataclass(frozen=True, slots=True)
class Link:
    """A way between the device's memory and the host's; `peak` bytes a second in each direction."""

    name: str
    peak: float
    source: str


PCIE_4 = Link("PCIe 4", 31.5e9, "PCI-SIG, PCI Express 4.0, 16 lanes")
PCIE_5 = Link("PCIe 5", 63e9, "PCI-SIG, PCI Express 5.0, 16 lanes")
NVLINK_C2C = Link("NVLink-C2C", 450e9, "NVIDIA GH200 data sheet: 900 GB/s in both directions")


def on_paper(accelerator: str, operations: float, memory: float, sheet: str, link: Link) -> Machine:
    """An accelerator from its data sheet behind a link."""
    reached = LINK_REACHED * link.peak
    source = f"{sheet}; {link.source}"
    return Machine(
        f"{accelerator}, {link.name}",
        operations=operations,
        memory=memory,
        out_link=reached,
        in_link=reached,
        copy_seconds=COPY_SECONDS,
        source=source,
        reached=REACHED,
    )


def own_machine(name: str, *, tflops: float, memory_gb: float, link_gb: float) -> Machine:
    """A machine of one's own numbers: trillions of operations a second, and billions of bytes a
    second to the memory and over the link, as peaks. Raises BadInput for one that is not above 0."""
    given = {"tflops": tflops, "memory_gb": memory_gb, "link_gb": link_gb}
    for what, value in given.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 < value < math.inf:
            raise BadInput(f"{what} {value!r}: give a number above 0.")
    link = Link(f"a link of {link_gb:g} GB/s", link_gb * 1e9, "own numbers")
    made = on_paper(name, tflops * 1e12, memory_gb * 1e9, "", link)
    return replace(made, source=link.source)


MACHINES = {
    machine.name: machine
    for machine in (
        on_paper("H100", 989e12, 3.35e12, "NVIDIA H100 SXM data sheet", PCIE_5),
        A100,
        on_paper("H200", 989e12, 4.8e12, "NVIDIA H200 SXM data sheet", PCIE_5),
        on_paper("GH200", 990e12, 4.0e12, "NVIDIA GH200 (96 GB HBM3) data sheet", NVLINK_C2C),
        on_paper("L4", 121e12, 300e9, "NVIDIA L4 data sheet", PCIE_4),
        on_paper("RTX 4090", 165.2e12, 1.008e12, "NVIDIA Ada architecture white paper", PCIE_4),
        on_paper("MI300X", 1307.4e12, 5.3e12, "AMD Instinct MI300X data sheet", PCIE_5),
    )
}

CONFIG = "its config.json"
MODELS = {
    shape.name: shape
    for shape in (
        LLAMA_3_8B,
        ModelShape.of_llama(
            "Llama 3.2 1B, bf16",
            layers=16,
            width=2048,
            inner=8192,
            heads=32,
            kv_heads=8,
            head_dim=64,
            bytes=2,
            source=CONFIG,
        ),
        ModelShape.of_llama(
            "Qwen2.5 7B, bf16",
            layers=28,
            width=3584,
            inner=18944,
            heads=28,
            kv_heads=4,
            head_dim=128,
            bytes=2,
            source=CONFIG,
        ),
        ModelShape.of_llama(
            "SmolLM2 135M, bf16",
            layers=30,
            width=576,
            inner=1536,
            heads=9,
            kv_heads=3,
            head_dim=64,
            bytes=2,
            source=CONFIG,
        ),
        ModelShape.of_llama(
            "Story (bundled), bf16",
            layers=5,
            width=192,
            inner=448,
            heads=6,
            kv_heads=2,
            head_dim=32,
            bytes=2,
            source=CONFIG,
        ),
    )
}
LLAMA = LLAMA_3_8B
BLOCK_SIZE = 16
LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)


def cost_model(
    machine: Machine, shape: ModelShape = LLAMA, *, small_copies: bool = False
) -> CostModel:
    """One copy each way, or with `small_copies` one for each block, layer and way."""
    copies = shape.layers if small_copies else 0
    return CostModel(shape, machine, BLOCK_SIZE, "on paper", copies)


def recompute_seconds(tokens: int, shape: ModelShape, machine: Machine) -> float:
    """Time to compute the KV of so many tokens in one pass."""
    return cost_model(machine, shape).recompute_seconds(tokens)


def swap_seconds(tokens: int, shape: ModelShape, machine: Machine, small_copies: bool) -> float:
    """Time to move the KV of so many tokens out and back."""
    costs = cost_model(machine, shape, small_copies=small_copies)
    return costs.swap_seconds(costs.blocks_for(tokens))


def assumptions(shape: ModelShape, machine: Machine) -> str:
    """The numbers behind a curve, with their sources, in one paragraph."""
    return (
        f"{shape.name}: {shape.source}, {shape.parameters / 1e9:,.3g} billion parameters in the "
        f"layers (P, without embedding and head) and {shape.kv_bytes_per_token:,} bytes of KV a "
        f"token. {machine.name}: {machine.operations / 1e12:,.0f} TFLOP/s and "
        f"{machine.memory / 1e12:.2f} TB/s ({machine.source}). Assumed: half of the peak is "
        f"reached, {machine.in_link / 1e9:.0f} GB/s over the link in each direction (80% of its "
        f"peak), {machine.copy_seconds * 1e6:.0f} µs to start a copy, blocks of {BLOCK_SIZE} "
        "tokens."
    )


def symbols(machine: Machine, shape: ModelShape) -> Table:
    """Every letter of the formulas: what it means, and what it is here."""
    link = machine.in_link / 1e9
    return Table(
        f"The letters, and what they are for {shape.name} on {machine.name}",
        ("letter", "means", "here", "from"),
        (
            ("N", "tokens of history that need their KV back", "the chart's axis", ""),
            (
                "P",
                "parameters in the layers, without embedding and head",
                f"{shape.parameters / 1e9:,.3g} billion",
                shape.source,
            ),
            ("L", "layers of the model", f"{shape.layers}", shape.source),
            ("H", "attention heads of a layer", f"{shape.heads}", shape.source),
            ("K", "heads that keep keys and values", f"{shape.kv_heads}", shape.source),
            ("D", "numbers in one head's vector", f"{shape.head_dim}", shape.source),
            (
                "weight bytes",
                "bytes of the P parameters",
                f"{shape.weight_bytes / 1e9:,.3g} GB",
                "calculated",
            ),
            ("bytes", "of one number, in weights and KV", f"{shape.bytes}", shape.source),
            (
                "2·L·K·D·bytes",
                "bytes of KV of one token",
                f"{shape.kv_bytes_per_token:,}",
                "calculated",
            ),
            (
                "F",
                "operations a second, at most",
                f"{machine.operations / 1e12:,.4g} TFLOP/s",
                machine.source,
            ),
            ("u", "share of F that is reached", f"{machine.reached:.0%}", "assumed"),
            (
                "memory bandwidth",
                "bytes a second between processor and its memory",
                f"{machine.memory / 1e9:,.5g} GB/s",
                machine.source,
            ),
            (
                "link",
                "bytes a second over the link, each way",
                f"{link:,.3g} GB/s",
                f"{LINK_REACHED:.0%} of its peak, assumed",
            ),
            ("c", "time to start one copy", f"{machine.copy_seconds * 1e6:,.3g} µs", "assumed"),
            (
                "copies(N)",
                "copies for N tokens: 2 large ones, or 2 for each block and layer",
                f"blocks of {BLOCK_SIZE} tokens",
                "two lines of the chart",
            ),
        ),
        "The models' numbers are in the config.json that is published with their weights.",
    )
