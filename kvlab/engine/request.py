"""A request as the engine sees it: what is known, what is computed, what is sent, what is held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kvlab.errors import BadInput


class RequestState(StrEnum):
    """Where a request is. `preempted` waits without KV on the GPU, `swapped` has it in host blocks."""

    PENDING = "pending"  # arrives later
    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"  # in the batch, skipped, keeps its blocks
    PREEMPTED = "preempted"
    SWAPPING_OUT = "swapping_out"
    SWAPPED = "swapped"
    SWAPPING_IN = "swapping_in"
    ENDING = "ending"  # has its last output; gives up its blocks once the next step is decided
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the next token is chosen. Temperature 0 is greedy; the stream is keyed by (seed, position)."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 1
    logprobs: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 100:
            raise BadInput(f"temperature = {self.temperature!r} must be from 0 to 100.")
        if not 0 < self.top_p <= 1:
            raise BadInput(f"top_p = {self.top_p!r} must be above 0 and at most 1.")
        if self.top_k < 0:
            raise BadInput(f"top_k = {self.top_k!r} must be 0 (no limit) or more.")


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """One request: what was asked, and what scheduling needs to know of it.

    Numbers that people confuse stay apart: len(history) counts prompt and selected outputs;
    `computed` counts positions whose KV is on the GPU; len(table) is the blocks held. While a request
    decodes, computed lags history by one: the token just selected has no KV until it is processed as
    the next input. What is told of a request afterwards is counted from the events.

    Raises BadInput for an empty prompt, or max_tokens or n below 1.
    """

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    priority: int = 0
    arrival_step: int = 0
    sampling: Sampling = field(default_factory=Sampling)
    n: int = 1  # samples of one prompt: forks share its blocks once the prompt is computed
    stop: tuple[str | int, ...] = ()
    ignore_eos: bool = True

    state: RequestState = field(default=RequestState.PENDING, init=False)
    history: list[int] = field(init=False)
    computed: int = field(default=0, init=False)
    ever_computed: int = field(default=0, init=False)  # positions below were computed at least once
    table: list[int] = field(default_factory=list, init=False)
    host_table: list[int] = field(default_factory=list, init=False)
    host_places: list[int] = field(
        default_factory=list, init=False
    )  # in the table, of each of them
    host_kv: int = field(default=0, init=False)  # positions in the host blocks
    prefix_hashes: list[bytes] = field(default_factory=list, init=False)  # of full history blocks
    hashed_blocks: int = field(default=0, init=False)  # leading table blocks in the prefix index
    resuming: bool = field(default=False, init=False)  # paused no longer, once there is a place
    paused_for: str | None = field(default=None, init=False)  # id in need; None: an action's pause
    recovering: bool = field(default=False, init=False)  # resumed, and no output since
    preempted_in_recovery: bool = field(default=False, init=False)  # and no output since

    delivered_step: int | None = field(default=None, init=False)  # of the newest output
    logprobs: list[float] = field(
        default_factory=list, init=False
    )  # no event holds what is measured
    finish_reason: str | None = field(default=None, init=False)
    message: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if not self.prompt:
            raise BadInput(f"request {self.id!r}: the prompt is empty; give at least one token.")
        if self.max_tokens < 1:
            raise BadInput(
                f"request {self.id!r}: max_tokens = {self.max_tokens} must be 1 or more."
            )
        if self.n < 1:
            raise BadInput(f"request {self.id!r}: n = {self.n} must be 1 or more.")
        self.history = list(self.prompt)

    @property
    def outputs(self) -> list[int]:
        """Selected output tokens, oldest first."""
        return self.history[len(self.prompt) :]

    @property
    def num_outputs(self) -> int:
        return len(self.history) - len(self.prompt)

    @property
    def samplings(self) -> tuple[Sampling, ...]:
        """How each token that follows the history is to be selected: `n` first tokens, then one."""
        if self.num_outputs:
            return (self.sampling,)
        seed = self.sampling.seed
        return tuple(replace(self.sampling, seed=seed + fork) for fork in range(self.n))

    @property
    def sample_ids(self) -> tuple[str, ...]:
        """The ids of the samples of this prompt: its own first, then its forks'."""
        return (self.id, *(f"{self.id}.{number}" for number in range(2, self.n + 1)))

    def fork(self, number: int) -> Request:
        """Sample `number` (from 1) of the same prompt, as far as it is computed; blocks not yet."""
        fork = Request(
            id=self.sample_ids[number],
            prompt=self.prompt,
            max_tokens=self.max_tokens,
            priority=self.priority,
            arrival_step=self.arrival_step,
            sampling=replace(self.sampling, seed=self.sampling.seed + number),
            stop=self.stop,
            ignore_eos=self.ignore_eos,
        )
        fork.ever_computed = self.ever_computed
        fork.prefix_hashes = self.prefix_hashes[: self.hashed_blocks]
        return fork

    @property
    def live(self) -> bool:
        return self.state not in (RequestState.PENDING, RequestState.FINISHED)

    @property
    def most_kv(self) -> int:
        """Positions that KV can be needed for: the last output is never processed."""
        return len(self.prompt) + self.max_tokens - 1


@dataclass(frozen=True, slots=True)
class ScheduledRequest:
    """A request's share of one step: `tokens` are its history from position `start` on.

    `table` covers every position up to start + len(tokens). One token after the last of them is to
    be selected for each entry of `sampling` (none: more of the history is still to come).
    """

    id: str
    tokens: tuple[int, ...]
    start: int
    table: tuple[int, ...]
    sampling: tuple[Sampling, ...]

    @property
    def end(self) -> int:
        """Positions with KV once this is executed."""
        return self.start + len(self.tokens)


@dataclass(frozen=True, slots=True)
class Sampled:
    """A selected token and, when asked for, its log-probability (natural log, before temperature)."""

    id: str
    token: int
    logprob: float | None = None


Batch = Sequence[ScheduledRequest]
