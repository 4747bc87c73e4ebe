"""The largest step that a run's settings allow, and what a pass over it takes on a GPU, measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kvlab.engine.request import Sampling, ScheduledRequest
from kvlab.errors import BadInput, memory_ran_out
from kvlab.models.loading import LoadedModel
from kvlab.runtime.model_runner import ModelRunner


@dataclass(frozen=True, slots=True)
class LargestStep:
    """The most that one step can compute: `requests` of `rows` tokens each, after `before` tokens of
    their own that have KV."""

    requests: int
    rows: int
    before: int

    @classmethod
    def of(
        cls,
        lengths: Sequence[int],
        *,
        step_tokens: int | None = None,
        chunk_tokens: int | None = None,
        prefix_cache: bool = False,
    ) -> LargestStep:
        """Of requests of these lengths at their ends: a recomputation may come that late. Limits as in
        EngineConfig; without one a step may compute every request from its first token on."""
        longest = max(lengths)
        rows = min(longest, chunk_tokens or longest, step_tokens or longest)
        if prefix_cache and rows == longest > 1:
            rows -= 1  # a step that begins after a hit needs a mask, which takes memory, too
        in_all = min(sum(lengths), step_tokens or sum(lengths))
        return cls(min(len(lengths), -(-in_all // rows)), rows, longest - rows)

    @property
    def tokens(self) -> int:
        return self.requests * self.rows


def pass_bytes(loaded: LoadedModel, block_size: int, step: LargestStep) -> int:
    """Bytes that a pass over such a step takes on the device beside weights and pools.

    Measured with one request and with two: further ones, which are alike, add as much as the second
    did. Raises BadInput where there is no room even for these.
    """
    try:
        one = _measured(loaded, block_size, step, 1)
        if step.requests == 1:
            return one
        return one + (step.requests - 1) * (_measured(loaded, block_size, step, 2) - one)
    except RuntimeError as error:
        if not memory_ran_out(error):
            raise
        raise BadInput(
            f"a step may compute {step.tokens:,} tokens at once, {step.rows:,} of one request, which "
            f"takes more memory than {loaded.device} has; give engine.step_tokens."
        ) from None
    finally:
        torch.cuda.empty_cache()  # what torch keeps for the next pass would be counted twice


def _measured(loaded: LoadedModel, block_size: int, step: LargestStep, requests: int) -> int:
    each = -(-(step.before + step.rows) // block_size)
    runner = ModelRunner(
        loaded,
        num_blocks=requests * each,
        block_size=block_size,
        host_blocks=0,
        cuda_graphs=False,
    )
    prompt = tuple(place % loaded.config.vocab_size for place in range(step.rows))
    batch = [
        ScheduledRequest(
            f"profile {number}",
            prompt,
            step.before,
            tuple(range(number * each, (number + 1) * each)),
            (Sampling(),),
        )
        for number in range(requests)
    ]
    torch.cuda.synchronize(loaded.device)
    torch.cuda.reset_peak_memory_stats(loaded.device)
    before = torch.cuda.memory_allocated(loaded.device)
    runner.execute(batch)
    torch.cuda.synchronize(loaded.device)
    return torch.cuda.max_memory_allocated(loaded.device) - before
