"""Seats, owners and limits, with a clock of our own; no server."""

from __future__ import annotations

import asyncio
import re
from itertools import product

import pytest
from apart import run

from kvlab.server import tokens
from kvlab.server.frames import Message, Refused
from kvlab.server.room import MOST_SOCKETS, Bucket, Full, Room

WORD = Message("comm_msg", (b"{}",) * 4, 100, beat=False)
BEAT = Message("comm_msg", (b"{}",) * 4, 100, beat=True)


class Wire:
    """A websocket that remembers whether it was ended."""

    ended = False

    def end(self) -> None:
        self.ended = True


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ended() -> list[str]:
    return []


@pytest.fixture
def room(clock: Clock, ended: list[str]) -> Room:
    async def stop(kernel: str) -> None:
        ended.append(kernel)

    return Room(stop, seats=3, pages=2, abandoned_seconds=90, idle_seconds=1800, clock=clock)


def sit(room: Room, owner: str, kernel: str):
    session = room.enter(owner)
    session.kernel = kernel
    session.connect(Wire())
    return session


def test_a_room_has_so_many_seats(room: Room):
    for number in range(3):
        sit(room, f"v{number}", f"k{number}")
    with pytest.raises(Full) as refused:
        room.enter("late")
    assert not refused.value.own
    run(room.end(room.sessions[1]))
    assert room.enter("late")


def test_nobody_takes_the_others_seats_with_tabs(room: Room):
    sit(room, "a", "k1")
    sit(room, "a", "k2")
    with pytest.raises(Full) as refused:
        room.enter("a")
    assert refused.value.own


def test_a_page_that_is_loaded_again_takes_its_own_seat(room: Room, ended: list[str]):
    async def again() -> None:
        first = sit(room, "a", "k1")
        sit(room, "b", "k2")
        sit(room, "c", "k3")
        first.disconnect(next(iter(first.sockets)))
        room.enter("a").kernel = "k4"
        await asyncio.gather(*room.ending)

    run(again())
    assert ended == ["k1"]
    assert [one.kernel for one in room.sessions] == ["k2", "k3", "k4"]


def test_who_is_away_gives_way_in_a_full_room(room: Room, clock: Clock, ended: list[str]):
    async def crowd() -> None:
        first, second, _ = (sit(room, name, name) for name in "abc")
        for one in (second, first):
            one.disconnect(next(iter(one.sockets)))
            clock.now += 5
        with pytest.raises(Full):
            room.enter("d")
        clock.now += 12
        room.enter("d")
        await asyncio.gather(*room.ending)

    run(crowd())
    assert ended == ["b"]


def test_a_session_ends_once_whoever_ends_it(room: Room, ended: list[str]):
    """Its seat was given to somebody else while its page was still written, which then broke off."""

    async def twice() -> None:
        for number, (one, other) in enumerate(product((room.drop, room.end), repeat=2)):
            session = sit(room, "a", f"k{number}")
            for way in (one, other):
                if (ending := way(session)) is not None:
                    await ending
            await asyncio.gather(*room.ending)

    run(twice())
    assert ended == ["k0", "k1", "k2", "k3"]
    assert room.sessions == []


def test_a_kernel_is_there_for_its_owner_alone(room: Room):
    mine = sit(room, "a", "k1")
    assert room.find("k1", "a") is mine
    assert room.find("k1", "b") is None
    assert room.find("", "a") is None


def test_the_abandoned_and_the_idle_end(room: Room, clock: Clock, ended: list[str]):
    gone, quiet, beating = (sit(room, name, name) for name in "abc")
    wires = [next(iter(one.sockets)) for one in (gone, quiet, beating)]
    gone.disconnect(wires[0])
    clock.now += 89
    run(room.sweep())
    assert ended == []
    clock.now += 2
    run(room.sweep())
    assert ended == ["a"]
    clock.now += 1000
    beating.spend(BEAT)  # the page's own: nobody is there
    quiet.spend(WORD)
    clock.now += 900
    run(room.sweep())
    assert ended == ["a", "c"]
    assert wires[2].ended


def test_a_page_that_is_long_in_the_making_is_not_abandoned(
    room: Room, clock: Clock, ended: list[str]
):
    session = room.enter("a")
    session.kernel = "k"
    clock.now += 1000
    run(room.sweep())
    session.sent, session.seen = True, clock()
    clock.now += 89
    run(room.sweep())
    assert ended == []
    clock.now += 2
    run(room.sweep())
    assert ended == ["k"]


def until_refused(session, message: Message) -> tuple[int, str]:
    for number in range(5000):
        try:
            session.spend(message)
        except Refused as error:
            return number, str(error)
    return 5000, ""


def test_a_session_says_only_so_much(room: Room, clock: Clock):
    session = sit(room, "a", "k")
    assert until_refused(session, WORD) == (600, "too many messages a second")
    clock.now += 1
    session.spend(WORD)
    large = Message("comm_msg", (), 4_000_000, beat=False)
    assert until_refused(session, large) == (3, "too many bytes a second")
    for _ in range(MOST_SOCKETS - 1):
        session.connect(Wire())
    with pytest.raises(Refused, match="connections"):
        session.connect(Wire())


def test_a_bucket_fills_at_its_rate(clock: Clock):
    bucket = Bucket(2, 5, clock)
    assert [bucket.take() for _ in range(6)] == [True] * 5 + [False]
    clock.now += 1
    assert [bucket.take() for _ in range(3)] == [True, True, False]
    clock.now += 1000
    assert bucket.take(5)
    assert not bucket.take()


def test_tokens_can_be_read_and_typed():
    made = {tokens.new_token() for _ in range(50)}
    assert len(made) == 50
    assert all(re.fullmatch(r"[2-9A-HJKMNP-Z]{4}-[2-9A-HJKMNP-Z]{4}", one) for one in made)
    assert tokens.plain(" 7k3m x9qf\n") == tokens.plain("7K3M-X9QF") == "7K3MX9QF"
