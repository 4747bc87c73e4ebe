"""The engine in a learner's own hands: a step at a time, and all that it holds to look at.

Between two steps everything here is as the scheduler finds it. Nothing is copied out of the engine
before it is asked for; tensors that are returned are copies, those of `pool` are the memory itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvlab.engine.report import StepReport
from kvlab.errors import BadInput
from kvlab.lab.front import LabRun, Named, scenario_for
from kvlab.runs.run import RunInSteps, stand_ins, with_model
from kvlab.runs.scenario import Scenario
from kvlab.trace.narration import load_words, narrate
from kvlab.trace.recorder import event_json

if TYPE_CHECKING:
    from torch import Tensor

    from kvlab.engine.policies import VictimFunction
    from kvlab.engine.request import Request
    from kvlab.runtime.kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class Step:
    """One step that was made: its number, and its events as a trace has them. Printed, it says in
    words what happened.

    >>> step = Engine.of("figure-1").step()
    >>> step.number, step.scheduled
    (1, {'A': 7, 'B': 7})
    >>> print(step.sentences[-1])
    The user of B receives x0, the first output.
    """

    number: int
    events: list[dict[str, Any]]
    scheduled: dict[str, int]
    """Tokens of each request that went through the model."""
    delivered: dict[str, list[int]]
    """Token ids that each user received."""

    @classmethod
    def of(cls, report: StepReport) -> Step:
        events = [event_json(event) for event in report.events]
        return cls(report.step, events, dict(report.scheduled), dict(report.emitted))

    @property
    def sentences(self) -> list[str]:
        """What happened, an event a sentence, in the order in which it did."""
        words = load_words()
        return [narrate(event, words) for event in self.events]

    def __str__(self) -> str:
        return "\n  ".join([f"step {self.number}", *self.sentences])

    def __repr__(self) -> str:
        """One line: who was computed, who received."""
        rows = ", ".join(f"{id} {tokens}" for id, tokens in self.scheduled.items()) or "nothing"
        return f"step {self.number}: tokens computed {rows}; {len(self.events)} events"


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of the GPU pool: k and v, each [blocks, block size, KV heads, head size]. Views: what
    lies there now, whoever it belonged to."""

    k: Tensor
    v: Tensor


