"""How many threads torch uses for a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from kvlab.models.config import ModelConfig

SMALL_WIDTH = 512


@contextmanager
def few_threads(config: ModelConfig) -> Iterator[None]:
    """One thread for a model narrower than SMALL_WIDTH, torch's own number for others.

    Layers so small cost more to share out than to compute; on a busy machine, where threads wait for
    each other, a step of 3 ms took 100.
    """
    if config.hidden_size >= SMALL_WIDTH:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
