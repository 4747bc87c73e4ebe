"""Who sits where: which visitor has which kernel, how many there may be, and how much each may say.

A session is one open page with a kernel of its own. It belongs to the visitor whose cookie asked for
the page: to anybody else it does not exist. It ends when its page is closed, when no page has been
connected for a while, or when nobody has done anything on it for long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from kvlab.server.frames import Message, Refused

MOST_SOCKETS = 4
"""Of one session at a time: a page needs one, and a second one while it connects anew."""
MOST_PAGES = 3
"""Of one visitor, where the room is a class: nobody takes the others' seats by opening tabs."""
AWAY_SECONDS = 20
"""Without a connection; then a seat in a full room goes to somebody who is there."""

Clock = Callable[[], float]


class Full(Exception):
    """Every seat is taken. `own`: by this visitor, who has too many pages open."""

    def __init__(self, own: bool = False) -> None:
        super().__init__("the room is full")
        self.own = own


class Socket(Protocol):
    """What a session needs of a websocket."""

    def end(self) -> None: ...


class Bucket:
    """A token bucket: `burst` at once, and `rate` a second in the long run."""

    def __init__(self, rate: float, burst: float, clock: Clock = time.monotonic) -> None:
        self.rate, self.burst, self.clock = rate, burst, clock
        self.left, self.at = burst, clock()

    def take(self, amount: float = 1) -> bool:
        """Take it, if there is that much."""
        now = self.clock()
        self.left = min(self.burst, self.left + (now - self.at) * self.rate)
        self.at = now
        if amount > self.left:
            return False
        self.left -= amount
        return True


@dataclass(eq=False)
class Session:
    """One page and its kernel. Its limits outlive its websockets: connecting anew refills nothing."""

    owner: str
    clock: Clock = time.monotonic
    kernel: str = ""
    """Its id; empty until the kernel is known."""
    sockets: set[Socket] = field(default_factory=set)
    sent: bool = False
    """Whether its page is there as a whole: before, nothing can be connected to it."""

    def __post_init__(self) -> None:
        self.seen = self.said = self.clock()
        # A page at work sends a few messages a second, after a while without network a burst.
        self.messages = Bucket(100, 600, self.clock)
        self.bytes = Bucket(1_000_000, 16_000_000, self.clock)
        self.openings = Bucket(0.2, 30, self.clock)

    def spend(self, message: Message) -> None:
        """Count a message against the session's limits. Raises Refused beyond them."""
        if not self.messages.take():
            raise Refused("too many messages a second")
        if not self.bytes.take(message.size):
            raise Refused("too many bytes a second")
        if message.kind == "comm_open" and not self.openings.take():
            raise Refused("too many comms")
        if not message.beat:
            self.said = self.clock()

    def connect(self, socket: Socket) -> None:
        """A page is there. Raises Refused where there are too many at once."""
        if len(self.sockets) >= MOST_SOCKETS:
            raise Refused("too many connections")
        self.sockets.add(socket)
        self.sent = True
        self.said = self.clock()

    def disconnect(self, socket: Socket) -> None:
        self.sockets.discard(socket)
        self.seen = self.clock()


@dataclass
class Room:
    """All sessions. `stop` ends a kernel by its id; `freed` is called when a seat is free again."""

    stop: Callable[[str], Awaitable[None]]
    seats: int
    freed: Callable[[], None] = lambda: None
    pages: int = MOST_PAGES
    abandoned_seconds: float = 90
    idle_seconds: float = 1800
    cull_connected: bool = True
    clock: Clock = time.monotonic

    def __post_init__(self) -> None:
        self.sessions: list[Session] = []
        self.ending: set[asyncio.Future[None]] = set()

    def enter(self, owner: str) -> Session:
        """A seat for a page of this visitor. Raises Full. Sessions of the same visitor that no page
        is connected to give theirs up first: those are pages that were closed or loaded again. In a
        full room so does whoever has been away longest."""
        own = [one for one in self.sessions if one.owner == owner]
        full = len(self.sessions) >= self.seats
        if full or len(own) >= self.pages:
            gone = [one for one in own if one.kernel and not one.sockets]
            if full and not gone:
                since = self.clock() - AWAY_SECONDS
                away = [one for one in self.sessions if not one.sockets and one.seen < since]
                gone = [one for one in away if one.kernel]
            if gone:
                self.drop(min(gone, key=lambda one: one.seen))
                own = [one for one in self.sessions if one.owner == owner]
        if len(self.sessions) >= self.seats:
            raise Full
        if len(own) >= self.pages:
            raise Full(own=True)
        session = Session(owner, self.clock)
        self.sessions.append(session)
        return session

    def find(self, kernel: str, owner: str) -> Session | None:
        """The session with this kernel, if it is this visitor's."""
        for one in self.sessions:
            if one.kernel == kernel and one.owner == owner:
                return one
        return None

    def drop(self, session: Session) -> None:
        """End it, without waiting for the kernel's end."""
        if self._leave(session):
            task = asyncio.ensure_future(self._end(session))
            self.ending.add(task)  # a task that nobody holds may be collected
            task.add_done_callback(self.ending.discard)

    async def end(self, session: Session) -> None:
        """End a session: its place is free at once, then its sockets close and its kernel stops."""
        if self._leave(session):
            await self._end(session)

    def _leave(self, session: Session) -> bool:
        """False where it has ended already: for somebody else, while its page was still written."""
        if session not in self.sessions:
            return False
        self.sessions.remove(session)
        return True

    async def _end(self, session: Session) -> None:
        for socket in tuple(session.sockets):
            socket.end()
        if session.kernel:
            await self.stop(session.kernel)
        self.freed()

    async def sweep(self) -> None:
        """End what is abandoned or idle."""
        now = self.clock()
        for one in tuple(self.sessions):
            away = one.sent and not one.sockets
            gone = away and now - one.seen > self.abandoned_seconds
            idle = now - one.said > self.idle_seconds and (self.cull_connected or not one.sockets)
            if one.kernel and (gone or idle):
                await self.end(one)
