"""Selecting tokens: expected distributions are computed with numpy, decisions on paper."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest
import torch

from kvlab.engine.request import Sampling
from kvlab.runtime.sampler import logprob, select

LOGITS = [2.0, -1.0, 0.5, 3.0, 0.0, 1.0, -4.0, 2.5]  # descending: 3, 7, 0, 5, 2, 4, 1, 6
ORDER = [3, 7, 0, 5, 2, 4, 1, 6]
DRAWS = 3_000


def softmax(logits: npt.ArrayLike, temperature: float = 1.0) -> npt.NDArray[np.float64]:
    scaled = np.asarray(logits, dtype=np.float64) / temperature
    weights = np.exp(scaled - scaled.max())
    return weights / weights.sum()


def frequencies(sampling: Sampling) -> npt.NDArray[np.float64]:
    """How often each token comes at DRAWS different positions."""
    counts = Counter(select(torch.tensor(LOGITS), sampling, p) for p in range(DRAWS))
    return np.array([counts[token] for token in range(len(LOGITS))]) / DRAWS


def assert_follows(seen: npt.NDArray[np.float64], expected: npt.NDArray[np.float64]) -> None:
    """Within 4 standard deviations of a binomial count, and never where the probability is 0."""
    deviation = np.sqrt(expected * (1 - expected) / DRAWS)
    assert np.all(np.abs(seen - expected) <= 4 * deviation + 1e-12), (seen, expected)


def test_temperature_zero_takes_the_highest_logit() -> None:
    assert select(torch.tensor(LOGITS), Sampling(), 5) == 3
    for seed in range(5):
        assert select(torch.tensor(LOGITS), Sampling(seed=seed), seed) == 3


def test_among_equal_logits_the_lowest_id_is_taken() -> None:
    assert select(torch.tensor([0.0, 7.0, 1.0, 7.0, 7.0]), Sampling(), 0) == 1


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_follow_the_softmax_at_that_temperature(temperature: float) -> None:
    assert_follows(frequencies(Sampling(temperature=temperature)), softmax(LOGITS, temperature))


@pytest.mark.parametrize("top_k", [1, 2, 5])
def test_top_k_keeps_the_k_most_likely_and_their_proportions(top_k: int) -> None:
    expected = softmax(LOGITS)
    expected[ORDER[top_k:]] = 0
    assert_follows(frequencies(Sampling(temperature=1.0, top_k=top_k)), expected / expected.sum())


@pytest.mark.parametrize("top_p", [0.01, 0.4, 0.75, 0.95])
def test_top_p_keeps_the_smallest_set_that_reaches_p(top_p: float) -> None:
    expected = softmax(LOGITS)
    kept = next(n for n in range(1, 9) if expected[ORDER[:n]].sum() >= top_p)
    expected[ORDER[kept:]] = 0
    assert_follows(frequencies(Sampling(temperature=1.0, top_p=top_p)), expected / expected.sum())


def test_top_k_and_top_p_together_keep_the_smaller_set() -> None:
    expected = softmax(LOGITS)
    assert expected[3] < 0.6 <= expected[[3, 7]].sum()  # top_p alone keeps two
    expected[ORDER[2:]] = 0
    for top_k in (2, 5):
        sampling = Sampling(temperature=1.0, top_k=top_k, top_p=0.6)
        assert_follows(frequencies(sampling), expected / expected.sum())


def test_a_top_k_beyond_the_vocabulary_changes_nothing() -> None:
    for position in range(50):
        wide = select(torch.tensor(LOGITS), Sampling(temperature=1.0, top_k=1_000), position)
        assert wide == select(torch.tensor(LOGITS), Sampling(temperature=1.0), position)


def test_the_same_seed_and_position_give_the_same_token_whatever_was_drawn_before() -> None:
    logits = torch.zeros(1_000)  # all equally likely: an accidental match is one in a thousand
    sampling = Sampling(temperature=1.0, seed=7)
    forwards = [select(logits, sampling, p) for p in range(40)]
    torch.manual_seed(99)
    backwards = [select(logits, sampling, p) for p in reversed(range(40))]
    assert backwards[::-1] == forwards
    assert len(set(forwards)) > 30
    others = [select(logits, Sampling(temperature=1.0, seed=8), p) for p in range(40)]
    assert sum(a == b for a, b in zip(forwards, others, strict=True)) < 3


def test_a_temperature_near_zero_is_nearly_greedy_and_a_high_one_nearly_even() -> None:
    cold = {select(torch.tensor(LOGITS), Sampling(temperature=1e-4), p) for p in range(200)}
    assert cold == {3}
    assert_follows(frequencies(Sampling(temperature=100.0)), softmax(LOGITS, 100.0))


def test_a_token_that_cannot_be_is_never_drawn() -> None:
    logits = torch.tensor([0.0, -torch.inf, 0.0, -torch.inf])
    drawn = {select(logits, Sampling(temperature=1.0), p) for p in range(300)}
    assert drawn == {0, 2}


def test_the_log_probability_is_the_models_own() -> None:
    expected = np.log(softmax(LOGITS))
    for token in range(len(LOGITS)):
        assert logprob(torch.tensor(LOGITS), token) == pytest.approx(expected[token], abs=1e-6)


def test_the_coldest_temperature_is_the_greedy_choice() -> None:
    """Softmax at T towards 0 puts all weight on the highest logit; nothing overflows on the way."""
    logits = torch.tensor([1.5, 300.0, -2.0, 299.0])
    for temperature in (1e-308, 5e-324, 1e-12):
        assert select(logits, Sampling(temperature=temperature, seed=3), 7) == 1
