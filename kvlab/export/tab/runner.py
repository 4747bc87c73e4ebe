"""The model and its two KV pools in a browser's tab, as the engine's `Runner`.

They live in JavaScript (js/runner.js); this is Python's end. What crosses is block numbers, tokens
and measured numbers, as JSON, one call at a time; no tensor does. Nothing here needs a browser: the
tests hand in a Node process as `call`.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from kvlab.engine.cost_model import CostModel, Machine, ModelShape
from kvlab.engine.events import Event, Finished, KvWritten, SwapInFinished, SwapOutStarted
from kvlab.engine.request import Batch, Sampled, Sampling, ScheduledRequest
from kvlab.engine.runner import CopyError, Pairs
from kvlab.models.tokenizer import TokenText
from kvlab.runtime.clock import StepClock

Call = Callable[[str, str], str]
"""(method of js/tab.js, its arguments as a JSON list) -> its result as JSON. What fails there raises."""

TIMED_TOKENS, TIMED_BLOCKS = 64, 256
"""Of the pass and of the copies whose seconds make the rates for method `auto`."""
SHORTEST = 5e-6  # seconds


class TabRunner:
    """The tab's model and, once `begin` has made them, its pools. `about`: what JavaScript says of
    model and device: the visitor's graphics card where there is one and it is `wanted`. `clock`
    splits the seconds of a step."""

    def __init__(self, call: Call, *, card_wanted: bool = True) -> None:
        self._call = call
        self.clock = StepClock()
        self.about: dict[str, Any] = self.ask("about", card_wanted)
        self.block_size = 0
        shape = self.about["shape"]
        self.vocab_size: int = shape["vocab"]
        self.context: int = shape["context"]
        self.eos_ids = frozenset[int](shape["eos"])
        self.costed = ModelShape.of_llama(
            self.about["name"],
            layers=shape["layers"],
            width=shape["hidden"],
            inner=shape["inner"],
            heads=shape["heads"],
            kv_heads=shape["kvHeads"],
            head_dim=shape["headDim"],
            bytes=4,
            source="the loaded model",
        )

    def begin(
        self,
        *,
        num_blocks: int,
        block_size: int,
        host_blocks: int,
        keeps_overwritten: bool = False,
    ) -> None:
        """Make fresh pools; `end` gives them back."""
        self.block_size = block_size
        sizes = {"numBlocks": num_blocks, "blockSize": block_size, "hostBlocks": host_blocks}
        how = {"keepsOverwritten": keeps_overwritten, "device": self.about["device"]}
        self.ask("begin", sizes | how)

    def end(self) -> None:
        """The memory of the pools that were made last is free."""
        self.ask("end")

    def ask(self, method: str, *arguments: Any) -> Any:
        """The result of one call into JavaScript."""
        return json.loads(self._call(method, json.dumps(arguments)))

    def execute(self, batch: Batch) -> list[Sampled]:
        """One pass of the model over the batch. The uniform numbers of sampling are drawn here, from
        (seed, position), by the generator that kvlab.runtime.sampler uses."""
        shares = [
            {
                "tokens": scheduled.tokens,
                "start": scheduled.start,
                "table": scheduled.table,
                "sampling": [
                    {
                        "temperature": sampling.temperature,
                        "topP": sampling.top_p,
                        "topK": sampling.top_k,
                        "logprobs": sampling.logprobs,
                        "drawn": random.Random(f"{sampling.seed}:{scheduled.end}").random(),
                    }
                    for sampling in scheduled.sampling
                ],
            }
            for scheduled in batch
        ]
        ids = [scheduled.id for scheduled in batch for _ in scheduled.sampling]
        with self.clock.work():
            chosen = self.ask("execute", shares)
        return [Sampled(id, *one) for id, one in zip(ids, chosen, strict=True)]

    def copy_out(self, pairs: Pairs, *, before_last_write: bool = False) -> None:
        self._copy("copyOut", list(pairs), before_last_write)

    def copy_in(self, pairs: Pairs) -> None:
        self._copy("copyIn", list(pairs))

    def copy_block(self, source: int, target: int) -> None:
        self._copy("copyBlock", source, target)

    def _copy(self, method: str, *arguments: Any) -> None:
        try:
            with self.clock.work():
                self.ask(method, *arguments)
        except Exception as error:  # a JavaScript error, whatever class the bridge gives it
            raise CopyError(str(error).splitlines()[0]) from error

    def fingerprints(self, blocks: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
        with self.clock.aside():
            return [tuple(layers) for layers in self.ask("fingerprints", list(blocks))]

    def costs(self) -> CostModel:
        """Rates of a pass over many tokens, of one over a single token and of copies each way, timed
        just now in pools of their own; one rate for products and attention."""
        with self.clock.aside():
            row, whole, out, back = self._timed()
        shape, where = self.costed, self.about["device_name"]
        operations = shape.linear_operations(TIMED_TOKENS)
        operations += shape.attention_operations(TIMED_TOKENS)
        copied = TIMED_BLOCKS * self.block_size * shape.kv_bytes_per_token
        machine = Machine(
            where,
            operations=operations / whole,
            memory=shape.weight_bytes / row,
            out_link=copied / out,
            in_link=copied / back,
            copy_seconds=0.0,
            source="timed in the tab",
        )
        source = (
            f"measured just now in this tab ({where}): prefill of {TIMED_TOKENS} tokens, one row, "
            f"copies of {TIMED_BLOCKS} blocks both ways"
        )
        return CostModel(shape, machine, block_size=self.block_size, source=source)

    def _timed(self) -> tuple[float, float, float, float]:
        size = self.block_size
        blocks = max(TIMED_BLOCKS, -(-TIMED_TOKENS // size))
        self.begin(num_blocks=blocks, block_size=size, host_blocks=TIMED_BLOCKS)
        pairs = [(block, TIMED_BLOCKS - 1 - block) for block in range(TIMED_BLOCKS)]
        table = tuple(range(blocks))

        def pass_over(tokens: int) -> None:
            prompt = tuple(range(1, tokens + 1))
            self.execute([ScheduledRequest("timed", prompt, 0, table, (Sampling(),))])

        try:
            return (
                median_seconds(lambda: pass_over(1)),
                median_seconds(lambda: pass_over(TIMED_TOKENS)),
                median_seconds(lambda: self.copy_out(pairs)),
                median_seconds(lambda: self.copy_in(pairs)),
            )
        finally:
            self.end()

    # Text.

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt."""
        ids: list[int] = self.ask("encode", text)
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens, special ones left out."""
        text: str = self.ask("decode", list(tokens), False)
        return text

    def token_text(self, token: int) -> str:
        """One token as a label."""
        text: str = self.ask("decode", [token], True)
        return text

    def text_stream(self, stop: Sequence[str]) -> TokenText:
        return TokenText(self.decode, stop)


def median_seconds(work: Callable[[], None]) -> float:
    """Of three turns after a warm-up; never 0, as a browser's clock moves in steps."""
    taken = []
    for _ in range(4):
        started = time.perf_counter()
        work()
        taken.append(max(time.perf_counter() - started, SHORTEST))
    return sorted(taken[1:])[1]


