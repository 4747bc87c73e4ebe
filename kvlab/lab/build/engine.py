"""The engine that learners build: its frame is given, its decisions are pieces that they write.

A step is: serve the queues (`schedule`), run the model on the batch, deliver. Every decision is a
method that a class of the learner's may bring; what it does not bring is the one given here. The
frame keeps the truth beside it (who holds which block, what the user has received), so that it can
say in which step a piece went wrong, and records what happened as a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kvlab.engine.config import NO_LIMIT, EngineConfig
from kvlab.engine.request import ScheduledRequest
from kvlab.engine.runner import Runner
from kvlab.lab.build.guard import Fault
from kvlab.lab.build.log import Log
from kvlab.lab.build.parts import Copy, Pool, Request


class Frame:
    """What is given: the queues, the step, the model, and the verbs that pieces call."""

    pool_type: type = Pool
    shares = False
    """The pieces count references."""

    def __init__(
        self,
        config: EngineConfig,
        runner: Runner,
        requests: Sequence[Request],
        forks: dict[int, tuple[str, str]] | None = None,
        policy: Callable[..., Any] | None = None,
    ) -> None:
        self.config = config
        self.block_size, self.num_blocks = config.block_size, config.num_blocks
        self.max_running = config.max_running or NO_LIMIT
        self.steps = 0
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.references: dict[int, int] = {}
        """Tables that hold a block, for sharing."""
        self.known: dict[Any, int] = {}
        """Blocks by the hash of their prefix, for sharing."""
        self.requests = {request.id: request for request in requests}
        self._pending = list(requests)
        self._forks = forks or {}
        self._policy = policy
        self._runner = runner
        self.copies: list[Copy] = []
        self._to_move: int | None = None
        self._copied = 0
        self.ended: set[str] = set()
        self.log = Log(self, runner)
        last_first = config.free_order == "vllm_v1"
        self.pool: Any = self.pool_type(config.num_blocks, last_first)
        self.host: Any = self.pool_type(config.host_blocks, False)
        self._begin()

    def _begin(self) -> None:
        self.budget = self.config.step_tokens or NO_LIMIT
        self.batch: dict[str, int] = {}
        """Tokens of each request that go through the model in this step."""
        self.preempted: list[str] = []
        """Who lost its place in this step."""
        self._to_move = self.config.copy_blocks_per_step

    # A step.

    @property
    def to_come(self) -> bool:
        """Some request has not arrived yet."""
        return bool(self._pending)

    @property
    def has_work(self) -> bool:
        return len(self.ended) < len(self.requests)

    def step(self) -> None:
        """Schedule, run the model, deliver. Raises Fault, naming the step, where a piece goes wrong."""
        self.steps += 1
        self._begin()
        self.log.begin()
        self._land()
        for request in [r for r in self._pending if r.arrived < self.steps]:
            self._pending.remove(request)
            self.waiting.append(request)
            self.log.arrived(request)
        if self.steps in self._forks:
            self._fork(*self._forks[self.steps])
        self.schedule()
        self.log.look()
        self._execute()
        self._move()
        self.log.look()
        self.log.account()

    def _execute(self) -> None:
        for id in self.batch:
            if self.requests[id] not in self.running:
                raise Fault(f"{id} was taken out of `running` and still has tokens of this step")
        batch = [self._row(self.requests[id], tokens) for id, tokens in self.batch.items()]
        sampled = {one.id: one.token for one in self._runner.execute(batch)} if batch else {}
        for row in batch:
            self.log.written(row)
            self.requests[row.id].computed = row.end
        for row in batch:
            request = self.requests[row.id]
            if row.id in sampled:
                request.history.append(sampled[row.id])
                self.log.delivered(request)
                if request.outputs >= request.max_tokens:
                    self._finish(request)

    def _row(self, request: Request, tokens: int) -> ScheduledRequest:
        """The row of the batch; the blocks that attention reads are those that `slot` names."""
        end, size = request.computed + tokens, self.block_size
        table = list(request.table)
        for logical in range(-(-end // size)):
            slot = self.slot(request, logical * size)
            last = min(end, (logical + 1) * size) - 1
            for position, given in ((logical * size, slot), (last, self.slot(request, last))):
                right = request.table[logical] * size + position % size
                if given != right:
                    self.log.doubt(
                        f"position {position} of {request.id} lies in slot {right} (block P"
                        f"{right // size}, offset {right % size}), and your `slot` says {given!r}"
                    )
            if not isinstance(slot, int) or not 0 <= slot < self.num_blocks * size:
                raise Fault(
                    f"`slot` gave {slot!r}; slots go from 0 to {self.num_blocks * size - 1}"
                )
            table[logical] = slot // size
        samples = end == len(request.history)
        tokens_now = tuple(request.history[request.computed : end])
        return ScheduledRequest(
            request.id, tokens_now, request.computed, tuple(table), self.log.sampling(samples)
        )

    def _finish(self, request: Request) -> None:
        self.ended.add(request.id)
        self.log.finished(request)
        for queue in (self.running, self.waiting):
            if request in queue:
                queue.remove(request)
        self.log.why = "finished"
        self.release(request)
        self.log.look()

    def _fork(self, id: str, name: str) -> None:
        """A second sample of a request: all its blocks are shared, its newest token is another one."""
        parent = self.requests[id]
        other = Request(name, (*parent.history[:-1], (parent.history[-1] + 1) % 900), 4, self.steps)
        self.requests[name] = other
        self.running.append(other)
        self.share(other, parent.table[: -(-parent.computed // self.block_size)])
        other.computed = parent.computed
        self.log.forked(other, parent)

    # Verbs.

    def left(self, request: Request) -> int:
        """Tokens of its history that have no KV yet."""
        return len(request.history) - request.computed

    def process(self, request: Request, tokens: int) -> None:
        """Give the request its next `tokens` tokens in this step, and the blocks that they need."""
        if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
            raise Fault(f"`process` got {tokens!r} tokens for {request.id}; give it 1 or more")
        if tokens > self.left(request):
            raise Fault(
                f"{request.id} has {self.left(request)} tokens left to process, not {tokens}: "
                "a token goes through the model once"
            )
        if request.id in self.batch:
            raise Fault(f"{request.id} was given tokens twice")
        if tokens > self.budget:
            raise Fault(
                f"{request.id} was given {tokens} tokens; {self.budget} are left of the step"
            )
        end = request.computed + tokens
        self.writable(request)
        self.log.look()
        needs = self.missing(request, end)
        short = -(-end // self.block_size) - len(request.table)
        if max(needs, 0) != max(short, 0):
            raise Fault(
                f"{request.id} holds {len(request.table)} blocks of {self.block_size} and is about to "
                f"have KV for {end} positions: {max(short, 0)} are missing, `missing` says {needs}"
            )
        if needs > 0:
            self.log.why = "recompute" if request.computed < self.log.ever(request) else "decode"
            request.table += self.take(needs)
            self.log.look()
        self.remember(request, end)
        self.batch[request.id] = tokens
        self.budget -= tokens
        self.log.scheduled(request, tokens)

    def take(self, count: int) -> list[int]:
        """Blocks from the pool, each held by one table."""
        free = self.pool.free
        if count > free:
            raise Fault(f"blocks needed: {count}, free: {free}; room has to be made first")
        blocks = self.pool.allocate(count)
        blocks = list(blocks) if isinstance(blocks, tuple) else blocks
        if not isinstance(blocks, list) or len(blocks) != count:
            raise Fault(f"`allocate({count})` gave {blocks!r}; give a list of {count} blocks")
        if self.pool.free != free - count:
            raise Fault(
                f"your pool had {free} free blocks, gave {count} away and says that {self.pool.free} "
                "are left"
            )
        self.references |= dict.fromkeys(blocks, 1)
        return blocks

    def copy_block(self, source: int, target: int) -> None:
        """Copy a GPU block onto another one."""
        self._runner.copy_block(source, target)
        self.log.block_copied = (source, target)

    def unprocess(self, request: Request) -> None:
        """Take back what the request was given in this step."""
        self.budget += self.batch.pop(request.id, 0)

    def pause(self, victim: Request) -> None:
        """Preempt a request by the engine's method, or by recompute where the host has no room."""
        needs = -(-victim.computed // self.block_size)
        if self.config.method == "swap" and self.host.free >= needs > 0:
            self.swap_out(victim)
            self._landed()
        else:
            self.preempt(victim)

    def enter(self, request: Request) -> None:
        """Bring the head of the queue into the batch, restored, sharing, or from its first token."""
        self.waiting.remove(request)
        if request.host_table:
            self.swap_in(request)
            self._landed()
            if request not in self.running:
                return
        else:
            self.running.append(request)
            shared = self.find(request)
            self.log.entered(request, len(shared) * self.block_size)
            if shared:
                self.share(request, shared)
                self.log.shared(request)
        tokens = min(self.left(request), self.budget)
        if tokens:
            self.process(request, tokens)

    def fits(self, request: Request) -> bool:
        """There are free blocks for all of its history, and none of its KV is on its way."""
        if any(copy.request is request for copy in self.copies):
            return False
        blocks = -(-len(request.history) // self.block_size)
        found = [] if request.host_table else self.find(request)
        return bool(blocks - len(found) <= self.pool.free)

    # Copies.

    def copy_out(self, request: Request, blocks: list[int], host_blocks: list[int]) -> Copy:
        """Begin to copy GPU blocks into host blocks; `swapped_out` is called when all have arrived."""
        return self._open(request, True, blocks, host_blocks)

    def copy_in(self, request: Request, host_blocks: list[int], blocks: list[int]) -> Copy:
        """Begin to copy host blocks into GPU blocks; `swapped_in` is called when all are there."""
        return self._open(request, False, blocks, host_blocks)

    def _open(self, request: Request, out: bool, blocks: list[int], hosts: list[int]) -> Copy:
        name = "copy_out" if out else "copy_in"
        if len(blocks) != len(hosts):
            raise Fault(f"`{name}` got {len(blocks)} GPU blocks and {len(hosts)} host blocks")
        self._copied += 1
        copy = Copy(request, out, list(zip(blocks, hosts, strict=True)), self._copied)
        self.log.why = "restore"
        self.log.look()
        self.log.copy_started(copy)
        self.copies.append(copy)
        self._advance(copy)
        return copy

    def _advance(self, copy: Copy) -> None:
        """Move what the step's share allows; without a share all of it."""
        count = len(copy.pairs) if self._to_move is None else self._to_move
        pairs = copy.pairs[copy.moved : copy.moved + count]
        if not pairs:
            return
        self._runner.copy_out(pairs) if copy.out else self._runner.copy_in(
            [(host, block) for block, host in pairs]
        )
        copy.moved += len(pairs)
        if self._to_move is not None:
            self._to_move -= len(pairs)
        self.log.copied(copy, pairs)

    def _move(self) -> None:
        for copy in self.copies:
            self._advance(copy)

    def _landed(self) -> None:
        if self.config.copy_blocks_per_step is None:
            self._land()

    def _land(self) -> None:
        """Tell the pieces of copies that are complete."""
        for copy in [copy for copy in self.copies if copy.done]:
            self.copies.remove(copy)
            self.log.why = "swapped_out"
            (self.swapped_out if copy.out else self.swapped_in)(copy.request)
            self.log.look()
            self.log.landed(copy)

    # Decisions: the given ones.

    def missing(self, request: Request, upto: int) -> int:
        return max(0, -(-upto // self.block_size) - len(request.table))

    def slot(self, request: Request, position: int) -> int:
        logical, offset = divmod(position, self.block_size)
        return request.table[logical] * self.block_size + offset

    def schedule(self) -> None:
        for request in list(self.running):
            tokens = min(self.left(request), self.budget)
            if request not in self.running or not tokens:
                continue
            if self.make_room(request, request.computed + tokens):
                self.process(request, tokens)
        while self.waiting and self.budget and not self.preempted:
            head = self.waiting[0]
            if len(self.running) >= self.max_running or not self.may_enter(head):
                return
            self.enter(head)

    def make_room(self, request: Request, upto: int) -> bool:
        while self.missing(request, upto) > self.pool.free:
            if any(copy.out for copy in self.copies):
                return False
            victim = self.victim(request)
            self.pause(victim)
            if victim is request:
                return False
        return True

    def victim(self, request: Request) -> Request:
        """Whom to pause so that `request` gets a block: a policy that was given, or the newest."""
        if self._policy is None:
            return self.running[0 if self.config.victim == "oldest" else -1]
        chosen = self._policy(list(self.running), request)
        return chosen if isinstance(chosen, Request) else self.requests[chosen]

    def preempt(self, victim: Request) -> None:
        self.unprocess(victim)
        self.release(victim)
        victim.computed = 0
        self.running.remove(victim)
        self.waiting.insert(0, victim)

    def release(self, request: Request) -> None:
        self.pool.release(request.table)
        request.table = []

    def swap_out(self, victim: Request) -> None:
        self.unprocess(victim)
        self.running.remove(victim)
        self.waiting.insert(0, victim)
        victim.host_table = self.host.allocate(-(-victim.computed // self.block_size))
        self.copy_out(victim, victim.table[: len(victim.host_table)], victim.host_table)

    def swapped_out(self, request: Request) -> None:
        self.release(request)

    def swap_in(self, request: Request) -> None:
        request.table = self.take(len(request.host_table))
        self.copy_in(request, request.host_table, request.table)

    def swapped_in(self, request: Request) -> None:
        self.host.release(request.host_table)
        request.host_table = []
        self.running.append(request)

    def find(self, request: Request) -> list[int]:
        return []

    def share(self, request: Request, blocks: list[int]) -> None:
        raise Fault("sharing is not built yet")

    def remember(self, request: Request, upto: int) -> None:
        pass

    def writable(self, request: Request) -> None:
        pass

    def may_enter(self, request: Request) -> bool:
        return self.fits(request)
