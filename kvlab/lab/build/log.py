"""What really happened in a learner's engine: told as events, and held against the truth.

The truth is what the frame sees for itself: which blocks stand in which table, what was written,
what the user has received. A Fault is what cannot go on; a doubt is what will show in the words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from kvlab.engine.event_log import EventLog
from kvlab.engine.events import (
    Admitted,
    BlockAllocated,
    BlockCopied,
    BlockNeeded,
    BlockShared,
    Finished,
    Forked,
    HostBlockReleased,
    StepStarted,
    SwapInAdvanced,
    SwapInFinished,
    SwapInStarted,
    SwapOutAdvanced,
    SwapOutFinished,
    SwapOutStarted,
    TokenDelivered,
    TokenSampled,
    Unscheduled,
)
from kvlab.engine.report import StepReport
from kvlab.engine.request import Sampling, ScheduledRequest
from kvlab.engine.resume_method import Resumption
from kvlab.engine.runner import Runner, TextStream
from kvlab.lab.build.guard import Fault
from kvlab.lab.build.parts import Copy, Request, Watched
from kvlab.runs.run import Ground, now
from kvlab.trace.document import Trace
from kvlab.trace.recorder import Recorder


class Log:
    """Keeps the truth beside a frame and records its run."""

    def __init__(self, frame: Watched, runner: Runner) -> None:
        self._frame = frame
        self._runner = runner
        self._events = EventLog()
        self._texts: dict[str, TextStream] = {}
        self._tables: dict[str, list[int]] = {}  # as last seen
        self._known: dict[str, list[int]] = {}  # prompt and delivered outputs
        self._valid: dict[str, int] = {}  # positions whose KV lies in its table
        self._ever: Counter[str] = Counter()
        self._sent: dict[str, int] = {}  # the step of its newest output
        self._stored: dict[int, int | None] = {}  # by host block: of which entry of a table
        self.why = "prefill"
        self.preemptions: list[str] = []
        """Everybody who was preempted, each time."""
        self.block_copied: tuple[int, int] | None = None
        self.doubts: list[tuple[int, str]] = []
        shim = SimpleNamespace(config=frame.config, costs=None, requests={}, queues=None)
        self._shim = shim
        self._recorder = Recorder(cast(Any, shim), None)
        self._idle = 0
        self._host_free = frame.config.host_blocks

    def doubt(self, sentence: str) -> None:
        """Something is wrong that the words will show; the run goes on."""
        self.doubts.append((self._frame.steps, sentence))

    def ever(self, request: Request) -> int:
        """Positions of a request that were computed at least once."""
        return self._ever[request.id]

    def sampling(self, samples: bool) -> tuple[Sampling, ...]:
        return (Sampling(),) if samples else ()

    @property
    def _order(self) -> dict[str, tuple[str, ...]]:
        frame = self._frame
        queues = {"running": frame.running, "waiting": frame.waiting, "paused": []}
        return {name: tuple(request.id for request in of) for name, of in queues.items()}

    def _free(self) -> int:
        held = {block for table in self._tables.values() for block in table}
        return self._frame.num_blocks - len(held)

    # A step.

    def begin(self) -> None:
        self._events.step = self._frame.steps
        order: dict[str, Any] = self._order
        self._events.record(StepStarted(**order, free=self._free()))

    def close(self) -> None:
        """The step is over, or broke off here."""
        self._recorder.record(StepReport(self._frame.steps, self._events.take()), 0.0, 0.0)

    def account(self) -> None:
        """At a step's end everything has to be accounted for. Raises Fault."""
        frame, free = self._frame, self._free()
        if frame.pool.free != free:
            raise Fault(
                f"your pool has {frame.pool.free} free blocks, but {free} of {frame.num_blocks} are in "
                "no table: what is released comes back once, and nothing else does"
            )
        if frame.host.free != self._host_free:
            raise Fault(
                f"the host pool has {frame.host.free} free blocks, but {self._host_free} of "
                f"{frame.config.host_blocks} store nothing"
            )
        queued = Counter(request.id for request in [*frame.running, *frame.waiting])
        for id, known in self._known.items():
            request, copying = frame.requests[id], id in {c.request.id for c in frame.copies}
            if request.history != known:
                raise Fault(
                    f"the history of {id} has {len(request.history)} tokens where prompt and outputs "
                    f"make {len(known)}: what is known stays known"
                )
            times = 0 if id in frame.ended else 1
            room = len(request.table) * frame.block_size
            if times and request.computed > room and not request.host_table:
                raise Fault(
                    f"{id} is said to have KV for {request.computed} positions; its table has room "
                    f"for {room}"
                )
            if request in frame.running and request.host_table and not copying:
                raise Fault(f"{id} runs, and its host table still is {request.host_table}")
            if queued[id] > 1 or (queued[id] != times and not copying):
                raise Fault(
                    f"{id} stands {queued[id]} times in `running` and `waiting` together; "
                    f"it belongs there {'once' if times else 'no more'}"
                )
        holders = Counter(block for table in self._tables.values() for block in table)
        for block, count in holders.items():
            if frame.references.get(block) != count:
                raise Fault(
                    f"P{block} is in {count} tables, `references` says {frame.references.get(block)}"
                )
        self._idle = 0 if frame.batch or frame.copies else self._idle + 1
        if self._idle > 2 and frame.has_work and not frame.to_come:
            raise Fault("nothing has run for three steps, and nothing will ever change that")
        self.close()

    # Tables.

    def look(self) -> None:
        """See what became of the tables since the last look. Raises Fault for what no table can be."""
        frame = self._frame
        changed = {}
        for id, request in frame.requests.items():
            table = request.table
            if not isinstance(table, list) or any(
                isinstance(b, bool) or not isinstance(b, int) or not 0 <= b < frame.num_blocks
                for b in table
            ):
                raise Fault(
                    f"the table of {id} is {table!r}; it is a list of blocks, 0 to "
                    f"{frame.num_blocks - 1}"
                )
            if table != self._tables.get(id, []):
                changed[id] = list(table)
        for id, now_held in changed.items():
            self._dropped(id, self._tables.get(id, []), now_held)
        for id, now_held in changed.items():
            self._added(id, self._tables.get(id, []), now_held)
        holders = Counter(b for request in frame.requests.values() for b in request.table)
        for block, count in holders.items():
            if count > max(1, frame.references.get(block, 1)):
                who = [r.id for r in frame.requests.values() if block in r.table]
                if len(who) == 1:
                    raise Fault(f"P{block} stands twice in the table of {who[0]}")
                if frame.shares:
                    raise Fault(
                        f"P{block} is in the tables of {' and '.join(who)}, and `references` counts "
                        f"{frame.references.get(block)}"
                    )
                raise Fault(
                    f"P{block} was handed out while {who[0]} still held it: it is in the tables of "
                    f"{' and '.join(who)} at once"
                )

    def _dropped(self, id: str, before: list[int], after: list[int]) -> None:
        if self.block_copied and len(before) == len(after):
            source, block = self.block_copied
            places = [at for at in range(len(before)) if (before[at], after[at]) == (source, block)]
            if places:
                self.block_copied = None
                before = [*before[: places[0]], block, *before[places[0] + 1 :]]
                self._tables[id] = before
                self._events.record(
                    BlockCopied(id=id, logical=places[0], source=source, block=block)
                )
        keep = _common(before, after)
        gone = before[keep:]
        if not gone:
            return
        frame = self._frame
        reading = {
            block for copy in frame.copies if copy.out and not copy.done for block, _ in copy.pairs
        }
        if lost := [block for block in gone if block in reading]:
            self.doubt(
                f"P{lost[0]} of {id} was released while the copy out was still to read it: whoever "
                "gets it may write over what has not been stored"
            )
        self._tables[id] = before[:keep]
        held = {b for table in self._tables.values() for b in table}
        self._valid[id] = min(self._valid.get(id, 0), keep * frame.block_size)
        self._events.released(
            cast(Any, frame.requests[id]),
            self.why if self.why in ("finished", "swapped_out") else "preempted",
            gone,
            freed=[b for b in gone if b not in held],
            cached=[],
            free=self._free(),
            next_up=None,
        )

    def _added(self, id: str, before: list[int], after: list[int]) -> None:
        fresh = after[len(before) :]
        if fresh:
            self._tables[id] = after
            why = self.why if self.why in ("recompute", "restore", "decode") else "prefill"
            logical, free = len(before), self._free()
            self._events.record(
                BlockAllocated(id=id, why=why, blocks=tuple(fresh), logical=logical, free=free)
            )

    # Requests.

    def arrived(self, request: Request) -> None:
        self._events.arrived(cast(Any, request))
        self._open(request)

    def _open(self, request: Request) -> None:
        self._known[request.id] = list(request.history)
        self._texts[request.id] = self._runner.text_stream([])
        self._shim.requests[request.id] = SimpleNamespace(
            id=request.id,
            prompt=request.prompt,
            max_tokens=request.max_tokens,
            history=self._known[request.id],
            logprobs=[],
        )

    def entered(self, request: Request, start: int) -> None:
        """It comes in, fresh or for recomputation; `start` positions are shared."""
        if self._ever[request.id]:
            self._resumed(request, "recompute", start)
        else:
            history = len(request.history)
            self._events.record(Admitted(id=request.id, history=history, from_cache=start))

    def _resumed(self, request: Request, why: str, kv: int) -> None:
        shared = 0 if why == "swap" else kv
        told = SimpleNamespace(
            id=request.id, history=request.history, ever_computed=self._ever[request.id]
        )
        self._events.resumed(cast(Any, told), why, kv, from_cache=shared)

    def shared(self, request: Request) -> None:
        table, frame = tuple(request.table), self._frame
        self._tables[request.id] = list(table)
        self._valid[request.id] = len(table) * frame.block_size
        refs = tuple(frame.references.get(block, 0) for block in table)
        tokens, free = len(table) * frame.block_size, self._free()
        self._events.record(
            BlockShared(id=request.id, blocks=table, logical=0, refs=refs, tokens=tokens, free=free)
        )

    def forked(self, other: Request, parent: Request) -> None:
        self._open(other)
        self._tables[other.id] = list(other.table)
        self._valid[other.id] = self._ever[other.id] = other.computed
        refs = tuple(self._frame.references.get(block, 0) for block in other.table)
        self._events.record(
            Forked(
                id=other.id,
                parent=parent.id,
                history=len(other.history),
                kv=other.computed,
                max_tokens=other.max_tokens,
                blocks=tuple(other.table),
                refs=refs,
            )
        )

    def needed(self, request: Request, upto: int) -> None:
        """Said before room is made, where there is too little."""
        needs = -(-upto // self._frame.block_size) - len(request.table)
        free = self._frame.pool.free
        if needs > free:
            at = len(request.table)
            first = max(request.computed, at * self._frame.block_size)
            self._events.record(
                BlockNeeded(id=request.id, position=first, logical=at, needs=needs, free=free)
            )
            self._in_need = request.id

    _in_need: str | None = None

    def leaves(self, victim: Request, method: str) -> None:
        """A request is about to be preempted."""
        self.look()
        frame = self._frame
        if victim.id in frame.batch:
            tokens = frame.batch[victim.id]
            self._events.record(Unscheduled(id=victim.id, tokens=tokens))
        frame.preempted.append(victim.id)
        self.preemptions.append(victim.id)
        told = SimpleNamespace(
            id=victim.id,
            history=victim.history,
            computed=victim.computed,
            num_outputs=victim.outputs,
            table=victim.table,
        )
        self._events.preempted(
            cast(Any, told),
            self._in_need,
            "newest",
            Resumption(method),
            reclaimable=len(victim.table),
            stays=0,
        )
        self.why = "preempted"

    def scheduled(self, request: Request, tokens: int) -> None:
        at = request.computed // self._frame.block_size
        block = request.table[at]
        if others := [id for id, t in self._tables.items() if block in t and id != request.id]:
            self.doubt(
                f"{request.id} writes position {request.computed} into P{block}, which "
                f"{others[0]} holds, too"
            )
        valid = self._valid.get(request.id, 0)
        if request.computed > valid:
            self.doubt(
                f"{request.id} goes on from position {request.computed}, but the blocks of its table "
                f"have KV of {valid} positions only"
            )
        elif request.computed < valid:
            self.doubt(
                f"{request.id} computes position {request.computed} again, although its blocks have KV "
                f"of {valid} positions"
            )
        ever = self._ever[request.id]
        why = "decode" if request.outputs else "prefill"
        told = SimpleNamespace(id=request.id, computed=request.computed, ever_computed=ever)
        samples = request.computed + tokens == len(request.history)
        why = "recompute" if request.computed < ever else why
        self._events.scheduled(cast(Any, told), why, tokens, samples=samples)

    def written(self, row: ScheduledRequest) -> None:
        self._events.kv_written(row, self._ever[row.id], self._frame.block_size)
        self._valid[row.id] = row.end
        self._ever[row.id] = max(self._ever[row.id], row.end)

    def delivered(self, request: Request) -> None:
        token, index = request.history[-1], request.outputs - 1
        self._known[request.id].append(token)
        before, step = self._sent.get(request.id), self._frame.steps
        self._sent[request.id] = step
        self._events.record(TokenSampled(id=request.id, index=index, token=token))
        text = self._texts[request.id].push(token)
        gap = None if before is None else step - before
        self._events.record(
            TokenDelivered(id=request.id, index=index, token=token, text=text, gap=gap)
        )

    def finished(self, request: Request) -> None:
        outputs = request.outputs
        self._events.record(Finished(id=request.id, why="length", outputs=outputs, message=None))

    # Copies.

    def copy_started(self, copy: Copy) -> None:
        blocks, hosts = zip(*copy.pairs, strict=True) if copy.pairs else ((), ())
        kv = copy.request.computed
        whole: dict[str, Any] = {"id": copy.request.id, "copy": copy.number, "kv": kv}
        whole |= {"places": tuple(range(len(blocks))), "blocks": blocks, "host_blocks": hosts}
        if copy.out:
            self._host_free -= len(hosts)
            if kv > self._valid.get(copy.request.id, 0):
                self.doubt(f"the copy out of {copy.request.id} begins before its KV is written")
            if kv > len(blocks) * self._frame.block_size:
                self.doubt(f"KV of {kv} positions is not stored in {len(blocks)} blocks")
            self._events.record(SwapOutStarted(**whole))
        else:
            self._resumed(copy.request, "swap", kv)
            self._events.record(SwapInStarted(**whole))

    def copied(self, copy: Copy, pairs: Sequence[tuple[int, int]]) -> None:
        blocks, hosts = zip(*pairs, strict=True)
        named: dict[str, Any] = {"id": copy.request.id, "copy": copy.number}
        newest = named | {"blocks": blocks, "host_blocks": hosts}
        newest |= {"done": copy.moved, "total": len(copy.pairs)}
        size, kv = self._frame.block_size, copy.request.computed
        for block, host in pairs:
            held = copy.request.table.index(block) if block in copy.request.table else None
            if copy.out:
                self._stored[host] = held
            elif self._stored.get(host) != held:
                self.doubt(
                    f"entry {held} of the table of {copy.request.id} is filled with what was stored "
                    f"of entry {self._stored.get(host)}"
                )
        if copy.out:
            stored = min(kv, copy.moved * size)
            self._events.record(SwapOutAdvanced(**newest, host_kv=stored))
            if copy.done:
                self._events.record(SwapOutFinished(**named, kv=kv))
        else:
            self._events.record(SwapInAdvanced(**newest))
            if copy.done:
                self._valid[copy.request.id] = kv
                table = tuple(copy.request.table)
                self._events.record(
                    SwapInFinished(
                        **named, blocks=tuple(b for b, _ in copy.pairs), kv=kv, table=table
                    )
                )

    def landed(self, copy: Copy) -> None:
        """The piece was told that the copy is complete."""
        hosts = tuple(host for _, host in copy.pairs)
        if not copy.out:
            self._host_free += len(hosts)
            self._events.record(
                HostBlockReleased(
                    id=copy.request.id,
                    why="restored",
                    host_blocks=hosts,
                    host_free=self._host_free,
                )
            )
        elif copy.request.table:
            raise Fault(
                f"the KV of {copy.request.id} is stored, but its table still holds "
                f"{len(copy.request.table)} blocks: nobody else can have them"
            )

    # The trace.

    def trace(self, ground: Ground) -> Trace:
        """What was recorded until now."""
        self._shim.queues = SimpleNamespace(order=self._order)
        if self._events.events:
            self.close()
        return self._recorder.trace(
            ground.scenario.document,
            ground.run | now(),
            ground.model,
            ground.token_text,
            ground.bytes_per_block,
        )


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
