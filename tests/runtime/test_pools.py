"""The KV pools and the copies between them, tensor by tensor.

Expected bytes come from values that the test itself puts into the pools, expected checksums from
zlib over numpy's bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch

from kvlab.engine.config import EngineConfig
from kvlab.engine.engine import Engine
from kvlab.engine.events import CopyFailed
from kvlab.engine.request import Request
from kvlab.engine.runner import CopyError
from kvlab.errors import BadInput
from kvlab.models.loading import LoadedModel, load_model
from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import load_scenario
from kvlab.runtime.kv_cache import KVCache
from kvlab.runtime.model_runner import ModelRunner
from kvlab.runtime.transfer import Transfer
from tests.engine.harness import Record, snapshot

LAYERS, BLOCKS, SIZE, HEADS, DIM = 3, 6, 4, 2, 8


def pool(num_blocks: int = BLOCKS, dtype: torch.dtype = torch.float32) -> KVCache:
    return KVCache(
        layers=LAYERS,
        num_blocks=num_blocks,
        block_size=SIZE,
        kv_heads=HEADS,
        head_dim=DIM,
        dtype=dtype,
        device=torch.device("cpu"),
    )


def filled(num_blocks: int = BLOCKS) -> KVCache:
    """Every number in it is another one."""
    made = pool(num_blocks)
    made.data.copy_(torch.arange(made.data.numel(), dtype=torch.float32).view(made.data.shape))
    return made


@cache
def story_model() -> LoadedModel:
    torch.set_num_threads(1)  # a model this small only loses by a second thread
    return load_model("story", device="cpu")


def test_shape_and_bytes_of_a_pool() -> None:
    made = pool()
    assert made.data.shape == (LAYERS, 2, BLOCKS, SIZE, HEADS, DIM)
    assert made.bytes_per_block == 3 * 2 * 4 * 2 * 8 * 4
    assert pool(dtype=torch.bfloat16).bytes_per_block == 3 * 2 * 4 * 2 * 8 * 2
    assert pool(0).bytes_per_block == 0


def test_a_write_goes_to_its_slots_and_nowhere_else() -> None:
    made = pool()
    k = torch.arange(1.0, 2 * HEADS * DIM + 1).view(2, HEADS, DIM)
    made.write(1, torch.tensor([9, 2]), k, -k)  # block 2 slot 1, block 0 slot 2
    expected = torch.zeros(LAYERS, 2, BLOCKS, SIZE, HEADS, DIM)
    expected[1, 0, 2, 1], expected[1, 1, 2, 1] = k[0], -k[0]
    expected[1, 0, 0, 2], expected[1, 1, 0, 2] = k[1], -k[1]
    assert torch.equal(made.data, expected)


@pytest.mark.parametrize("length", [None, 1, 3])
def test_the_checksum_is_the_crc32_of_the_blocks_bytes(length: int | None) -> None:
    made = filled()
    values = made.data[:, :, 4, :length].numpy()
    assert made.checksum(4, length) == zlib.crc32(values.tobytes())


def test_every_number_of_a_block_counts_in_its_checksum() -> None:
    made = filled()
    whole, two = made.checksum(4), made.checksum(4, 2)
    for slot in range(SIZE):
        for layer in range(LAYERS):
            made.data[layer, 1, 4, slot, 1, 7] += 1
            assert made.checksum(4) != whole
            assert (made.checksum(4, 2) != two) is (slot < 2)
            made.data[layer, 1, 4, slot, 1, 7] -= 1
    assert (made.checksum(4), made.checksum(4, 2)) == (whole, two)


def measured(figure: str) -> tuple[ModelRunner, list[tuple[dict[str, Any], dict[str, Any]]]]:
    """The runner as the run left it, and (event, measurement) in the order of the trace."""
    run = run_scenario(load_scenario(figure, ["device=cpu"]), model=story_model())
    assert isinstance(run.runner, ModelRunner)
    found = run.trace.document["measurements"]
    return run.runner, [(run.trace.events[entry["event"]], entry) for entry in found]


def test_the_checksums_and_norms_of_a_trace_are_those_of_the_pool() -> None:
    """Of the last write to a block that nothing was copied into later: P2 by A, P1 by B."""
    runner, entries = measured("figure-4")
    written = {event["block"]: (event, e) for event, e in entries if event["kind"] == "kv_written"}
    assert set(written) == {0, 1, 2, 3}
    for block in (1, 2):
        event, entry = written[block]
        used = runner.cache.data[:, :, block, : event["slot"] + event["last"] - event["first"] + 1]
        assert entry["checksum"] == f"{zlib.crc32(used.contiguous().numpy().tobytes()):08x}"
        norms = used[:, :, event["slot"] :].double().square().sum(dim=(2, 3, 4)).sqrt()
        assert entry["k_norm"] == pytest.approx(norms[:, 0].tolist(), rel=1e-5)
        assert entry["v_norm"] == pytest.approx(norms[:, 1].tolist(), rel=1e-5)


def test_the_checksums_of_a_trace_show_that_swapped_kv_came_back_as_it_was() -> None:
    """P2 and P3 before they leave, P3 and P0 when the values are back."""
    runner, entries = measured("figure-4")
    moved: dict[str, list[tuple[int, str]]] = {}
    for event, entry in entries:
        if event["kind"].startswith("swap"):
            moved.setdefault(event["kind"], []).append((entry["block"], entry["checksum"]))
    assert {kind: [block for block, _ in blocks] for kind, blocks in moved.items()} == {
        "swap_out_started": [2, 3],
        "swap_in_finished": [3, 0],
    }
    out, back = ([checksum for _, checksum in blocks] for blocks in moved.values())
    assert out == back
    # Nobody has written to P3 and P0 since.
    in_pool = [zlib.crc32(runner.cache.block(b).contiguous().numpy().tobytes()) for b in (3, 0)]
    assert back == [f"{checksum:08x}" for checksum in in_pool]


def test_a_trace_says_how_far_rebuilt_kv_is_from_what_was_there() -> None:
    """At most what test_no_toy.py allows, and said of rebuilt positions alone."""
    _, entries = measured("figure-3")
    for event, entry in entries:
        assert ("max_diff" in entry) is (event.get("why") == "rebuilt")
        if "max_diff" in entry:
            assert set(entry["max_diff"]) == {"k", "v"}
            assert max(entry["max_diff"].values()) <= 2e-5


def test_a_pool_that_memory_cannot_hold_is_refused_in_a_sentence() -> None:
    with pytest.raises(BadInput, match=r"1000000000 blocks needs .* MB .*fewer blocks"):
        pool(1_000_000_000)


def test_copies_move_whole_blocks_both_ways_and_touch_no_others() -> None:
    device, host = filled(), pool(4)
    before = device.data.clone()
    transfer = Transfer(device, host)
    transfer.copy_out([(5, 0), (2, 3)])
    assert torch.equal(device.data, before)
    assert torch.equal(host.data[:, :, 0], before[:, :, 5])
    assert torch.equal(host.data[:, :, 3], before[:, :, 2])
    assert not host.data[:, :, 1:3].any()
    device.data.zero_()
    transfer.copy_in([(3, 1), (0, 4)])
    assert torch.equal(device.data[:, :, 1], before[:, :, 2])
    assert torch.equal(device.data[:, :, 4], before[:, :, 5])
    assert not device.data[:, :, [0, 2, 3, 5]].any()


def test_a_block_is_copied_within_the_device() -> None:
    device = filled()
    before = device.data.clone()
    Transfer(device, pool(0)).copy_block(1, 4)
    assert torch.equal(device.data[:, :, 4], before[:, :, 1])
    untouched = [0, 1, 2, 3, 5]
    assert torch.equal(device.data[:, :, untouched], before[:, :, untouched])


def test_a_later_write_cannot_harm_a_copy() -> None:
    device, host = filled(), pool(1)
    before = device.block(3).clone()
    Transfer(device, host).copy_out([(3, 0)])
    device.data.fill_(-1.0)
    assert torch.equal(host.block(0), before)


def test_no_pairs_no_copy() -> None:
    Transfer(filled(), pool(0)).copy_out([])


@pytest.mark.parametrize("pairs", [[(0, 4)], [(6, 0)], [(0, 0), (0, 99)]])
def test_a_copy_out_of_the_pools_bounds_is_a_copy_error(
    pairs: list[tuple[int, int]],
) -> None:
    device = filled()
    before = device.data.clone()
    with pytest.raises(CopyError):
        Transfer(device, pool(4)).copy_out(pairs)
    assert torch.equal(device.data, before)


def story_engine() -> tuple[Engine, ModelRunner]:
    runner = ModelRunner(story_model(), num_blocks=4, block_size=4, host_blocks=4)
    engine = Engine(EngineConfig(num_blocks=4, block_size=4, method="swap"), runner)
    engine.add_request(Request(id="A", prompt=(12, 407, 99, 4, 731, 8, 2), max_tokens=6))
    engine.add_request(Request(id="B", prompt=(55, 6, 340, 71, 9, 512, 33), max_tokens=4))
    return engine, runner


def broken(*args: Any, **kwargs: Any) -> None:
    raise CopyError("the link is down")


@pytest.mark.parametrize(
    ("direction", "out", "back"), [("copy_out", 0, 0), ("copy_in", 2, 0)], ids=["out", "in"]
)
def test_a_copy_that_fails_costs_a_recomputation_and_no_token(
    direction: str, out: int, back: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever way fails, B is recomputed (8 positions again) and gets the same tokens."""
    sound, _ = story_engine()
    sound.run()
    engine, runner = story_engine()
    monkeypatch.setattr(runner, direction, broken)
    reports = engine.run()
    failures = [e for r in reports for e in r.events if isinstance(e, CopyFailed)]
    assert [(e.id, e.message) for e in failures] == [("B", "the link is down")]
    assert sum(report.tokens_again for report in reports) == 8
    assert Record.of(engine, reports).swapped == (out, back)
    for id in "AB":
        assert engine.requests[id].outputs == sound.requests[id].outputs
    engine.check_integrity()
    assert (snapshot(engine).free, snapshot(engine).host_free) == (4, 4)


def raises(error: Exception) -> Callable[..., Any]:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    return fail


def test_a_model_run_that_fails_ends_its_requests_and_not_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, runner = story_engine()
    engine.step()
    with monkeypatch.context() as patch:
        patch.setattr(runner, "execute", raises(RuntimeError("out of memory")))
        engine.step()
    assert {r.finish_reason for r in engine.requests.values()} == {"error"}
    assert "out of memory" in str(engine.requests["A"].message)
    assert snapshot(engine).free == 4
    engine.add_request(Request(id="C", prompt=(3, 1, 4), max_tokens=2, arrival_step=engine.steps))
    engine.run()
    assert engine.requests["C"].finish_reason == "length"
