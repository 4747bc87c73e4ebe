"""The questions of the quiz: twelve things to understand, each put with the numbers of a run.

Every question has a run of its own: two requests whose KV outgrows the pool. After `sent` outputs each
both fill their blocks to the last slot and no other is free; A's next input needs one, B is preempted,
A goes on to its end, B comes back. The engine runs without a model: no question is about words. The
right answer is read off the run's events; each wrong one is what somebody would say who holds one
certain misconception.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from kvlab.errors import BadInput
from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import scenario_from
from kvlab.trace.document import Trace
from kvlab.trace.facts import first, free_after, longest_gap

FORMS = ("A", "B")
MOST_SEED = 1_000_000
TRIES = 100  # other numbers are drawn where two options would be the same


@dataclass(frozen=True, slots=True)
class Shortage:
    """`held` blocks of `size` slots for each of the two when they run out, with `sent` outputs each;
    A has `outputs` in all. The prompt's length follows."""

    size: int
    held: int
    sent: int
    outputs: int

    @classmethod
    def drawn(cls, rng: Random) -> Shortage:
        sent = rng.randint(2, 4)
        return cls(rng.randint(3, 6), rng.randint(2, 3), sent, sent + rng.randint(2, 5))

    @property
    def prompt(self) -> int:
        """So long that prompt and outputs but the newest fill the blocks: KV lags by one."""
        return self.size * self.held - self.sent + 1

    def run(self, method: str) -> Trace:
        """What the engine does; with pause_only B is skipped and keeps its blocks."""
        requests = [
            {"id": id, "prompt": [7] * self.prompt, "max_tokens": self.outputs} for id in "AB"
        ]
        engine = {"num_blocks": 2 * self.held, "block_size": self.size, "method": method}
        raw = {"name": "quiz", "model": None, "engine": engine, "requests": requests}
        if method == "pause_only":  # nothing else would ever end the shortage
            raw["actions"] = [{"step": self.sent + 2, "preempt": "B", "method": "recompute"}]
        return run_scenario(scenario_from(raw, Path.cwd(), "quiz")).trace


Facts = tuple[dict[str, int], int, dict[str, int]]
"""What fills the text; the right answer; the wrong ones by misconception."""


def blocks_held(of: Shortage) -> Facts:
    trace = of.run("recompute")
    wrote = first(trace, "kv_written", id="A", step=of.sent + 1)
    kv, blocks = wrote["last"] + 1, wrote["logical"] + 1
    wrong = {"full_blocks_only": blocks - 1, "a_block_a_token": kv, "all_is_reserved": 2 * of.held}
    return {"kv": kv, "size": of.size}, blocks, wrong


def kv_lags(of: Shortage) -> Facts:
    gone = first(of.run("recompute"), "preempted")
    kv, sent = gone["kv"], gone["delivered"]
    wrong = {"newest_has_kv": kv + 1, "outputs_have_none": of.prompt, "prompt_has_none": sent}
    return {"prompt": of.prompt, "sent": sent, "newest": sent - 1}, kv, wrong


def skipped(of: Shortage) -> Facts:
    trace = of.run("pause_only")
    paused = first(trace, "paused")
    wrong = {"skipping_frees": paused["held"], "one_comes_free": 1, "pool_is_emptied": 2 * of.held}
    free = free_after(trace, paused["step"])
    return {"blocks": 2 * of.held, "held": paused["held"]}, free, wrong


def released(of: Shortage) -> Facts:
    trace = of.run("recompute")
    gone = first(trace, "preempted")
    held, free = gone["held"], free_after(trace, gone["step"])
    wrong = {"taking_forgotten": held, "release_frees_nothing": 0, "pool_is_emptied": 2 * of.held}
    return {"blocks": 2 * of.held, "held": held}, free, wrong


def history(of: Shortage) -> Facts:
    gone = first(of.run("recompute"), "preempted")
    known = gone["history"]
    wrong = {
        "paused_loses_tokens": 0,
        "paused_loses_outputs": of.prompt,
        "history_is_kv": known - 1,
    }
    return {"prompt": of.prompt, "sent": gone["delivered"]}, known, wrong


def computed_again(of: Shortage) -> Facts:
    trace = of.run("recompute")
    ran = first(trace, "scheduled", id="B", step=first(trace, "resumed")["step"])["tokens"]
    wrong = {"nothing_is_lost": 1, "outputs_have_none": of.prompt, "newest_has_kv": ran - 1}
    return {"prompt": of.prompt, "sent": of.sent}, ran, wrong


