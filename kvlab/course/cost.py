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
from kvlab.trace.speech import ENGLISH, Speech
from kvlab.trace.table import Table


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


OWN_NUMBERS = "own numbers"


def own_machine(name: str, *, tflops: float, memory_gb: float, link_gb: float) -> Machine:
    """A machine of one's own numbers: trillions of operations a second, and billions of bytes a
    second to the memory and over the link, as peaks. Raises BadInput for one that is not above 0."""
    given = {"tflops": tflops, "memory_gb": memory_gb, "link_gb": link_gb}
    for what, value in given.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 < value < math.inf:
            raise BadInput(f"{what} {value!r}: give a number above 0.")
    link = Link(f"a link of {link_gb:g} GB/s", link_gb * 1e9, OWN_NUMBERS)
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


def assumptions(shape: ModelShape, machine: Machine, speech: Speech = ENGLISH) -> str:
    """The numbers behind a curve, with their sources, in one paragraph."""
    n = speech.number
    return speech(
        "cost.assumptions",
        model=shape.name,
        model_source=source(shape.source, speech),
        parameters=n(shape.parameters / 1e9, ",.3g"),
        kv=n(shape.kv_bytes_per_token),
        machine=machine.name,
        operations=n(machine.operations / 1e12, ",.0f"),
        memory=n(machine.memory / 1e12, ".2f"),
        machine_source=source(machine.source, speech),
        link=n(machine.in_link / 1e9, ",.0f"),
        copy=n(machine.copy_seconds * 1e6, ",.0f"),
        size=BLOCK_SIZE,
    )


def source(text: str, speech: Speech) -> str:
    """Where a number is from: data sheets keep their names, our own words are spoken."""
    ours = {CONFIG: "cost.config", OWN_NUMBERS: "cost.own_source"}
    return speech(ours[text]) if text in ours else text


def symbols(machine: Machine, shape: ModelShape, speech: Speech = ENGLISH) -> Table:
    """Every letter of the formulas: what it means, and what it is here."""

    def t(key: str, **values: object) -> str:
        return speech(f"cost.{key}", **values)

    def n(value: float, form: str, unit: str) -> str:
        return f"{speech.number(value, form)} {unit}"

    of_model, of_machine = (source(one.source, speech) for one in (shape, machine))
    billions = speech.number(shape.parameters / 1e9, ",.3g")
    return Table(
        t("letters", model=shape.name, machine=machine.name),
        (t("head_letter"), t("head_means"), t("head_here"), t("head_from")),
        (
            ("N", t("N"), t("N_here"), ""),
            ("P", t("P"), t("billion", n=billions), of_model),
            ("L", t("L"), f"{shape.layers}", of_model),
            ("H", t("H"), f"{shape.heads}", of_model),
            ("K", t("K"), f"{shape.kv_heads}", of_model),
            ("D", t("D"), f"{shape.head_dim}", of_model),
            (
                t("weights"),
                t("weights_means"),
                n(shape.weight_bytes / 1e9, ",.3g", "GB"),
                t("calculated"),
            ),
            (t("bytes_letter"), t("bytes_means"), f"{shape.bytes}", of_model),
            (
                t("kv_letter"),
                t("kv_means"),
                speech.number(shape.kv_bytes_per_token),
                t("calculated"),
            ),
            ("F", t("F"), n(machine.operations / 1e12, ",.4g", "TFLOP/s"), of_machine),
            ("u", t("u"), f"{machine.reached:.0%}", t("assumed")),
            (
                t("bandwidth"),
                t("bandwidth_means"),
                n(machine.memory / 1e9, ",.5g", "GB/s"),
                of_machine,
            ),
            (
                t("link_letter"),
                t("link_means"),
                n(machine.in_link / 1e9, ",.3g", "GB/s"),
                t("link_from", share=f"{LINK_REACHED:.0%}"),
            ),
            ("c", t("c"), n(machine.copy_seconds * 1e6, ",.3g", "µs"), t("assumed")),
            (t("copies"), t("copies_means"), t("copies_here", size=BLOCK_SIZE), t("copies_from")),
        ),
        t("letters_note"),
    )
