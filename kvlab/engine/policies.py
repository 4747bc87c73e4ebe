"""Who is paused when a block is needed and none is free.

Each policy ranks the candidates; the highest rank is the victim, and among equals the newest of the
running. vLLM's V1 engine takes the newest (or, with priorities, the lowest); others are argued for.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvlab.engine.request import Request


class PolicyError(RuntimeError):
    """A victim function raised, or named a request that is not a candidate."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a policy may know of a running request. Counts are tokens, or blocks where named."""

    id: str
    priority: int
    computed: int
    outputs: int
    max_tokens: int
    blocks: int
    reclaimable: int  # blocks that only this request refers to
    arrived: int = 0  # the step after which it joined the queue

    @classmethod
    def of(cls, request: Request, reclaimable: int) -> Candidate:
        return cls(
            id=request.id,
            priority=request.priority,
            computed=request.computed,
            outputs=request.num_outputs,
            max_tokens=request.max_tokens,
            blocks=len(request.table),
            reclaimable=reclaimable,
            arrived=request.arrival_step,
        )

    @property
    def cost_score(self) -> float:
        """reclaimable blocks / tokens to redo x share of the output still to come.

        High where a pause frees much, redoes little, and the request would go on growing.
        """
        to_come = (self.max_tokens - self.outputs) / self.max_tokens
        return self.reclaimable / max(1, self.computed) * to_come


VictimFunction = Callable[[Sequence[Candidate], str], Candidate | str]
"""(candidates in running order, id of the request in need) -> the victim, or its id."""


LONGEST_NAME = 60


def name_of(function: VictimFunction) -> str:
    """What a trace calls a victim function: its own name, `function` where it has none."""
    name = getattr(function, "__name__", "")
    own = name.isidentifier() and name not in NAMES and len(name) <= LONGEST_NAME
    return name if own else "function"


RANKS: dict[str, Callable[[Candidate], float]] = {
    "newest": lambda c: 0,
    "lowest_priority": lambda c: c.priority,
    "least_computed": lambda c: -c.computed,
    "most_computed": lambda c: c.computed,
    "most_reclaimable": lambda c: c.reclaimable,
    "cost_score": lambda c: c.cost_score,
}


NAMES = ("oldest", "random", *RANKS)
"""Of the policies that a scenario can ask for."""

STEADY = ("newest", "lowest_priority", "least_computed")
"""Policies that always leave the same request alone until it has got on: no two can take turns at
preempting each other in a recovery that is not complete."""


class VictimPolicy:
    """Chooses a victim among candidates given in running order, oldest first."""

    def __init__(self, victim: str | VictimFunction, seed: int = 0) -> None:
        self._victim = victim
        self._random = random.Random(seed)

    @property
    def name(self) -> str:
        """The policy's name in events, the reason code of its choices; the caller's own function has
        the name that it was defined with."""
        return self._victim if isinstance(self._victim, str) else name_of(self._victim)

    @property
    def steady(self) -> bool:
        """Some request always gets on, whatever is chosen."""
        return self._victim in STEADY

    def choose(self, candidates: Sequence[Candidate], in_need: str) -> str:
        """The victim's id. `candidates` is not empty. Raises PolicyError for a bad function."""
        if not isinstance(self._victim, str):
            return self._ask(self._victim, candidates, in_need)
        if self._victim == "oldest":
            return candidates[0].id
        if self._victim == "random":
            return self._random.choice(candidates).id
        rank = RANKS[self._victim]
        return max(reversed(candidates), key=rank).id

    def _ask(self, function: VictimFunction, candidates: Sequence[Candidate], need: str) -> str:
        try:
            chosen = function(candidates, need)
        except Exception as error:  # a visitor's code: whatever it raises is its own fault
            raise PolicyError(
                f"the victim function {name_of(function)} raised {error!r:.200}"
            ) from error
        named = chosen.id if isinstance(chosen, Candidate) else chosen
        if named not in [candidate.id for candidate in candidates]:
            raise PolicyError(
                f"the victim function {name_of(function)} named {named!r:.60}, which is not a candidate"
            )
        return named
