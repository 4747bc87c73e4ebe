"""What an event changes in the state, in a few operations that know nothing of an engine.

A change is a tuple whose first entry names the operation; `Changes` makes them while it applies them
to a state, and leaves out what changes nothing:

    ("state", None, values)                  counts of the whole run by name
    ("blocks" | "host_blocks", number, values)
    ("request", id, values)
    ("arrive", id, history)                  a request that was not there
    ("splice", id, name, at, removed, items) a list of a request
    ("write", block, slot, id, position, count, how)  KV of positions from `position` on, by this event
    ("mark", pool, number, slot, stop, name, value)   the cells from `slot` up to `stop` that hold KV
    ("copy", pool, number, pool, number)     cells of one block as those of another

Cells and lists are never changed in place, only replaced, so that whoever kept one still has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

State = dict[str, Any]
Change = tuple[Any, ...]
Block = dict[str, Any]

COUNTED = {
    "blocks": {"free": "free", "in_flight": "in_flight"},
    "host_blocks": {"free": "host_free"},
}
"""Which count of the state follows a status of which pool."""


class Blocks(Sequence[Block]):
    """The blocks of a pool, of which only those exist that something was done with."""

    def __init__(self, total: int, untouched: Block) -> None:
        self._total = total
        self.untouched = untouched
        self.touched: dict[int, Block] = {}

    def __len__(self) -> int:
        return self._total

    @overload
    def __getitem__(self, at: int) -> Block: ...
    @overload
    def __getitem__(self, at: slice) -> list[Block]: ...
    def __getitem__(self, at: int | slice) -> Block | list[Block]:
        """A block to look at. Raises IndexError for one that the pool does not have."""
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(self._total))]
        if not 0 <= at < self._total:
            raise IndexError(at)
        return self.touched.get(at, self.untouched)

    def __iter__(self) -> Iterator[Block]:
        return (self.touched.get(at, self.untouched) for at in range(self._total))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Blocks):
            return NotImplemented
        used = self.touched.keys() | other.touched.keys()
        return len(self) == len(other) and all(self[at] == other[at] for at in used)

    __hash__ = None  # type: ignore[assignment]

    def own(self, at: int) -> Block:
        """A block to change. Raises IndexError likewise."""
        if at not in self.touched:
            self.touched[at] = dict(self[at])
        return self.touched[at]


def as_json(state: State) -> State:
    """The state as plain data, every block written out."""
    return state | {name: [dict(one) for one in state[name]] for name in COUNTED}


class Changes:
    """Applies changes to a state and keeps them, for one event."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.requests: dict[str, dict[str, Any]] = state["requests"]
        self.blocks: Blocks = state["blocks"]
        self.hosts: Blocks = state["host_blocks"]
        self.made: list[Change] = []
        self._counts: dict[str, int] = {}

    def done(self) -> list[Change]:
        """Counts and cursor are brought up to date; everything that was changed."""
        self.set_state(**{name: self.state[name] + by for name, by in self._counts.items()})
        self.state["cursor"] += 1
        return self.made

    def _note(self, operation: str, of: str | int | None, name: str, value: Any) -> None:
        """Another value of what was changed last is a part of that change."""
        if self.made and self.made[-1][:2] == (operation, of):
            self.made[-1][2][name] = value
        else:
            self.made.append((operation, of, {name: value}))

    def set_state(self, **values: Any) -> None:
        for name, value in values.items():
            if self.state[name] != value:
                self.state[name] = value
                self._note("state", None, name, value)

    def set_block(self, number: int, **values: Any) -> None:
        self._set("blocks", number, values)

    def set_host(self, number: int, **values: Any) -> None:
        self._set("host_blocks", number, values)

    def _set(self, pool: str, number: int, values: dict[str, Any]) -> None:
        block = self.state[pool].own(number)
        for name, value in values.items():
            before = block[name]
            if before == value:
                continue
            if name == "status":
                for status, count in COUNTED[pool].items():
                    by = (value == status) - (before == status)
                    self._counts[count] = self._counts.get(count, 0) + by
            block[name] = value
            self._note(pool, number, name, value)

    def set_request(self, id: str, **values: Any) -> None:
        request = self.requests[id]
        for name, value in values.items():
            if request[name] != value:
                request[name] = value
                self._note("request", id, name, value)

    def add_request(self, id: str, history: int) -> None:
        self.requests[id] = new_request(history)
        self.made.append(("arrive", id, history))

    def append(self, id: str, name: str, items: Sequence[int]) -> None:
        self.splice(id, name, len(self.requests[id][name]), 0, items)

    def replace(self, id: str, name: str, items: Sequence[int]) -> None:
        self.splice(id, name, 0, len(self.requests[id][name]), items)

    def splice(self, id: str, name: str, at: int, removed: int, items: Sequence[int]) -> None:
        """Put `items` in the place of `removed` entries of a list, from `at` on."""
        if not removed and not items:
            return
        listed = self.requests[id][name]
        self.requests[id][name] = [*listed[:at], *items, *listed[at + removed :]]
        self.made.append(("splice", id, name, at, removed, list(items)))

    def write(self, number: int, slot: int, id: str, position: int, count: int, how: str) -> None:
        """KV of `count` positions from `position` on lies in a GPU block from `slot` on."""
        block, event = self.blocks.own(number), self.state["cursor"]
        cells = list(block["cells"])
        for at in range(count):
            cells[slot + at] = {
                "id": id,
                "position": position + at,
                "how": how,
                "live": True,
                "event": event,
            }
        block["cells"] = cells
        self.made.append(("write", number, slot, id, position, count, how))

    def mark(
        self, pool: str, number: int, slot: int = 0, stop: int | None = None, **value: Any
    ) -> None:
        """Give one key of the cells that hold KV, from `slot` up to `stop`, another value."""
        ((name, marked),) = value.items()
        before = self.state[pool][number]["cells"]
        stop = len(before) if stop is None else stop
        if all(cell is None or cell[name] == marked for cell in before[slot:stop]):
            return
        fresh = [cell and {**cell, name: marked} for cell in before[slot:stop]]
        self.state[pool].own(number)["cells"] = [*before[:slot], *fresh, *before[stop:]]
        self.made.append(("mark", pool, number, slot, stop, name, marked))

    def copy(self, pool: str, number: int, into: str, target: int) -> None:
        """The cells of a block become those of another, which may lie in the other pool."""
        self.state[into].own(target)["cells"] = self.state[pool][number]["cells"]
        self.made.append(("copy", pool, number, into, target))


def new_request(history: int) -> dict[str, Any]:
    """A request that has arrived with a prompt of `history` tokens."""
    return {
        "state": "waiting",
        "method": None,
        "history": history,
        "kv": 0,
        "host_kv": 0,
        "delivered": 0,
        "outputs": [],
        "table": [],
        "host_table": [],
        "preemptions": 0,
        "unmet": None,
        "batch": None,
        "finish": None,
    }