class Engine:
    """An engine that is stepped by hand.

        engine = Engine.of("figure-2")            # a scenario's requests and actions before it
        for step in engine: print(step)

        engine = Engine({"num_blocks": 4, "block_size": 4})
        engine.add("A", "Ana and Ben share a small room", max_tokens=6)
        engine.step()

    `config` are the engine's settings as in a scenario, `model` a name, a folder or None (scheduling
    alone, stand-in tokens). Raises BadInput for what cannot be.
    """

    def __init__(self, config: dict[str, Any], model: str | None = "story") -> None:
        self._document: dict[str, Any] = {"name": "by-hand", "model": model, "engine": config}
        self._asked: list[dict[str, Any]] = []
        self._victim: str | VictimFunction | None = None
        self._going: RunInSteps | None = None

    @classmethod
    def of(
        cls, scenario: Named, *settings: str, victim: str | VictimFunction | None = None
    ) -> Engine:
        """An engine at step 0 with all of a scenario before it.

        >>> engine = Engine.of("figure-5")
        >>> for _ in range(3):
        ...     step = engine.step()
        >>> engine.block_table("A"), engine.block_table("B"), engine.free_blocks
        ([0, 1, 2], [], [3])
        >>> engine.slot_mapping("A").tolist()
        [0, 1, 2, 3, 4, 5, 6, 7, 8]
        >>> k, v = engine.kv("A", layer=0)
        >>> list(k.shape) == [9, *engine.pool[0].k.shape[2:]]
        True
        """
        found = scenario_for(scenario, settings, victim)
        made = cls(found.document["engine"], found.model)
        made._going = _going(found)
        return made

    def add(self, id: str, prompt: str | list[int], max_tokens: int, **more: Any) -> None:
        """One more request, as in a scenario's `requests`; it can first run in the next step.

        Raises BadInput for one that does not fit, or whose id is taken.
        """
        asked = {"id": id, "prompt": prompt, "max_tokens": max_tokens, **more}
        if self._going is None:
            scenario_for(self._document | {"requests": [*self._asked, asked]})
            self._asked.append(asked)
            return
        asked.setdefault("arrival_step", self.steps)
        found = scenario_for(self._document | {"requests": [asked]})
        for request in found.requests(self._going.ground.encode):
            self._going.engine.add_request(request)

    @property
    def _run(self) -> RunInSteps:
        if self._going is None:
            if not self._asked:
                raise BadInput('the engine has no request yet: engine.add("A", "Ana and", 6).')
            self._going = _going(scenario_for(self._document | {"requests": self._asked}))
        return self._going

    # Going on.

    @property
    def steps(self) -> int:
        """Steps made so far."""
        return self._run.engine.steps

    @property
    def has_work(self) -> bool:
        """Some request has not ended, or a copy is in flight."""
        return self._run.engine.has_work

    def step(self) -> Step:
        """Schedule, execute, sample and deliver, once. A step without work does nothing."""
        return Step.of(self._run.step())

    def __iter__(self) -> Iterator[Step]:
        """The steps that are left, to the end of the run."""
        while self.has_work:
            yield self.step()

    def run(self) -> LabRun:
        """What was recorded so far, as a run: `engine.run().player()`."""
        return LabRun.of(self._run.run())

    # Looking.

    def history(self, id: str) -> list[int]:
        """Token ids of a request: its prompt, then its outputs. Raises BadInput for an unknown id."""
        return list(self._request(id).history)

    def block_table(self, id: str) -> list[int]:
        """Physical blocks of a request, in logical order."""
        return list(self._request(id).table)

    @property
    def free_blocks(self) -> list[int]:
        """The free list, from the block that is handed out next."""
        return self._run.engine.kv.pool.free_list()

    def slot_mapping(self, id: str) -> Tensor:
        """int64 [positions with KV]: where each lies, block id × block size + offset."""
        import torch  # late: scheduling alone needs none of it

        request, size = self._request(id), self._run.engine.config.block_size
        slots = [request.table[at // size] * size + at % size for at in range(request.computed)]
        return torch.tensor(slots, dtype=torch.int64)

    def kv(self, id: str, layer: int = 0) -> tuple[Tensor, Tensor]:
        """K and V of a request in one layer, each [positions, KV heads, head size], gathered through
        its block table: copies, so that a later step does not change them.

        Raises BadInput without a model, for an unknown id and for a layer that is none.
        """
        keys, values = self._cache.slots(self._layer(layer))
        slots = self.slot_mapping(id).to(keys.device)
        return keys[slots], values[slots]

    @property
    def pool(self) -> list[Layer]:
        """The GPU pool by layer: `pool[0].k[2, 0]` is what lies in layer 0, block P2, slot 0."""
        return [Layer(layer[0], layer[1]) for layer in self._cache.data]

    @property
    def host_pool(self) -> list[Layer]:
        """The CPU pool likewise."""
        return [Layer(layer[0], layer[1]) for layer in self._memory("host").data]

    @property
    def _cache(self) -> KVCache:
        return self._memory("cache")

    def _memory(self, pool: str) -> KVCache:
        cache: KVCache | None = getattr(self._run.engine.runner, pool, None)
        if cache is None:
            raise BadInput("this engine has no model, so nothing lies in its blocks: give it one.")
        return cache

    def _layer(self, layer: int) -> int:
        layers = len(self._cache.data)
        if isinstance(layer, bool) or not isinstance(layer, int) or not 0 <= layer < layers:
            raise BadInput(f"layer = {layer!r:.40}: the model has layers 0 to {layers - 1}.")
        return layer

    def _request(self, id: str) -> Request:
        known = self._run.engine.requests
        if id not in known:
            raise BadInput(f"there is no request {id!r:.60}: {', '.join(list(known)[:8])}.")
        return known[id]

    def __repr__(self) -> str:
        """One line: how far it has got, who holds what."""
        if self._going is None:
            return f"Engine before its first step; {len(self._asked)} requests"
        held = {id: r.table for id, r in self._run.engine.requests.items() if r.table}
        tables = "; ".join(f"{id} {' '.join(f'P{b}' for b in t[:8])}" for id, t in held.items())
        return f"Engine after step {self.steps}: {tables or 'nobody holds a block'}"


def _going(scenario: Scenario) -> RunInSteps:
    ground = stand_ins(scenario) if scenario.model is None else with_model(scenario, None)
    return RunInSteps(ground)
