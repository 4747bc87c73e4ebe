"""Runs a learner's piece in the engine, finds the smallest case in which it goes wrong, and shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any

from kvlab.course.checks import Verdict
from kvlab.draw.pair import Pair
from kvlab.draw.player import Player
from kvlab.errors import BadInput
from kvlab.lab.build import guard
from kvlab.lab.build.engine import Frame
from kvlab.lab.build.exercises import Case, Exercise, exercise, hidden
from kvlab.lab.build.guard import Fault
from kvlab.lab.build.parts import Pool, Request
from kvlab.lab.front import scenario_for
from kvlab.runs.run import Ground, load_for, run_scenario, stand_ins, with_model
from kvlab.runs.scenario import Scenario
from kvlab.trace.document import Trace

HOOKS: tuple[str, ...] = (
    "missing",
    "slot",
    "schedule",
    "make_room",
    "preempt",
    "victim",
    "swap_out",
    "swapped_out",
)
HOOKS += ("swap_in", "swapped_in", "find", "remember", "share", "release", "writable", "may_enter")
MOST_STEPS = 400


@dataclass(frozen=True, slots=True)
class Outcome(Verdict):
    """What a check found. `step` is where it goes wrong (None: nowhere, or before the first step)."""

    step: int | None = None
    theirs: Trace | None = None
    right_one: Trace | None = None

    def player(self) -> Pair | Player:
        """The learner's run beside what should be, opened at the step where theirs goes wrong.

        Raises BadInput where nothing ran.
        """
        if self.theirs is None or self.right_one is None:
            raise BadInput("nothing ran, so there is nothing to show.")
        if self.right:
            return Player(self.theirs)
        names = ("Yours", "What should be")
        pair = Pair(self.theirs, self.right_one, names=names, title=escape(self.text[:90]))
        pair.step = self.step or 1
        return pair


def check(number: int, mine: Any = None, seed: int | None = None) -> Outcome:
    """Check a learner's class (exercise 7: function): right, or one sentence on the smallest case
    that fails. `seed` adds cases that nobody has seen. None: what is still to do.

    Raises BadInput for a number that is no exercise.
    """
    asked = exercise(number)
    if mine is None or mine is ... or untouched(asked, mine):
        return Outcome(None, f"Exercise {number}, {asked.title}: still to do.")
    try:
        refuse(number, asked, mine)
    except Fault as fault:
        return Outcome(False, f"Exercise {number}: {fault}.")
    cases = asked.cases if seed is None else (*asked.cases, *hidden(number, seed))
    judge = {7: policy_outcome, 8: admission_outcome}.get(number, piece_outcome)
    outcome = Outcome(None, "")
    for case in cases:
        outcome = judge(mine, case)
        if not outcome.right:
            return outcome
    return outcome


def untouched(asked: Exercise, mine: Any) -> bool:
    """Nothing has been written yet: every method still is `...`."""

    def stub() -> None: ...

    parts = [getattr(mine, name, None) for name in asked.methods] if asked.methods else [mine]
    codes = [getattr(part, "__code__", None) for part in parts if part is not None]
    return bool(codes) and all(code and code.co_code == stub.__code__.co_code for code in codes)


def hint(number: int, strength: int = 1) -> str:
    """A hint, from 1 (where to look) to 3 (nearly the answer). Raises BadInput for others."""
    hints = exercise(number).hints
    if isinstance(strength, bool) or strength not in (1, 2, 3):
        raise BadInput(f"hint strength {strength!r:.40}: choose 1, 2 or 3.")
    return hints[strength - 1]


def refuse(number: int, asked: Exercise, mine: Any) -> None:
    """Raises Fault for what cannot be the exercise's piece: no class, or one without a method."""
    if not asked.methods:
        if not callable(mine) or isinstance(mine, type):
            raise Fault(f"give a function of (running, need), not {mine!r:.60}")
        return
    if not isinstance(mine, type):
        raise Fault(f"give the class itself, not {mine!r:.60}")
    for name in asked.methods:
        found = getattr(mine, name, None)
        if found is None and name != "free":
            raise Fault(f"the class {mine.__name__} has no method `{name}`")
        if found is not None and name != "free" and not callable(found):
            raise Fault(f"`{name}` of {mine.__name__} is not a method")
    if number != 2 and "__init__" in vars(mine):
        raise Fault(f"{mine.__name__} has an `__init__`; the engine is made already, leave it out")


