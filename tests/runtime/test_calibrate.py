"""Calibration: the arithmetic from seconds to rates, and the cache that keeps them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from kvlab.engine.cost_model import CostModel, Machine, ModelShape
from kvlab.models.loading import load_model
from kvlab.runtime import calibrate
from kvlab.runtime.calibrate import Line, Rates, operations_per_second
from kvlab.runtime.model_runner import ModelRunner

SHAPE = ModelShape.of_llama(
    "s", layers=2, width=64, inner=128, heads=4, kv_heads=2, head_dim=16, bytes=4, source="here"
)
RATES = Rates(5e9, 2e9, 3e9, 1e9, 2e9, 1e-5, "by hand")


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelRunner:
    """Of the story, with a cache of its own that is empty."""
    monkeypatch.setenv("KVLAB_CACHE", str(tmp_path / "cache"))
    loaded = load_model("story", device="cpu")
    return ModelRunner(loaded, num_blocks=4, block_size=16, host_blocks=4)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Measuring is replaced by RATES; the list has an item for each time."""
    times: list[int] = []

    def measure(runner: ModelRunner) -> Rates:
        times.append(1)
        return replace(RATES, seconds_per_copy=len(times) * 1e-5)

    monkeypatch.setattr(calibrate, "measure", measure)
    return times


def seconds(linear: float, attention: float, tokens: int, overhead: float = 0.0) -> float:
    return (
        overhead
        + SHAPE.linear_operations(tokens) / linear
        + SHAPE.attention_operations(tokens) / attention
    )


def test_two_lengths_tell_products_from_attention() -> None:
    prefill = {n: seconds(5e9, 2e9, n) for n in (128, 1024)}
    assert operations_per_second(SHAPE, prefill, row=1e-6) == pytest.approx((5e9, 2e9))


def test_a_pass_that_waits_for_the_weights_says_nothing_of_computing() -> None:
    prefill = {128: 0.1, 1024: seconds(5e9, 5e9, 1024)}
    assert operations_per_second(SHAPE, prefill, row=0.1) == pytest.approx((5e9, 5e9))
    assert operations_per_second(SHAPE, {128: seconds(4e9, 4e9, 128)}, row=1e-6) == pytest.approx(
        (4e9, 4e9)
    )


def test_noise_never_makes_a_rate_negative() -> None:
    for short, long in ((1.0, 1.0), (1e-3, 1e3), (1.0, 8.0)):
        linear, attention = operations_per_second(SHAPE, {128: short, 1024: long}, row=1e-9)
        assert linear > 0
        assert attention > 0


def test_the_fit_spreads_the_errors_of_more_points_than_two() -> None:
    """w = 2 u + 3 v, and one point a tenth too long: no error is a tenth, none of the others is 0."""
    points = [(1.0, 1.0, 5.0), (2.0, 8.0, 28.0), (4.0, 64.0, 1.1 * 200.0)]
    x, y = calibrate.fit(points)
    errors = [abs((u * x + v * y) / w - 1) for u, v, w in points]
    assert max(errors) < 0.1
    assert min(errors) > 0
    assert calibrate.fit(points[:2]) == pytest.approx((2.0, 3.0))
    assert calibrate.fit([(1.0, 2.0, 3.0), (2.0, 4.0, 6.0)]) == (0.0, 0.0)
    assert calibrate.fit([]) == (0.0, 0.0)


def test_two_copies_make_a_line() -> None:
    made = Line.through((1e6, 0.011), (1e7, 0.020))
    assert made.start == pytest.approx(0.010)
    assert made.bytes_per_second == pytest.approx(1e9)
    assert Line.through((1e6, 0.03), (1e7, 0.02)) == Line(0.0, 1e7 / 0.02)
    assert Line.through((1e6, 0.001), (1e7, 0.1)) == Line(0.0, 1e7 / 0.1)
    assert Line.through((1e6, 0.01), (1e6, 0.01)) == Line(0.0, 1e6 / 0.01)


def test_measuring_gives_usable_rates_and_leaves_the_pools_alone(
    runner: ModelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate, "LONG", 256)
    runner.cache.data.fill_(3.0)
    made = calibrate.measure_costs(runner)
    assert (runner.cache.data == 3.0).all()
    assert 0 < made.recompute_seconds(64) < made.recompute_seconds(2_048)
    assert 0 < made.swap_seconds(1) < made.swap_seconds(100)
    assert made.bytes_per_block == runner.cache.bytes_per_block
    assert made.source.startswith("measured just now on cpu: prefill of 128")


def test_the_second_time_nothing_is_measured(runner: ModelRunner, counted: list[int]) -> None:
    first, second = calibrate.measure_costs(runner), calibrate.measure_costs(runner)
    assert len(counted) == 1
    assert first == replace(second, source=first.source)
    assert first.source == "measured just now on cpu: by hand"
    assert second.source == "measured earlier on cpu: by hand"
    calibrate.calibrate(runner)
    assert len(counted) == 2
    assert calibrate.measure_costs(runner).machine.copy_seconds == 2e-5


def test_another_block_size_is_measured_for_itself(runner: ModelRunner, counted: list[int]) -> None:
    calibrate.measure_costs(runner)
    other = ModelRunner(runner.loaded, num_blocks=4, block_size=8, host_blocks=4)
    calibrate.measure_costs(other)
    assert len(counted) == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"key": 1}',
        "KEY, no rates",
        "KEY, a rate below zero",
        "KEY, a rate of text",
        "KEY, not a number",
        "another KEY",
    ],
)
def test_a_broken_cache_file_is_ignored_and_written_again(
    text: str, runner: ModelRunner, counted: list[int]
) -> None:
    key = calibrate.key_of(runner)
    file = calibrate.rates_file(key)
    file.parent.mkdir(parents=True)
    whole = {"key": key, "rates": asdict(RATES)}
    broken = {
        "KEY, no rates": {"key": key},
        "KEY, a rate below zero": whole | {"rates": whole["rates"] | {"operations": -1.0}},
        "KEY, a rate of text": whole | {"rates": whole["rates"] | {"operations": "fast"}},
        "KEY, not a number": whole | {"rates": whole["rates"] | {"out_bytes": float("nan")}},
        "another KEY": whole | {"key": key | {"dtype": "bfloat16"}},
    }
    file.write_text(json.dumps(broken[text]) if text in broken else text)
    calibrate.measure_costs(runner)
    assert len(counted) == 1
    assert json.loads(file.read_text())["key"] == key
    calibrate.measure_costs(runner)
    assert len(counted) == 1
    assert [found.name for found in file.parent.iterdir()] == [file.name]


def test_a_cache_that_cannot_be_written_is_no_trouble(
    runner: ModelRunner,
    counted: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "a file").write_text("in the way")
    monkeypatch.setenv("KVLAB_CACHE", str(tmp_path / "a file"))
    assert isinstance(calibrate.measure_costs(runner), CostModel)
    assert len(counted) == 1


def test_a_calibrated_machine_reaches_all_that_it_was_measured_at(runner: ModelRunner) -> None:
    made = calibrate.cost_model(runner, RATES, "measured just now")
    assert isinstance(made.machine, Machine)
    told = made.as_json()
    assert told["operations_per_second"] == 5e9
    assert told["attention_operations_per_second"] == pytest.approx(2e9)
    assert told["seconds_per_copy"] == 1e-5
