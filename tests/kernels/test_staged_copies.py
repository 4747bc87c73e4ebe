"""Copies through staging memory, as on CUDA, here without streams: every index must be right.

Expected bytes are those that the test put into the pools.
"""

from __future__ import annotations

from random import Random

import pytest
import torch

from kvlab.engine.runner import CopyError
from kvlab.runtime.host_blocks import HostBlocks
from kvlab.runtime.kv_cache import KVCache
from kvlab.runtime.transfer import Run, Transfer, by_block, runs

LAYERS, BLOCKS, HEADS = 3, 11, 2


def pool(num_blocks: int, head_dim: int, dtype: torch.dtype) -> KVCache:
    return KVCache(
        layers=LAYERS,
        num_blocks=num_blocks,
        block_size=4,
        kv_heads=HEADS,
        head_dim=head_dim,
        dtype=dtype,
        device=torch.device("cpu"),
    )


def host_pool(num_blocks: int, head_dim: int, dtype: torch.dtype) -> HostBlocks:
    return HostBlocks(
        layers=LAYERS,
        num_blocks=num_blocks,
        block_size=4,
        kv_heads=HEADS,
        head_dim=head_dim,
        dtype=dtype,
        pinned=False,
    )


def filled(made: KVCache) -> KVCache:
    """Every number in it random, NaN among them: copies move bits."""
    made.data.copy_(torch.randn(made.data.shape))
    made.data[1, 0, 3] = torch.nan
    return made


def bits(values: torch.Tensor) -> torch.Tensor:
    return values.contiguous().view(torch.uint8)


@pytest.mark.parametrize("block_major", [True, False], ids=["block-major", "layer-major"])
@pytest.mark.parametrize("staged_blocks", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("head_dim", "dtype"),
    [(8, torch.float32), (6, torch.bfloat16), (3, torch.float16)],
    ids=["float32", "bfloat16", "odd"],
)
def test_blocks_arrive_whole_and_in_their_places(
    block_major: bool, staged_blocks: int, head_dim: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(3)
    device = filled(pool(BLOCKS, head_dim, dtype))
    make = host_pool if block_major else pool
    host = make(BLOCKS, head_dim, dtype)
    transfer = Transfer(device, host, staging_bytes=staged_blocks * device.bytes_per_block)
    before = device.data.clone()
    rng = Random(staged_blocks)
    blocks = rng.sample(range(BLOCKS), 7)
    hosts = [2, 3, 4, 9, 8, 0, 1]  # runs, up and down
    transfer.copy_out(list(zip(blocks, hosts, strict=True)))
    device.data.zero_()
    for block, stored in zip(blocks, hosts, strict=True):
        assert torch.equal(bits(host.block(stored)), bits(before[:, :, block]))
    for untouched in set(range(BLOCKS)) - set(hosts):
        assert not host.block(untouched).any()
    homes = rng.sample(range(BLOCKS), 7)
    transfer.copy_in(list(zip(hosts, homes, strict=True)))
    transfer.settle(range(BLOCKS))
    for block, home in zip(blocks, homes, strict=True):
        assert torch.equal(bits(device.block(home)), bits(before[:, :, block]))
    for untouched in set(range(BLOCKS)) - set(homes):
        assert not device.block(untouched).any()


def test_a_block_is_one_piece_of_a_host_pool() -> None:
    host = host_pool(5, 8, torch.bfloat16)
    assert host.data.shape == (LAYERS, 2, 5, 4, HEADS, 8)
    assert by_block(host)[2].is_contiguous()
    assert host.bytes_per_block == by_block(host)[2].nbytes
    assert host.checksum(2) == pool(5, 8, torch.bfloat16).checksum(2)


def test_runs_are_as_long_as_the_blocks_lie_side_by_side() -> None:
    assert list(runs([4, 5, 6, 2, 1, 8, 9])) == [
        Run(0, 4, 3),
        Run(3, 2, 1),
        Run(4, 1, 1),
        Run(5, 8, 2),
    ]


@pytest.mark.parametrize("pairs", [[(0, 5)], [(11, 0)], [(-1, 0)], [(0, 0), (1, 99)]])
def test_a_block_that_is_not_there_is_a_copy_error_and_nothing_moves(
    pairs: list[tuple[int, int]],
) -> None:
    device, host = filled(pool(BLOCKS, 8, torch.float32)), host_pool(5, 8, torch.float32)
    with pytest.raises(CopyError, match="is not one of the pool's"):
        Transfer(device, host, staging_bytes=1 << 20).copy_out(pairs)
    assert not host.data.any()
