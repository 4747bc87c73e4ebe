"""The eight exercises: what each asks for, its cases from the smallest on, and its hints."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from kvlab.errors import BadInput

SHORT = "Ana and Ben share a small room"
OTHER = "Mia keeps her books on one shelf"


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario, how the learner's run of it is judged, and what is done to it besides.

    `exact`: step by step as the real engine runs it; else by the words that come out. `forks`: in
    this step a second sample, by the name, joins the request.
    """

    scenario: dict[str, Any]
    exact: bool = True
    forks: dict[int, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exercise:
    """`methods` is what a class has to bring (none: a function)."""

    title: str
    methods: tuple[str, ...]
    cases: tuple[Case, ...]
    hints: tuple[str, str, str]


def case(
    engine: dict[str, Any],
    *requests: tuple[str | list[int], int],
    exact: bool = True,
    forks: dict[int, tuple[str, str]] | None = None,
    arrivals: tuple[int, ...] = (),
    model: str | None = "story",
) -> Case:
    """Requests are (prompt, outputs), named A, B, C, … in the order of arrival."""
    asked = [
        {"id": chr(65 + at), "prompt": prompt, "max_tokens": outputs}
        | ({"arrival_step": arrivals[at]} if arrivals else {})
        for at, (prompt, outputs) in enumerate(requests)
    ]
    scenario = {"name": "exercise", "device": "cpu", "model": model}
    settings = {"block_size": 4, "host_blocks": 0} | engine
    return Case(scenario | {"engine": settings, "requests": asked}, exact, forks or {})


def ids(count: int, start: int = 300) -> list[int]:
    """A prompt of so many tokens."""
    return [start + 7 * at % 400 for at in range(count)]


STORM = case(
    {"num_blocks": 12},
    *[(ids(6, 300 + 40 * at), 18) for at in range(6)],
    model=None,
)
UNEVEN = case(
    {"num_blocks": 14},
    (ids(5), 22),
    (ids(6, 340), 20),
    (ids(24, 380), 12),
    arrivals=(0, 0, 1),
    model=None,
)
VLLM: dict[str, Any] = {"preset": "vllm_v1"}

EXERCISES = {
    1: Exercise(
        "Slots and the block table",
        ("missing", "slot"),
        (
            case({"num_blocks": 2}, ("Ana and", 1)),
            case({"num_blocks": 4}, (SHORT, 3)),
            case({"num_blocks": 8}, (SHORT, 6), (OTHER, 4)),
            case({"num_blocks": 12, "block_size": 3}, (SHORT, 6), (OTHER, 4)),
        ),
        (
            "Blocks come whole: with blocks of 4, positions 0 to 3 need one block, position 4 a second.",
            "`missing` is the blocks for `upto` positions, rounded up, less those in `request.table`. "
            "A slot has a block, found in the table by `position // self.block_size`, and an offset.",
            "return -(-upto // self.block_size) - len(request.table), never below 0; and "
            "request.table[position // size] * size + position % size.",
        ),
    ),
    2: Exercise(
        "The block pool",
        ("free", "allocate", "release"),
        (
            case({"num_blocks": 2}, ("Ana and", 1)),
            case({"num_blocks": 4}, (SHORT, 6), (OTHER, 4)),
            case({"num_blocks": 4} | VLLM, (SHORT, 6), (OTHER, 4)),
            case({"num_blocks": 6} | VLLM, (SHORT, 12), (OTHER, 10), ("Tom and Nora", 9)),
            case({"num_blocks": 6}, (SHORT, 12), (OTHER, 10), ("Tom and Nora", 9)),
        ),
        (
            "A list of block numbers is enough: the free ones, in the order in which they go out.",
            "`allocate` cuts the front off the list. `release` adds at the back; with `last_first` it "
            "puts the blocks in front instead, the last of them first of all.",
            "taken, self.blocks = self.blocks[:count], self.blocks[count:]; "
            "self.blocks = list(reversed(blocks)) + self.blocks with last_first, else "
            "self.blocks + list(blocks).",
        ),
    ),
    3: Exercise(
        "Continuous batching within a budget",
        ("schedule",),
        (
            case({"num_blocks": 4}, ("Ana and", 2)),
            case({"num_blocks": 8}, (SHORT, 4), (OTHER, 3)),
            case({"num_blocks": 8, "max_running": 1}, (SHORT, 3), (OTHER, 3)),
            case({"num_blocks": 8, "step_tokens": 5}, (SHORT, 4), (OTHER, 3)),
            case({"num_blocks": 8, "step_tokens": 3}, (SHORT, 4), (OTHER, 3), (SHORT, 2)),
            case({"num_blocks": 4}, (SHORT, 6), (OTHER, 4)),
            case({"num_blocks": 5}, (SHORT, 3), (ids(14), 2), ("Ana and", 3)),
            case({"num_blocks": 5}, (SHORT, 9), (OTHER, 6), ("Ana and", 5)),
            case({"num_blocks": 6, "victim": "oldest"}, (SHORT, 9), (OTHER, 9), ("Ana and", 9)),
        ),
        (
            "Two loops: first everybody who runs, in order; then the head of the queue while it may.",
            "A running request gets min(self.left(request), self.budget) tokens if make_room says "
            "yes; make_room may take others out of `running` (loop over a copy). Nobody is admitted "
            "without budget, without a place, past one who has to wait, or after a preemption.",
            "for request in list(self.running): … self.process(request, tokens). Then while "
            "self.waiting and self.budget > 0 and not self.preempted and "
            "len(self.running) < self.max_running and self.may_enter(self.waiting[0]): "
            "self.enter(self.waiting[0]).",
        ),
    ),
    4: Exercise(
        "Preempt, and resume by recompute",
        ("make_room", "preempt"),
        (
            case({"num_blocks": 4}, (SHORT, 2), (OTHER, 2)),
            case({"num_blocks": 4}, (SHORT, 6), (OTHER, 4)),
            case({"num_blocks": 5}, (SHORT, 6), (OTHER, 8)),
            case({"num_blocks": 4, "step_tokens": 4}, (SHORT, 6), (OTHER, 5)),
            case({"num_blocks": 6}, (SHORT, 12), (OTHER, 12), ("Tom and Nora", 9)),
            case({"num_blocks": 4}, (SHORT, 6), (OTHER, 4), ("Ana and", 3)),
            case({"num_blocks": 7} | VLLM, (SHORT, 16), (OTHER, 12), (ids(9), 9)),
            case({"num_blocks": 6, "victim": "oldest"}, (SHORT, 9), (OTHER, 9), ("Ana and", 9)),
        ),
        (
            "Room comes from others: while too few blocks are free, somebody has to go.",
            "A victim loses this step's tokens, its blocks and its place, and keeps its history. It "
            "comes back first. It may be the request itself: then there is no room.",
            "while self.missing(request, upto) > self.pool.free: victim = self.victim(request); "
            "self.pause(victim); return False if it is the request. preempt: unprocess, release, "
            "computed = 0, running.remove, waiting.insert(0, victim).",
        ),
    ),
    5: Exercise(
        "Swap, with its three orderings",
        ("swap_out", "swapped_out", "swap_in", "swapped_in"),
        (
            case({"num_blocks": 4, "host_blocks": 4, "method": "swap"}, (SHORT, 6), (OTHER, 4)),
            case(
                {"num_blocks": 6, "host_blocks": 6, "method": "swap"},
                (SHORT, 12),
                (OTHER, 12),
                ("Tom and Nora", 9),
            ),
            case(
                {"num_blocks": 4, "host_blocks": 4, "method": "swap"},
                (SHORT, 6),
                (OTHER, 4),
                ("Ana and", 3),
            ),
            case(
                {"num_blocks": 6, "host_blocks": 6, "method": "swap", "victim": "oldest"},
                (SHORT, 9),
                (OTHER, 9),
                ("Ana and", 9),
                exact=False,
            ),
            case(
                {"num_blocks": 5, "host_blocks": 4, "method": "swap", "step_tokens": 4},
                (SHORT, 6),
                (OTHER, 8),
            ),
            case(
                {
                    "num_blocks": 4,
                    "host_blocks": 4,
                    "method": "swap",
                    "copy_blocks_per_step": 1,
                },
                (SHORT, 6),
                (OTHER, 4),
                exact=False,
            ),
            case(
                {
                    "num_blocks": 6,
                    "host_blocks": 8,
                    "method": "swap",
                    "copy_blocks_per_step": 1,
                },
                (SHORT, 12),
                (OTHER, 12),
                ("Tom and Nora", 9),
                exact=False,
            ),
        ),
        (
            "A copy is under way until you are told. What it reads must stay, what it fills is not "
            "there yet.",
            "swap_out only begins the copy; swapped_out, when all has arrived, releases. swap_in takes "
            "blocks and begins the copy; swapped_in gives the host blocks back and lets it run.",
            "swap_out: unprocess, running.remove, waiting.insert(0, …), host_table = "
            "self.host.allocate(blocks that hold KV), self.copy_out(…). swapped_out: self.release. "
            "swap_in: table = self.take(len(host_table)), self.copy_in(…). swapped_in: "
            "self.host.release(host_table), host_table = [], running.append.",
        ),
    ),
    6: Exercise(
        "Share a prefix",
        ("find", "remember", "share", "release", "writable"),
        (
            case({"num_blocks": 8, "prefix_cache": True}, (SHORT, 2)),
            case({"num_blocks": 10, "prefix_cache": True}, (ids(9), 4), (ids(9), 3)),
            case({"num_blocks": 10, "prefix_cache": True}, (ids(8), 4), (ids(8), 3)),
            case(
                {"num_blocks": 12, "prefix_cache": True},
                (ids(10), 6),
                (ids(4, 500) + ids(10)[4:], 3),
                (ids(6), 3),
            ),
            case(
                {"num_blocks": 12, "prefix_cache": True},
                (ids(9), 8),
                (ids(9), 2),
                (ids(9), 3),
                arrivals=(0, 0, 3),
            ),
            case({"num_blocks": 12, "prefix_cache": True}, (ids(9), 4), (ids(9)[4:], 3)),
            case(
                {"num_blocks": 3, "prefix_cache": True},
                (ids(9), 1),
                (ids(9, 500), 3),
                (ids(9), 2),
                arrivals=(0, 1, 2),
            ),
            case({"num_blocks": 12}, (ids(6), 6), exact=False, forks={2: ("A", "A2")}),
            case({"num_blocks": 12}, (ids(7), 6), exact=False, forks={4: ("A", "A2")}),
        ),
        (
            "A block's KV depends on all tokens before it, too. A block is free when nobody is left "
            "who holds it.",
            "Hash each full block together with the hash of the block before it. `find` stops at the "
            "first miss, and leaves at least one token to compute. `release` counts down, gives back "
            "what has reached 0 and forgets its hash. `writable` copies the block that the request is "
            "about to write into, if others hold it.",
            "find: at most (len(history) - 1) // block_size blocks. share: table, computed = "
            "len(blocks) * block_size, references += 1. remember: known.setdefault(hash, block) for "
            "the upto // block_size full blocks. writable: (new,) = self.take(1); "
            "self.copy_block(old, new); table[at] = new; references[old] -= 1.",
        ),
    ),
    7: Exercise(
        "A victim policy",
        (),
        (UNEVEN,),
        (
            "What a pause costs is what has to be computed again. Who loses least?",
            "`newest` pauses C over and over, which has the longest history. Each request tells its "
            "`computed`, `blocks`, `outputs`, `max_tokens` and `arrived`.",
            "return min(running, key=lambda request: request.computed)",
        ),
    ),
    8: Exercise(
        "Admission that prevents storms",
        ("may_enter",),
        (STORM,),
        (
            "A request that fits now goes on growing, and so do the others.",
            "Estimate what each will hold in the end: prompt and outputs, in blocks. Let one in while "
            "the sum stays near the pool. One alone must always come in.",
            "blocks of one: -(-(len(one.prompt) + one.max_tokens - 1) // self.block_size); return "
            "self.fits(request) and the sum over [*self.running, request] <= self.num_blocks, or "
            "self.fits(request) alone where nobody runs.",
        ),
    ),
}


def exercise(number: int) -> Exercise:
    """Raises BadInput for a number that is none."""
    if isinstance(number, bool) or number not in EXERCISES:
        raise BadInput(f"exercise {number!r:.40}: there are 1 to {len(EXERCISES)}.")
    return EXERCISES[number]


def hidden(number: int, seed: int) -> tuple[Case, ...]:
    """More cases of the kind of an exercise's, in other sizes; the same for the same seed."""
    chance = random.Random(f"{number} {seed}")
    if number == 7:
        # Each of these is one in which `newest` can be beaten: a test tries many seeds.
        first = ids(chance.choice((5, 6))), chance.choice((20, 22, 24))
        second = ids(chance.choice((6, 7)), 340), chance.choice((18, 20))
        late = ids(chance.choice((21, 24, 27)), 380), 12
        return (case({"num_blocks": 14}, first, second, late, arrivals=(0, 0, 1), model=None),)
    if number == 8:
        outputs = chance.randrange(17, 19)
        asked_of_all = [(ids(chance.randrange(5, 8)), outputs) for _ in range(6)]
        return (case({"num_blocks": 12}, *asked_of_all, model=None),)
    found: list[Case] = []
    for given in exercise(number).cases:
        asked = [dict(one) for one in given.scenario["requests"]]
        if given.forks:
            shift = chance.randrange(1, 90)
            for one in asked:
                one["prompt"] = [token + shift for token in one["prompt"]]
        else:
            same = [chance.randrange(250, 900) for _ in range(40)]
            for at, one in enumerate(asked):
                count = chance.randrange(3, 12)
                fresh = [chance.randrange(250, 900) for _ in range(count)]
                one["prompt"] = same[:count] if number == 6 and at % 3 < 2 else fresh
                one["max_tokens"] = chance.randrange(2, 9)
        size = given.scenario["engine"]["block_size"]
        most = [-(-(len(one["prompt"]) + one["max_tokens"]) // size) for one in asked]
        engine = dict(given.scenario["engine"])
        least = sum(most) if number in (1, 6) else max(most)
        engine["num_blocks"] = max(engine["num_blocks"], least)
        scenario = given.scenario | {"requests": asked, "engine": engine}
        found.append(Case(scenario, given.exact, given.forks))
    return tuple(found)
