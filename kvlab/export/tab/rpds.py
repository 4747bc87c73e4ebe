"""Persistent maps, sets and lists as far as jsonschema uses them, in plain Python.

The `rpds` that is installed here is compiled for this machine. In the archive for the tab this file
stands in its place; each change copies, which for a few dozen entries costs nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any


class HashTrieMap(dict[Any, Any]):
    """A map that never changes: `insert`, `remove` and `update` give another one."""

    @classmethod
    def convert(cls, value: Any) -> HashTrieMap:
        """The value itself where it is one of these."""
        return value if isinstance(value, cls) else cls(value)

    def insert(self, key: Hashable, value: Any) -> HashTrieMap:
        return HashTrieMap({**self, key: value})

    def remove(self, key: Hashable) -> HashTrieMap:
        """Raises KeyError for a key that is not there."""
        rest = HashTrieMap(self)
        del rest[key]
        return rest

    def update(self, *more: Mapping[Any, Any], **named: Any) -> HashTrieMap:  # type: ignore[override]
        whole: dict[Any, Any] = dict(self)
        whole.update(*more, **named)
        return HashTrieMap(whole)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self))


class HashTrieSet(frozenset[Any]):
    """A set likewise."""

    def insert(self, value: Hashable) -> HashTrieSet:
        return HashTrieSet(self | {value})

    def update(self, *more: Iterable[Any]) -> HashTrieSet:
        return HashTrieSet(self.union(*more))


class List(tuple[Any, ...]):
    """A list likewise, whose front grows."""

    def push_front(self, value: Any) -> List:
        return List((value, *self))
