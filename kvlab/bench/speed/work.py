"""What every contestant is given: seeded prompts of token ids, greedy, a fixed number of outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

BLOCK_SIZE = 32  # vLLM's CPU build takes multiples of 32
STEP_TOKENS = 4_096
"""Every contestant may process so many tokens a step: whole prompts at once."""
FIRST_ID, END_ID = 100, 40_000
"""Prompts are plain tokens: below lie the special ones of most vocabularies."""


@dataclass(frozen=True, slots=True)
class Work:
    """`prompts`, each followed by `outputs` tokens, in a pool of `blocks` x BLOCK_SIZE slots;
    `pressed`: that is less than they need."""

    name: str
    prompts: tuple[tuple[int, ...], ...]
    outputs: int
    blocks: int
    pressed: bool = False

    @property
    def tokens(self) -> int:
        """Output tokens of all requests."""
        return len(self.prompts) * self.outputs


def prompt(rng: Random, length: int, vocab: int) -> tuple[int, ...]:
    """Token ids at random."""
    return tuple(rng.randrange(FIRST_ID, min(END_ID, vocab)) for _ in range(length))


def blocks_of(prompts: Sequence[Sequence[int]], outputs: int) -> int:
    """Blocks that they hold together when each is at its end."""
    return sum(-(-(len(one) + outputs) // BLOCK_SIZE) for one in prompts)


def serving(vocab: int, share: float, requests: int, outputs: int) -> Work:
    """Prompts of 32 to 128 tokens, in a pool of `share` of the blocks that they need at the end."""
    rng = Random(f"serving:{requests}")
    prompts = tuple(prompt(rng, rng.randint(32, 128), vocab) for _ in range(requests))
    blocks = round(blocks_of(prompts, outputs) * share)
    return Work(f"serving, pool {share:.0%}", prompts, outputs, blocks, share < 1)


def decoding(vocab: int, batch: int, outputs: int) -> Work:
    """`batch` prompts of 64 tokens."""
    rng = Random(f"decoding:{batch}")
    prompts = tuple(prompt(rng, 64, vocab) for _ in range(batch))
    return Work(f"decode, batch {batch}", prompts, outputs, blocks_of(prompts, outputs) + batch)


def prefill(vocab: int, length: int) -> Work:
    """One prompt, one output."""
    prompts = (prompt(Random(f"prefill:{length}"), length, vocab),)
    return Work(f"prefill {length:,}", prompts, 1, blocks_of(prompts, 1) + 1)
