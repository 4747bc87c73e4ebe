"""A predicted run as a scenario: what the engine, with its events, schedules in the same steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import count
from typing import Any

from kvlab.predict.replay import Played
from kvlab.predict.server import Server
from kvlab.predict.workload import Asked

PRESET = "vllm_v1"
NOT_TOLD = ("victim_seed", "free_order")


def scenario_of(server: Server, played: Played) -> dict[str, Any]:
    """A scenario document: requests join before the step before which they joined in the prediction,
    and prompts have equal tokens where their blocks have equal numbers. Step k of it is step k of
    `played.decided`. Tokens stand for nothing."""
    settings = {key: value for key, value in asdict(server.config).items() if key not in NOT_TOLD}
    fresh = count(1)
    tokens: dict[int, int] = {}
    block = server.config.block_size
    return {
        "name": "predicted",
        "title": f"{played.workload.name} on {server.card.title}, {server.model.name}, as predicted",
        "model": None,
        "engine": {**settings, "preset": PRESET, "unsafe": []},
        "requests": [
            {
                "id": f"R{at + 1}",
                "prompt": list(_prompt(asked, block, tokens, fresh)),
                "max_tokens": asked.output_tokens,
                "arrival_step": played.joined[at],
            }
            for at, asked in enumerate(played.workload.requests)
        ],
    }


def _prompt(
    asked: Asked, block: int, tokens: dict[int, int], fresh: Iterator[int]
) -> Iterator[int]:
    """A token for each number, repeated over its block; the rest of the prompt has one of its own."""
    for number in asked.blocks:
        if number not in tokens:
            tokens[number] = next(fresh)
        yield from [tokens[number]] * block
    own = next(fresh)
    yield from [own] * (asked.prompt_tokens - len(asked.blocks) * block)