class TabProbe:
    """What really lies in the tab's pool at an event; entries as kvlab.runtime.probe makes them."""

    def __init__(self, runner: TabRunner) -> None:
        self._runner = runner

    def look(self, event: Event) -> list[dict[str, Any]]:
        with self._runner.clock.aside():
            return self._look(event)

    def _look(self, event: Event) -> list[dict[str, Any]]:
        match event:
            case KvWritten():
                return [self._written(event)]
            case SwapOutStarted() | SwapInFinished():
                size = self._runner.block_size
                used = [
                    (block, min(size, event.kv - place * size))
                    for place, block in enumerate(event.blocks)
                ]
                found = self._checksums(used)
                return [
                    {"block": block, "checksum": checksum}
                    for block, checksum in zip(event.blocks, found, strict=True)
                ]
            case Finished():
                self._runner.ask("forget", event.id)
        return []

    def _checksums(self, blocks: Sequence[tuple[int, int]]) -> list[str]:
        return [f"{value:08x}" for value in self._runner.ask("checksums", list(blocks))]

    def _written(self, event: KvWritten) -> dict[str, Any]:
        end = event.slot + event.last - event.first + 1
        place = (event.id, event.block, event.slot, event.first, event.last)
        found = self._runner.ask("written", *place, event.why == "rebuilt")
        norms = {key: [round(n, 6) for n in found.pop(key)] for key in ("k_norm", "v_norm")}
        [checksum] = self._checksums([(event.block, end)])
        return {"block": event.block, "checksum": checksum} | norms | found
