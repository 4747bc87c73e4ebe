"""`kvlab bench engine`: the engine's speed beside its peers', in turns, as ratios of medians."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from kvlab.bench.speed.contestants import (
    Contestant,
    ContinuousBatch,
    Kvlab,
    Outcome,
    PaddedBatch,
    transformers_model,
)
from kvlab.bench.speed.floor import linear_seconds, read_bytes_per_second, weight_bytes
from kvlab.bench.speed.vllm_peer import Vllm
from kvlab.bench.speed.work import decoding, prefill, serving
from kvlab.models.loading import LoadedModel, load_model
from kvlab.models.places import find_model
from kvlab.runtime.threads import few_threads

BATCHES = (1, 8, 16)
PREFILLS = (512, 2_048)
REQUESTS, OUTPUTS = 16, 64
SHARES = (1.0, 0.5)
METHODS = ("recompute", "swap", "auto")
DECODED = 33
"""Outputs of a decode measurement. What one output takes, the prefill, is taken off."""
Say = Callable[[str], None]


@dataclass
class Found:
    """Seconds by work and contestant, in the order of the rounds, and what the last one gave."""

    seconds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    outcomes: dict[str, dict[str, Outcome]] = field(default_factory=dict)
    floors: dict[str, list[float]] = field(default_factory=dict)

    def add(self, work: str, name: str, seconds: float, outcome: Outcome) -> None:
        self.seconds.setdefault(work, {}).setdefault(name, []).append(seconds)
        self.outcomes.setdefault(work, {})[name] = outcome


def bench_engine(
    model: str, dtype: str, vllm: Path | None, peers: bool, rounds: int, say: Say
) -> dict[str, Any]:
    """All works by all who can do them, in turns, `rounds` times. Raises BadInput for what is not
    there and for a contestant that does not give every output."""
    loaded = load_model(model, device="cpu", dtype=dtype)
    folder = find_model(model, dtype=dtype)
    contestants: list[Contestant] = [Kvlab(loaded, method) for method in METHODS]
    if peers:
        other = transformers_model(folder, loaded.dtype)
        contestants += [PaddedBatch(other), ContinuousBatch(other)]
    server = None if vllm is None else Vllm(vllm, folder, dtype)
    if server is not None:
        contestants.append(server)
    try:
        with few_threads(loaded.config):
            found = measure(loaded, contestants, rounds, say)
    finally:
        if server is not None:
            server.close()
    return report(model, dtype, rounds, found)


def measure(loaded: LoadedModel, contestants: Sequence[Contestant], rounds: int, say: Say) -> Found:
    """One round more than asked for: the first one, with two outputs each, warms up and is not
    kept."""
    vocab = loaded.config.vocab_size
    found = Found()
    for number in range(rounds + 1):
        kept, decoded, outputs = (found, DECODED, OUTPUTS) if number else (Found(), 2, 2)
        say(f"round {number} of {rounds}" if number else "warming up")
        kept.floors.setdefault("weights read", []).append(
            weight_bytes(loaded) / read_bytes_per_second()
        )
        for batch in BATCHES:
            name = f"linear layers, {batch} rows"
            kept.floors.setdefault(name, []).append(linear_seconds(loaded, batch))
            long, short = decoding(vocab, batch, decoded), decoding(vocab, batch, 1)
            for one in contestants:
                if one.can(long):
                    outcome = one.run(long)
                    seconds = (outcome.seconds - one.run(short).seconds) / (decoded - 1)
                    kept.add(long.name, one.name, seconds, outcome)
        for work in (
            *(prefill(vocab, length) for length in PREFILLS),
            *(serving(vocab, share, REQUESTS, outputs) for share in SHARES),
        ):
            for one in contestants:
                if one.can(work):
                    outcome = one.run(work)
                    kept.add(work.name, one.name, outcome.seconds, outcome)
    return found


def report(model: str, dtype: str, rounds: int, found: Found) -> dict[str, Any]:
    """Medians with least and greatest, ratios to the first of kvlab's, tokens that are the same."""
    works = {}
    for work, by_name in found.seconds.items():
        ours = median(by_name["kvlab recompute"])
        outputs = found.outcomes[work]["kvlab recompute"].outputs
        works[work] = {
            name: {
                "seconds": median(seconds),
                "least": min(seconds),
                "greatest": max(seconds),
                "speed": ours / median(seconds),
                "same_outputs": sum(
                    a == b for a, b in zip(outputs, found.outcomes[work][name].outputs, strict=True)
                ),
                "preemptions": found.outcomes[work][name].preemptions,
                "bookkeeping": found.outcomes[work][name].bookkeeping,
            }
            for name, seconds in by_name.items()
        }
    floors = {name: median(seconds) for name, seconds in found.floors.items()}
    return {"model": model, "dtype": dtype, "rounds": rounds, "works": works, "floors": floors}


def table(found: dict[str, Any]) -> str:
    """What the command prints."""
    lines = [
        f"{found['model']} in {found['dtype']} on the CPU, medians of {found['rounds']} rounds in "
        "turns (least-greatest); milliseconds of a decode step, or of the whole work; speed as a "
        "multiple of kvlab recompute's.",
    ]
    for work, by_name in found["works"].items():
        lines += ["", work]
        for name, one in by_name.items():
            extra = []
            if one["preemptions"]:
                extra.append(f"{one['preemptions']} preemptions")
            if one["bookkeeping"] is not None:
                extra.append(f"bookkeeping {one['bookkeeping']:.1%}")
            extra.append(f"{one['same_outputs']} outputs the same")
            lines.append(
                f"  {name:<24} {one['seconds'] * 1e3:>9,.1f} ({one['least'] * 1e3:,.1f}-"
                f"{one['greatest'] * 1e3:,.1f})  x{one['speed']:.2f}  {', '.join(extra)}"
            )
    lines += ["", "Floors of a decode step, ms; kvlab's step as a multiple of them"]
    steps = {w: by_name for w, by_name in found["works"].items() if w.startswith("decode")}
    for name, seconds in found["floors"].items():
        rows = name.split(", ")[-1].split()[0]
        by_name = steps.get(f"decode, batch {rows}") or next(iter(steps.values()))
        step = by_name["kvlab recompute"]["seconds"]
        lines.append(f"  {name:<24} {seconds * 1e3:>9,.1f}  x{step / seconds:.2f}")
    return "\n".join(lines)