def engine(*pieces: type) -> type[Frame]:
    """An engine of learners' pieces, what they do not bring as given. A class with `allocate` is its
    pool; the rest are mixed in, each method called under guard.

    Raises BadInput for what is no class.
    """
    for piece in pieces:
        if not isinstance(piece, type):
            raise BadInput(f"an engine is made of classes, not of {piece!r:.60}.")
    pools = [piece for piece in pieces if hasattr(piece, "allocate")]
    others = [piece for piece in pieces if piece not in pools and piece is not Frame]
    bases = [*others[::-1], *([] if any(issubclass(one, Frame) for one in others) else [Frame])]
    mixed = type("Mixed", tuple(bases), {})
    body: dict[str, Any] = {name: _hook(name, getattr(mixed, name)) for name in HOOKS}
    body["shares"] = mixed.share is not Frame.share  # type: ignore[attr-defined]
    body["pool_type"] = _guarded_pool(pools[-1]) if pools else Pool
    return type("Engine", (mixed,), body)


def _hook(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def hooked(self: Frame, *given: Any) -> Any:
        if name == "make_room":
            self.log.needed(*given)
        elif name in ("preempt", "swap_out"):
            self.log.leaves(given[0], "swap" if name == "swap_out" else "recompute")
        found = guard.call(name, method, self, *given)
        if name == "missing" and (isinstance(found, bool) or not isinstance(found, int)):
            raise Fault(f"`missing` gave {found!r:.60}; give a whole number of blocks")
        if name == "find" and not isinstance(found, list):
            raise Fault(
                f"`find` gave {found!r:.60}; give a list of blocks, empty where none is known"
            )
        return found

    return hooked


def _guarded_pool(mine: type) -> type:
    class Guarded:
        def __init__(self, num_blocks: int, last_first: bool) -> None:
            self.mine = guard.call("__init__", mine, num_blocks, last_first)

        @property
        def free(self) -> Any:
            found = guard.call("free", lambda: self.mine.free)
            found = guard.call("free", found) if callable(found) else found
            if isinstance(found, bool) or not isinstance(found, int):
                raise Fault(f"`free` is {found!r:.60}; it is the number of free blocks")
            return found

        def allocate(self, count: int) -> Any:
            return guard.call("allocate", self.mine.allocate, count)

        def release(self, blocks: list[int]) -> None:
            guard.call("release", self.mine.release, list(blocks))

    return Guarded


@cache
def _story() -> Any:
    return load_for(scenario_for("figure-1", device="cpu"))


def ground_of(scenario: Scenario) -> Ground:
    """What it runs on; the bundled model is loaded once."""
    if scenario.model is None:
        return stand_ins(scenario)
    return with_model(scenario, _story() if scenario.model == "story" else None)


def frame_on(ground: Ground, kind: type[Frame], case: Case, policy: Any = None) -> Frame:
    """An engine with a case's requests before it. Raises Fault where a piece's pool cannot be made."""
    requests = [
        Request(r.id, r.prompt, r.max_tokens, r.arrival_step, r.priority)
        for r in ground.scenario.requests(ground.encode)
    ]
    return kind(ground.scenario.engine, ground.runner, requests, case.forks, policy)


def piece_outcome(mine: type, case: Case) -> Outcome:
    """Run a piece on a case, and compare it with the real engine."""
    scenario = scenario_for(case.scenario)
    ground = ground_of(scenario)
    expected = run_scenario(scenario, model=_story() if scenario.model else None).trace
    try:
        frame = frame_on(ground, engine(mine), case)
    except Fault as fault:
        return Outcome(False, f"Before step 1: {fault}.")
    wrong: tuple[int, str] | None = None
    try:
        with ground.threads():
            while frame.has_work:
                if frame.steps >= MOST_STEPS:
                    raise Fault(f"the run has not ended after {MOST_STEPS} steps")
                frame.step()
                if case.exact:
                    compare(frame, expected)
    except Fault as fault:
        wrong = frame.steps, str(fault)
    try:
        if wrong is None and not case.exact:
            compare_words(frame, case)
    except Fault as fault:
        wrong = frame.steps, str(fault)
    found = [*frame.log.doubts[:1], *([wrong] if wrong else [])]
    wrong = min(found, key=lambda one: one[0], default=None)
    theirs = frame.log.trace(ground)
    if wrong is None:
        return Outcome(
            True, f"Right, {frame.steps} steps as they should be.", None, theirs, expected
        )
    text = f"Step {wrong[0]}: {wrong[1]}.{words(frame, expected, ground)}"
    return Outcome(False, text, wrong[0], theirs, expected)


def compare(frame: Frame, expected: Trace) -> None:
    """Hold the step just made against the real engine's. Raises Fault at the first difference."""
    entries = expected.summary["per_step"]
    if frame.steps > len(entries):
        raise Fault(f"everybody should have ended in step {len(entries)}")
    right = entries[frame.steps - 1]
    gone = [one["id"] for one in right["preempted"]]
    if frame.preempted != gone:
        raise Fault(f"preempted were {named(frame.preempted)}, it should be {named(gone)}")
    for id in {**right["scheduled"], **frame.batch}:
        given, due = frame.batch.get(id, 0), right["scheduled"].get(id, 0)
        if given != due:
            raise Fault(f"{id} was given {given} tokens, it should be {due}")
    for id, request in frame.requests.items():
        table = right["blocks"].get(id, [])
        if request.table != table:
            raise Fault(
                f"the table of {id} is {blocks(request.table)}, it should be {blocks(table)}"
            )
    order = [request.id for request in frame.running]
    if order != right["running"]:
        raise Fault(f"running are {named(order)}, it should be {named(right['running'])}")
    order = [request.id for request in frame.waiting]
    if order != right["waiting"]:
        raise Fault(f"waiting are {named(order)}, it should be {named(right['waiting'])}")
    for id, tokens in right["emitted"].items():
        if frame.requests[id].history[-len(tokens) :] != tokens:
            raise Fault(f"{id} received another word than it should")


def compare_words(frame: Frame, case: Case) -> None:
    """Each output is that of its prompt alone in a pool that never runs out. Raises Fault."""
    for id, request in frame.requests.items():
        alone = {"id": id, "prompt": list(request.prompt), "max_tokens": request.max_tokens}
        document = case.scenario | {
            "requests": [alone],
            "engine": {"num_blocks": 64, "block_size": 4},
        }
        right = run_scenario(scenario_for(document), model=_story()).summary["requests"][id][
            "output"
        ]
        if request.history[len(request.prompt) :] != right:
            raise Fault(
                f"{id} received other words than it does alone, in a pool that is large enough"
            )


def words(frame: Frame, expected: Trace, ground: Ground) -> str:
    """Theirs and the right ones, where they differ so far."""
    for id, request in frame.requests.items():
        mine = request.history[len(request.prompt) :]
        right = expected.summary["requests"].get(id, {}).get("output", mine)[: len(mine)]
        if mine != right:
            said, due = ("".join(map(ground.token_text, part)).strip() for part in (mine, right))
            return f" {id} writes “{said}” where “{due}” is right."
    return ""


def named(ids: list[str]) -> str:
    return " ".join(ids) or "nobody"


def blocks(table: list[int]) -> str:
    return " ".join(f"P{block}" for block in table) or "empty"


def policy_outcome(mine: Callable[..., Any], case: Case) -> Outcome:
    """A victim function against `newest`, by the tokens that are computed again."""

    def choose(running: Any, need: str) -> Any:
        chosen = guard.call("victim", mine, running, need)
        if getattr(chosen, "id", chosen) not in [one.id for one in running]:
            raise Fault(f"`victim` gave {chosen!r:.60}; give one of `running`, or its id")
        return chosen

    newest = run_scenario(scenario_for(case.scenario)).trace
    try:
        theirs = run_scenario(scenario_for(case.scenario, victim=choose)).trace
    except Fault as fault:
        return Outcome(False, f"{fault}.")
    again, bar = theirs.summary["tokens_recomputed"], newest.summary["tokens_recomputed"]
    first = next((e["step"] for e in theirs.events if e["kind"] == "preempted"), None)
    if again < bar:
        said = f"Right: {again} tokens are computed again, with `newest` {bar}."
        return Outcome(True, said, None, theirs, newest)
    return Outcome(
        False,
        f"Step {first}, the first pause: in the end {again} tokens are computed again, and with "
        f"`newest` it is {bar}; yours has to be fewer.",
        first,
        theirs,
        newest,
    )


def admission_outcome(mine: type, case: Case) -> Outcome:
    """Admission against letting everybody in who fits now: half the preemptions, little more time."""
    ground = ground_of(scenario_for(case.scenario))
    open_door = frame_on(ground, engine(), case)
    while open_door.has_work:
        open_door.step()
    free = open_door.log.trace(ground)
    frame = frame_on(ground_of(ground.scenario), engine(mine), case)
    most, steps = free.summary["preemptions"], open_door.steps
    wrong = None
    try:
        while frame.has_work:
            frame.step()
            gone = len(frame.log.preemptions)
            if gone > most // 2:
                raise Fault(f"this is preemption {gone}; at most {most // 2} are allowed")
            if frame.steps > steps * 3 // 2:
                raise Fault(
                    f"it takes more than {steps * 3 // 2} steps: too few are let in at once"
                )
    except Fault as fault:
        wrong = str(fault)
    theirs = frame.log.trace(ground)
    if wrong:
        text = f"Step {frame.steps}: {wrong} (letting everybody in: {most} preemptions, {steps} steps)."
        return Outcome(False, text, frame.steps, theirs, free)
    gone = theirs.summary["preemptions"]
    said = f"Right: {gone} preemptions in {frame.steps} steps, instead of {most} in {steps}."
    return Outcome(True, said, None, theirs, free)
