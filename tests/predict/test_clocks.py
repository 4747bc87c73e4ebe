"""The clock's terms, each beside a number from outside it."""

from __future__ import annotations

import random

import pytest

from kvlab.predict.attention import Tail, finish
from kvlab.predict.cards import CARDS
from kvlab.predict.clock import Links, StepShape, padded
from kvlab.predict.models import MODELS
from kvlab.predict.server import server_of
from kvlab.predict.table_clock import chunks
from kvlab.predict.tables import line, load_tables, plane

RTX4090 = load_tables("rtx4090", "llama-3.1-8b", 1)
PRO6000 = load_tables("rtxpro6000", "llama-3.1-8b", 1)
US = 1e-6


def test_tables_give_back_what_was_measured() -> None:
    """Rows of LLMServingSim's own CSV files."""
    attention = RTX4090.attention
    assert attention.decode(16, 1024) == pytest.approx(99.26 * US, abs=0.01 * US)
    assert attention.prefill(1024, 2048) == pytest.approx(381.66 * US, abs=0.01 * US)
    both = attention.prefill(512, 0) + attention.beside(512, 0, 32, 1024)
    assert both == pytest.approx(361.42 * US, abs=0.02 * US)
    assert RTX4090.matrices(1) == pytest.approx((126.8 + 247.3 + 38.1 + 54.9) * US, rel=1e-3)
    assert RTX4090.head(256) == pytest.approx((1671.2 + 310.9) * US, rel=1e-4)


def test_between_rows_lies_a_straight_line() -> None:
    assert line((2, 4, 8), (10.0, 20.0, 60.0), 6) == 40.0
    assert line((2, 4, 8), (10.0, 20.0, 60.0), 1) == 10.0
    assert line((2, 4, 8), (10.0, 20.0, 60.0), 16) == 140.0
    assert plane((0, 2), (0, 4), ((0.0, 8.0), (4.0, 12.0)), 1, 2) == 6.0


@pytest.mark.parametrize(("tables", "peak"), [(RTX4090, 1008e9), (PRO6000, 1792e9)])
def test_memory_streams_below_the_data_sheets_rate(tables: object, peak: float) -> None:
    """8 heads of 128 values, K and V, of 2 bytes: 4,096 bytes a position."""
    rate = 4096 / tables.attention.streaming  # type: ignore[attr-defined]
    assert 0.8 * peak < rate < peak


def test_equal_contexts_stream_without_a_tail() -> None:
    assert finish([100] * 4, heads=2, processors=4, share=1.0, alone=1.0) == pytest.approx(800.0)
    tail = Tail(heads=2, processors=4, share=1.0, alone=1.0)
    assert tail.seconds([100] * 4, 400) == pytest.approx(0.0)


def test_one_long_context_is_read_at_one_processors_pace() -> None:
    """4 of 100 positions share the memory until 400 are read; then 900 of the long one remain, at
    least half a second each."""
    assert finish([1000, 100, 100, 100], 1, 4, share=1.0, alone=0.5) == pytest.approx(400 + 900)
    assert finish([1000, 100, 100, 100], 1, 4, share=0.1, alone=0.5) == pytest.approx(50 + 450)
    # With two processors the others wait in line behind it.
    assert finish([300, 100, 100, 100], 1, 2, share=1.0, alone=1.0) == pytest.approx(600.0)


def test_a_tail_from_the_last_passes_is_that_of_all() -> None:
    """Measured beside the whole simulation, on contexts as a full cache has them."""
    rng = random.Random(1)
    share, alone = 512 / 957e9, 512 / 20.5e9
    for count in (40, 90, 200):
        contexts = [rng.randint(300, 4000) for _ in range(count)]
        stream = sum(contexts) * 8 * share
        whole = finish(contexts, 8, 128, share, alone) - stream
        part = Tail(8, 128, share, alone).seconds(contexts, sum(contexts))
        assert part == pytest.approx(whole, abs=0.02 * stream)


def test_a_batch_is_filled_up_to_the_next_graph() -> None:
    assert [padded(n) for n in (1, 3, 5, 9, 250, 257, 512, 513)] == [
        1,
        4,
        8,
        16,
        256,
        272,
        512,
        513,
    ]


def test_small_chunks_beside_each_other_share_the_card() -> None:
    attention = RTX4090.attention
    one = chunks(attention, [(128, 0)])
    assert one == pytest.approx(attention.prefill(128, 0))
    four = chunks(attention, [(128, 0)] * 4)
    assert one < four < 4 * one + 1e-9
    assert four <= attention.prefill(512, 0) * 1.05


def test_cards_together_pay_for_their_link() -> None:
    """Two cards: each sends and gets the whole of it once; 2,048 rows of 5,120 bf16 are 21 MB."""
    card, model = CARDS["rtxpro6000"], MODELS["qwen3-32b"]
    assert Links(card, model, 1).layer(2048) == 0.0
    seconds = Links(card, model, 2).layer(2048) / 2
    assert seconds == pytest.approx(2048 * 5120 * 2 / card.peer + card.peer_latency)
    clock = server_of("rtxpro6000", "qwen3-32b", 2).clock()
    step = StepShape(prefills=[(2048, 0)])
    assert clock.seconds(step) > 128 * seconds


def test_more_work_never_takes_less_time() -> None:
    for gpu, model, tp in (
        ("rtx4090", "llama-3.1-8b", 1),
        ("rtxpro6000", "qwen3-32b", 2),
        ("h100", "llama-3.1-8b", 1),
    ):
        seconds = []
        for tokens in (256, 512, 1024, 2048):
            clock = server_of(gpu, model, tp).clock()
            seconds.append(clock.seconds(StepShape([(tokens, 0)], [500] * 20)))
        assert seconds == sorted(seconds)
        for contexts in ([300] * 8, [300] * 64, [3000] * 64):
            clock = server_of(gpu, model, tp).clock()
            seconds.append(clock.seconds(StepShape([], contexts)))
        assert seconds[-3:] == sorted(seconds[-3:])


def test_swapped_blocks_pay_for_the_link() -> None:
    server = server_of("rtx4090", "llama-3.1-8b")
    kv = 131_072  # bytes of a position: 32 layers, 8 heads of 128, K and V, 2 bytes
    base = server.clock().seconds(StepShape([], [100]))
    with_copy = server.clock().seconds(StepShape([], [100], copied=1000))
    assert with_copy - base == pytest.approx(1000 * kv / server.card.link)
