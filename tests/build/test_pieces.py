"""What a check says of a learner's piece: the faults of mutants, right ones of other shapes, code that
raises, does not end, or is no piece."""

from __future__ import annotations

from typing import Any

import pytest
from mutants import MUTANTS, Mutant
from solved import NAMES, TEXT, solution

from kvlab import build
from kvlab.draw.pair import Pair
from kvlab.errors import BadInput
from kvlab.lab.build.check import admission_outcome, policy_outcome
from kvlab.lab.build.exercises import hidden

NUMBERS = range(1, 9)


def piece(number: int, text: str = TEXT) -> Any:
    return getattr(solution(text), NAMES[number - 1])


@pytest.mark.parametrize("number", NUMBERS)
def test_the_reference_solution_is_right_on_hidden_cases_too(number: int) -> None:
    for seed in (None, 1, 2):
        outcome = build.check(number, piece(number), seed=seed)
        assert outcome.right, str(outcome)
    assert len(TEXT.splitlines()) <= 200


FIRST = {mutant.exercise: mutant for mutant in reversed(MUTANTS)}
ALL = [pytest.param(m, marks=[] if FIRST[m.exercise] is m else pytest.mark.long) for m in MUTANTS]
"""One of each exercise, and with --long the others."""


@pytest.mark.parametrize("mutant", ALL, ids=lambda m: f"{m.exercise} {m.what}")
def test_each_mutant_is_caught_at_its_step(mutant: Mutant) -> None:
    assert TEXT.count(mutant.old) >= 1
    outcome = build.check(
        mutant.exercise, piece(mutant.exercise, TEXT.replace(mutant.old, mutant.new))
    )
    assert outcome.right is False
    assert outcome.step == mutant.step
    assert mutant.says in outcome.text
    if mutant.step is not None:
        shown = outcome.player()
        assert isinstance(shown, Pair)
        assert shown.step == mutant.step


def test_there_are_mutants_of_every_exercise() -> None:
    assert len(MUTANTS) >= 40
    assert {mutant.exercise for mutant in MUTANTS} == set(NUMBERS)


class LoopedTables(build.Engine):
    def missing(self, request: Any, upto: int) -> int:
        have, short = len(request.table) * self.block_size, 0
        while have < upto:
            have += self.block_size
            short += 1
        return short

    def slot(self, request: Any, position: int) -> int:
        size = self.block_size
        slots = [block * size + offset for block in request.table for offset in range(size)]
        return slots[position]


class DequePool:
    def __init__(self, num_blocks: int, last_first: bool = False) -> None:
        from collections import deque

        self.queue, self.last_first = deque(range(num_blocks)), last_first

    def free(self) -> int:
        return len(self.queue)

    def allocate(self, count: int) -> tuple[int, ...]:
        return tuple(self.queue.popleft() for _ in range(count))

    def release(self, blocks: list[int]) -> None:
        for block in blocks:
            (self.queue.appendleft if self.last_first else self.queue.append)(block)


class HelpedBatching(build.Engine):
    def schedule(self) -> None:
        self.serve(0)
        if not self.preempted:
            self.let_in()

    def serve(self, at: int) -> None:
        order = [request.id for request in self.running]
        for id in order:
            request = self.requests[id]
            tokens = min(self.left(request), self.budget)
            if request not in self.running or not tokens:
                continue
            if self.make_room(request, request.computed + tokens):
                self.process(request, tokens)

    def let_in(self) -> None:
        if not self.waiting or not self.budget or len(self.running) >= self.max_running:
            return
        if self.may_enter(self.waiting[0]):
            self.enter(self.waiting[0])
            self.let_in()


class RecursivePreempting(build.Engine):
    def make_room(self, request: Any, upto: int) -> bool:
        if self.missing(request, upto) <= self.pool.free:
            return True
        victim = self.victim(request)
        self.pause(victim)
        return victim is not request and self.make_room(request, upto)

    def preempt(self, victim: Any) -> None:
        self.waiting = [victim, *self.waiting]
        self.running = [one for one in self.running if one is not victim]
        victim.table, blocks, victim.computed = [], victim.table, 0
        self.pool.release(blocks)
        self.unprocess(victim)


class LateSwapping(build.Engine):
    def swap_out(self, victim: Any) -> None:
        size = self.block_size
        used = (victim.computed + size - 1) // size
        victim.host_table = self.host.allocate(used)
        self.unprocess(victim)
        self.copy_out(victim, victim.table[:used], victim.host_table)
        self.running.remove(victim)
        self.waiting.insert(0, victim)

    def swapped_out(self, request: Any) -> None:
        blocks, request.table = request.table, []
        self.pool.release(blocks)

    def swap_in(self, request: Any) -> None:
        for _ in request.host_table:
            request.table += self.take(1)
        self.copy_in(request, request.host_table, request.table)

    def swapped_in(self, request: Any) -> None:
        self.running += [request]
        hosts, request.host_table = request.host_table, []
        self.host.release(hosts)


def fewest_blocks(running: Any, need: str) -> str:
    """An id instead of the request."""
    return sorted(running, key=lambda one: (one.blocks, one.computed))[0].id