def next_output(of: Shortage) -> Facts:
    trace = of.run("recompute")
    back = first(trace, "resumed")["step"]
    index = first(trace, "token_delivered", id="B", step=back)["index"]
    wrong = {"outputs_repeat": 0, "last_is_sent_again": index - 1, "one_is_left_out": index + 1}
    return {"sent": of.sent, "newest": of.sent - 1}, index, wrong


def processed_after_swap(of: Shortage) -> Facts:
    trace = of.run("swap")
    ran = first(trace, "scheduled", id="B", step=first(trace, "resumed")["step"])["tokens"]
    known = first(trace, "preempted")["history"]
    wrong = {"swap_needs_nothing": 0, "swap_computes_again": known, "outputs_repeat": of.sent}
    return {"prompt": of.prompt, "sent": of.sent, "kv": known - 1}, ran, wrong


def blocks_to_return(of: Shortage) -> Facts:
    trace = of.run("swap")
    stored = len(first(trace, "swap_out_started")["blocks"])
    back = first(trace, "resumed")["step"]
    needs = 1 + first(trace, "kv_written", id="B", step=back)["logical"]
    wrong = {"stored_is_enough": stored, "only_the_new_one": 1, "cpu_pool_is_read": 0}
    return {"kv": stored * of.size, "held": stored, "size": of.size}, needs, wrong


def moved(of: Shortage) -> Facts:
    kv = first(of.run("swap"), "swap_out_started")["kv"]
    wrong = {"newest_has_kv": kv + 1, "outputs_have_none": of.prompt, "last_is_enough": 1}
    return {"prompt": of.prompt, "sent": of.sent}, kv, wrong


def gap(of: Shortage) -> Facts:
    trace = of.run("recompute")
    longest = longest_gap(trace, "B")
    steps, waiting = longest.steps, longest.waiting
    wrong = {
        "recovery_alone": 1,
        "waiting_alone": waiting,
        "counted_from_start": steps + of.sent - 1,
    }
    values = {"received": of.sent, "newest": of.sent - 1, "next": of.sent}
    return values | {"end": first(trace, "finished", id="A")["step"]}, steps, wrong


def without_newcomers(of: Shortage) -> Facts:
    count = of.run("recompute").summary["preemptions"]
    wrong = {"newcomers_make_it": 0, "all_are_paused": 2, "each_output_pauses": of.outputs}
    values = {"blocks": 2 * of.held, "size": of.size, "prompt": of.prompt, "outputs": of.outputs}
    return values, count, wrong


CONSTRUCTS: dict[str, Callable[[Shortage], Facts]] = {
    make.__name__: make
    for make in (
        blocks_held,
        kv_lags,
        without_newcomers,
        skipped,
        released,
        history,
        computed_again,
        next_output,
        moved,
        processed_after_swap,
        blocks_to_return,
        gap,
    )
}
"""What is asked, in this order, in both forms."""


@dataclass(frozen=True, slots=True)
class Item:
    """A question: its construct, what fills its text, the options in the order in which they are
    offered, the right one, and which misconception each of the others stands for."""

    construct: str
    values: dict[str, int]
    options: tuple[int, ...]
    right: int
    misconceptions: dict[int, str]


def form(name: str, seed: int = 1) -> list[Item]:
    """The twelve questions of a form. The other form asks the same with other numbers; so does
    another seed. Raises BadInput for another name, and a seed that is none."""
    if name not in FORMS:
        raise BadInput(f"quiz: --form is {' or '.join(FORMS)}, not {name!r:.40}.")
    if not 0 <= seed <= MOST_SEED:
        raise BadInput(f"quiz: --seed must be from 0 to {MOST_SEED:,}, not {str(seed)[:40]}.")
    return [item(construct, name, seed) for construct in CONSTRUCTS]


def item(construct: str, name: str, seed: int) -> Item:
    """One question of a form, with four options that differ."""
    rng = Random(f"{name}/{seed}/{construct}")
    for _ in range(TRIES):
        values, right, wrong = CONSTRUCTS[construct](Shortage.drawn(rng))
        options = [right, *wrong.values()]
        if len(set(options)) == len(options):
            rng.shuffle(options)
            kinds = {value: kind for kind, value in wrong.items()}
            return Item(construct, values, tuple(options), right, kinds)
    raise RuntimeError(f"{construct}: no numbers with four different options")
