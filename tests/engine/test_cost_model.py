"""The formulas on paper, term by term."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kvlab.engine.cost_model import LLAMA_3_8B, MODELLED, CostModel, Machine, ModelShape

SHAPE = ModelShape.of_llama(
    "small", layers=2, width=8, inner=10, heads=4, kv_heads=2, head_dim=2, bytes=4, source="here"
)
MACHINE = Machine(
    "slow",
    operations=2_000.0,
    memory=1_000.0,
    out_link=500.0,
    in_link=250.0,
    copy_seconds=0.5,
    source="here",
    reached=0.5,
)
COSTS = CostModel(SHAPE, MACHINE, block_size=4, source="here")


def test_a_shape_counts_its_layers_alone() -> None:
    """q and o 8 x 8, k and v 8 x 4, three of 8 x 10: 432 a layer. 2 x 2 x 2 x 2 KV values of 4 bytes."""
    assert SHAPE.parameters == 2 * (2 * 64 + 2 * 32 + 3 * 80) == 864
    assert SHAPE.weight_bytes == 3_456
    assert SHAPE.kv_bytes_per_token == 64
    assert SHAPE.attention_operations(3) == 2 * 2 * 4 * 2 * 9


def test_known_models_come_out_right() -> None:
    """8.03 billion less an embedding and a head of 128,256 x 4,096 each, less the norms."""
    assert LLAMA_3_8B.parameters == 8_030_261_248 - 2 * 128_256 * 4_096 - 65 * 4_096
    assert LLAMA_3_8B.kv_bytes_per_token == 128 * 1024


def test_a_short_pass_waits_for_the_weights_and_a_long_one_computes() -> None:
    """1,000 operations a second are reached; the weights take 3.456 s; N tokens 1.728 N s."""
    assert COSTS.recompute_seconds(1) == pytest.approx(3.456 + 0.032)
    assert COSTS.recompute_seconds(2) == pytest.approx(3.456 + 0.128)
    assert COSTS.recompute_seconds(10) == pytest.approx(17.28 + 3.2)


def test_attention_may_reach_another_share() -> None:
    slower = replace(COSTS, machine=replace(MACHINE, attention_reached=0.25))
    assert slower.recompute_seconds(10) == pytest.approx(17.28 + 6.4)


@pytest.mark.parametrize(("copies_per_block", "copies"), [(0, 2), (1, 6), (2, 12)])
def test_swap_counts_bytes_both_ways_and_copies(copies_per_block: int, copies: int) -> None:
    """3 blocks of 256 bytes: out at 500, in at 250 bytes a second, half a second for each copy."""
    costs = replace(COSTS, copies_per_block=copies_per_block)
    assert costs.blocks_for(9) == costs.blocks_for(12) == 3
    assert costs.swap_seconds(3) == pytest.approx(768 / 500 + 768 / 250 + 0.5 * copies)


def test_smaller_blocks_cost_more_copies_of_the_same_bytes() -> None:
    """The PagedAttention paper's comparison: recompute does not depend on the block size."""
    by_size = [replace(COSTS, block_size=size, copies_per_block=1) for size in (1, 4, 16)]
    swap = [costs.swap_seconds(costs.blocks_for(16)) for costs in by_size]
    assert swap == sorted(swap, reverse=True)
    assert len({costs.recompute_seconds(16) for costs in by_size}) == 1


def test_the_rates_are_json_and_say_their_source() -> None:
    told = json.loads(json.dumps(COSTS.as_json(), allow_nan=False))
    assert told["source"] == "here"
    assert told["bytes_per_block"] == 256
    assert told["operations_per_second"] == 1_000
    assert told["tokens_per_second"] == pytest.approx(1_000 / 1_728)
    assert "nothing was measured" in MODELLED.as_json()["source"]