class Watermark(build.Engine):
    def may_enter(self, request: Any) -> bool:
        spare = self.pool.free >= self.num_blocks // 2
        return self.fits(request) and (spare or not self.running)


@pytest.mark.parametrize(
    ("number", "mine"),
    [
        (1, LoopedTables),
        (2, DequePool),
        (3, HelpedBatching),
        (4, RecursivePreempting),
        (5, LateSwapping),
        (7, fewest_blocks),
        (8, Watermark),
    ],
)
def test_right_ones_of_other_shapes_pass(number: int, mine: Any) -> None:
    outcome = build.check(number, mine, seed=3)
    assert outcome.right, str(outcome)


@pytest.mark.parametrize(("number", "other"), [(7, fewest_blocks), (8, Watermark)])
def test_hidden_workloads_can_be_met_and_are_not_met_by_doing_nothing(
    number: int, other: Any
) -> None:
    """Without a model: many seeds. `newest` itself and the open door fail every one."""
    idle: Any = (lambda running, need: running[-1]) if number == 7 else OpenDoor
    judge: Any = policy_outcome if number == 7 else admission_outcome
    sizes = set()
    for seed in range(40):
        (one,) = hidden(number, seed)
        sizes.add(str([(len(r["prompt"]), r["max_tokens"]) for r in one.scenario["requests"]]))
        assert judge(piece(number), one).right
        assert judge(other, one).right
        assert judge(idle, one).right is False
    assert len(sizes) > 10


class OpenDoor(build.Engine):
    def may_enter(self, request: Any) -> bool:
        return self.fits(request)


def test_an_endless_loop_is_stopped_with_its_line() -> None:
    text = TEXT.replace("        return taken\n", "        while True:\n            count += 1\n")
    outcome = build.check(2, piece(2, text))
    assert outcome.right is False
    assert "`allocate` does not end: it was stopped after 50,000 lines" in outcome.text
    assert "while True:" in outcome.text or "count += 1" in outcome.text


def test_an_exception_is_told_with_the_learners_line() -> None:
    outcome = build.check(2, piece(2, TEXT.replace("return taken\n", "return taken[99]\n")))
    assert "Step 1: `allocate` raised IndexError: list index out of range" in outcome.text
    assert "return taken[99]" in outcome.text
    assert build.check(
        2, piece(2, TEXT.replace("list(range(num_blocks))", "num_blocks / 0"))
    ).text == (
        "Before step 1: `__init__` raised ZeroDivisionError: division by zero, in line 15: "
        "self.blocks = num_blocks / 0."
    )
    assert "`victim` raised TypeError" in build.check(7, lambda running, need: running["x"]).text


@pytest.mark.parametrize(
    ("number", "old", "new", "says"),
    [
        (1, "return max(0, -(-upto //", "max(0, -(-upto //", "`missing` gave None; give a whole"),
        (
            1,
            "+ position % self.block_size",
            "+ position % self.block_size + 1e-3",
            "your `slot` says 0.001",
        ),
        (2, "return len(self.blocks)", "return self.blocks", "`free` is [0, 1]; it is the number"),
        (2, "        return taken\n", "", "`allocate(1)` gave None; give a list of 1 blocks"),
        (2, "return taken\n", "return taken[:1] * count\n", "P0 stands twice in the table of A"),
        (3, "self.process(request, tokens)", "self.process(request, 2)", "has 1 tokens left"),
        (
            4,
            "            self.pause(victim)\n",
            "            self.paus(victim)\n",
            "`make_room` raised Attr",
        ),
        (
            5,
            "self.release(victim)\n\n    def swap_in",
            "victim.table = None\n\n    def swap_in",
            "is None",
        ),
        (
            6,
            "        return blocks\n\n    def rem",
            "        pass\n\n    def rem",
            "`find` gave None",
        ),
    ],
)
def test_what_a_method_may_not_return_is_one_sentence(
    number: int, old: str, new: str, says: str
) -> None:
    assert old in TEXT
    outcome = build.check(number, piece(number, TEXT.replace(old, new)))
    assert outcome.right is False
    assert says in outcome.text


def test_what_is_no_piece_is_one_sentence() -> None:
    assert build.check(1, type("Half", (), {"slot": len})).text == (
        "Exercise 1: the class Half has no method `missing`."
    )
    assert build.check(4, 7).text == "Exercise 4: give the class itself, not 7."
    assert "give a function of (running, need)" in build.check(7, dict).text
    for number in NUMBERS:
        assert build.check(number).text.endswith("still to do.")
        assert build.check(number).right is None
    with pytest.raises(BadInput, match="there are 1 to 8"):
        build.check(9)
    with pytest.raises(BadInput, match="choose 1, 2 or 3"):
        build.hint(1, 4)
    with pytest.raises(BadInput, match="nothing ran"):
        build.check(1).player()
    assert len({build.hint(number, strength) for number in NUMBERS for strength in (1, 2, 3)}) == 24


def test_wrong_words_stand_beside_the_right_ones() -> None:
    text = TEXT.replace("request.table[position //", "request.table[-1 - position //")
    outcome = build.check(1, piece(1, text))
    assert "writes “" in outcome.text
    assert "” is right" in outcome.text
