"""Cards: what their data sheets say, and the links between them."""

from __future__ import annotations

from dataclasses import dataclass

from kvlab.errors import BadInput

GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One GPU. `memory` in bytes as its driver reports it free of ECC's share, rates per second."""

    name: str
    title: str
    memory: int
    bandwidth: float  # bytes of its memory
    flops: float  # dense bf16, fp32 sums
    processors: int  # streaming multiprocessors, or compute units
    peer: float  # bytes an all-reduce between cards gets through (bus bandwidth)
    peer_latency: float  # seconds of a small all-reduce
    link: float  # bytes of host memory copied over the link, one direction


# Memory, bandwidth, flops and processors: the vendors' data sheets (H100 and H200 as SXM, A100 as
# SXM 80 GB). Links: PCIe 4.0 and 5.0 x16 at 80 % of what they carry. Between cards: NVLink and
# Infinity Fabric at 75 % of a direction; RTX PRO 6000: NCCL's all-reduce over PCIe 5.0, 37 to 41 GB/s
# as users measured it (github.com/voipmonitor/rtx6kpro, hardware/pcie-bandwidth.md); RTX 4090 and L4
# have no direct way to each other, so that an all-reduce goes through host memory.
CARDS = {
    card.name: card
    for card in (
        Card(
            name="rtx4090",
            title="RTX 4090",
            memory=25_386_352_640,
            bandwidth=1008e9,
            flops=165.2e12,
            processors=128,
            peer=11e9,
            peer_latency=30e-6,
            link=25e9,
        ),
        Card(
            name="rtxpro6000",
            title="RTX PRO 6000 Blackwell",
            memory=int(94.97 * GIB),
            bandwidth=1792e9,
            flops=503.8e12,
            processors=188,
            peer=40e9,
            peer_latency=12e-6,
            link=50e9,
        ),
        Card(
            name="h100",
            title="H100 SXM",
            memory=int(79.18 * GIB),
            bandwidth=3350e9,
            flops=989.4e12,
            processors=132,
            peer=340e9,
            peer_latency=10e-6,
            link=50e9,
        ),
        Card(
            name="h200",
            title="H200 SXM",
            memory=int(139.8 * GIB),
            bandwidth=4800e9,
            flops=989.4e12,
            processors=132,
            peer=340e9,
            peer_latency=10e-6,
            link=50e9,
        ),
        Card(
            name="a100",
            title="A100 SXM 80 GB",
            memory=int(79.15 * GIB),
            bandwidth=2039e9,
            flops=311.8e12,
            processors=108,
            peer=225e9,
            peer_latency=12e-6,
            link=25e9,
        ),
        Card(
            name="l4",
            title="L4",
            memory=int(22.03 * GIB),
            bandwidth=300e9,
            flops=121e12,
            processors=58,
            peer=11e9,
            peer_latency=30e-6,
            link=25e9,
        ),
        Card(
            name="mi300x",
            title="MI300X",
            memory=int(191.5 * GIB),
            bandwidth=5300e9,
            flops=1307e12,
            processors=304,
            peer=330e9,
            peer_latency=12e-6,
            link=50e9,
        ),
    )
}


def load_card(name: str) -> Card:
    """A card by its name. Raises BadInput."""
    if name.lower() not in CARDS:
        raise BadInput(f"--gpu {name}: known are {', '.join(CARDS)}.")
    return CARDS[name.lower()]
