"""Who runs the work: this engine and, where it is installed, transformers twice."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from kvlab.bench.speed.work import BLOCK_SIZE, STEP_TOKENS, Work
from kvlab.engine.config import EngineConfig
from kvlab.engine.engine import Engine
from kvlab.engine.request import Request
from kvlab.errors import BadInput
from kvlab.models.loading import LoadedModel
from kvlab.runtime.model_runner import ModelRunner

NEVER = -1
"""No token ends a request early."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`seconds` of the whole work, the output ids in the order of the prompts. Where it is known:
    the preemptions, and the share of the time that was spent neither in the model nor in copies."""

    seconds: float
    outputs: list[list[int]]
    preemptions: int | None = None
    bookkeeping: float | None = None


class Contestant(Protocol):
    """Something that runs work."""

    name: str

    def can(self, work: Work) -> bool:
        """Whether such work makes sense for it."""
        ...

    def run(self, work: Work) -> Outcome:
        """Raises BadInput where it does not give every output."""
        ...


class Kvlab:
    """This engine, without recording; one method of resuming."""

    def __init__(self, loaded: LoadedModel, method: str) -> None:
        self.name = f"kvlab {method}"
        self._loaded = loaded
        self._method = method
        self._runners: dict[int, ModelRunner] = {}

    def can(self, work: Work) -> bool:
        """The methods differ only in a pool that is too small."""
        return work.pressed or self._method == "recompute"

    def run(self, work: Work) -> Outcome:
        runner = self._runner(work.blocks)
        settings = EngineConfig(
            num_blocks=work.blocks,
            block_size=BLOCK_SIZE,
            host_blocks=work.blocks,
            method=self._method,
            step_tokens=STEP_TOKENS,
        )
        engine = Engine(settings, runner)
        requests = [
            Request(id=f"r{number}", prompt=prompt, max_tokens=work.outputs)
            for number, prompt in enumerate(work.prompts)
        ]
        for request in requests:
            engine.add_request(request)
        runner.clock.start()
        preemptions = 0
        while engine.has_work:
            preemptions += len(engine.step().preempted)
        seconds = runner.clock.stop()
        check_lengths(self.name, work, [request.outputs for request in requests])
        return Outcome(
            seconds.whole,
            [request.outputs for request in requests],
            preemptions,
            seconds.scheduling / seconds.whole,
        )

    def _runner(self, blocks: int) -> ModelRunner:
        """Made once for each size of the pool, calibrated before the clock runs."""
        if blocks not in self._runners:
            self._runners[blocks] = ModelRunner(
                self._loaded, num_blocks=blocks, block_size=BLOCK_SIZE, host_blocks=blocks
            )
            if self._method == "auto":
                self._runners[blocks].costs()
        return self._runners[blocks]


def transformers_model(folder: Path, dtype: torch.dtype) -> Any:
    """The same checkpoint in transformers. Raises BadInput where that is not installed."""
    try:
        from transformers import AutoModelForCausalLM, logging
    except ImportError:
        raise BadInput(
            "transformers is not installed here; pip install transformers, or give "
            "--without transformers."
        ) from None
    logging.set_verbosity_error()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa")
    return model.eval()


class PaddedBatch:
    """transformers' `generate` on one batch, prompts padded on the left."""

    name = "transformers padded"

    def __init__(self, model: Any) -> None:
        self._model = model

    def can(self, work: Work) -> bool:
        """It has no pool that could be too small."""
        return not work.pressed

    @torch.inference_mode()
    def run(self, work: Work) -> Outcome:
        longest = max(map(len, work.prompts))
        padded = [[0] * (longest - len(one)) + list(one) for one in work.prompts]
        seen = [[0] * (longest - len(one)) + [1] * len(one) for one in work.prompts]
        started = time.perf_counter()
        found = self._model.generate(
            torch.tensor(padded),
            attention_mask=torch.tensor(seen),
            do_sample=False,
            max_new_tokens=work.outputs,
            eos_token_id=NEVER,
            pad_token_id=0,
        )
        seconds = time.perf_counter() - started
        outputs = found[:, longest:].tolist()
        check_lengths(self.name, work, outputs)
        return Outcome(seconds, outputs)


class ContinuousBatch:
    """transformers' `generate_batch`: a paged cache with continuous batching."""

    name = "transformers continuous"

    def __init__(self, model: Any) -> None:
        self._model = model

    def can(self, work: Work) -> bool:
        return len(work.prompts) > 1

    @torch.inference_mode()
    def run(self, work: Work) -> Outcome:
        from transformers import ContinuousBatchingConfig, GenerationConfig

        settings = ContinuousBatchingConfig(
            page_size=BLOCK_SIZE,
            num_blocks=work.blocks,
            max_batch_tokens=STEP_TOKENS,
            max_requests_per_batch=len(work.prompts),
            allow_block_sharing=False,
            auto_switch_to_flash=False,
        )
        wanted = GenerationConfig(
            do_sample=False, max_new_tokens=work.outputs, eos_token_id=NEVER, pad_token_id=0
        )
        started = time.perf_counter()
        found = self._model.generate_batch(
            [list(one) for one in work.prompts],
            generation_config=wanted,
            continuous_batching_config=settings,
        )
        seconds = time.perf_counter() - started
        by_prompt = {tuple(one.prompt_ids): one.generated_tokens for one in found.values()}
        outputs = [by_prompt.get(one, []) for one in work.prompts]
        check_lengths(self.name, work, outputs)
        return Outcome(seconds, outputs)


def check_lengths(name: str, work: Work, outputs: list[list[int]]) -> None:
    """Raise BadInput for outputs that are missing: the times would compare nothing."""
    for number, output in enumerate(outputs):
        if len(output) != work.outputs:
            raise BadInput(
                f"{name}, {work.name}: request {number} gave {len(output)} of {work.outputs} "
                "outputs."
            )
