"""Selecting the next token.

The random stream is keyed by (seed, absolute position of the token): whatever ran beside a request,
and however often it was preempted, the same token is drawn.
"""

from __future__ import annotations

import random

import torch
from torch import Tensor

from kvlab.engine.request import Sampling


def select(logits: Tensor, sampling: Sampling, position: int) -> int:
    """The token at `position` of a history, from `logits` [vocab] of the position before it.

    Temperature 0 takes the highest logit (the lowest id among equals). Otherwise one uniform number
    is drawn and mapped through the cumulative distribution of softmax(logits / temperature), cut to
    the top_k most likely tokens and then to the smallest set whose probability reaches top_p.
    """
    if sampling.temperature == 0:
        return int(logits.argmax())
    wide = logits.double().cpu()
    # The highest logit is 0 before the division: none can grow out of range, however cold it is.
    probabilities = ((wide - wide.max()) / sampling.temperature).softmax(-1)
    ordered, tokens = probabilities.sort(descending=True, stable=True)
    keep = len(ordered) if sampling.top_k == 0 else min(sampling.top_k, len(ordered))
    if sampling.top_p < 1:
        before = ordered.cumsum(0) - ordered
        keep = min(keep, int((before < sampling.top_p * ordered.sum()).sum()))
    cumulative = ordered[:keep].cumsum(0)
    drawn = random.Random(f"{sampling.seed}:{position}").random() * cumulative[-1]
    at = min(int(torch.searchsorted(cumulative, drawn, right=True)), keep - 1)
    return int(tokens[at])


def logprob(logits: Tensor, token: int) -> float:
    """Natural log of the model's own probability of `token`: before temperature and cuts."""
    return float(logits.float().log_softmax(-1)[token])
