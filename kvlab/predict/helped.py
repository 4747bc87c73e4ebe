"""What would have helped: ten changes to a server, each predicted on the same workload, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kvlab.errors import BadInput
from kvlab.predict.cards import GIB
from kvlab.predict.outcome import DELAYS, predict, relative, statistics
from kvlab.predict.outcome import delays as delays_of
from kvlab.predict.plan import Say
from kvlab.predict.replay import Played
from kvlab.predict.server import MOST_CARDS, Server, server_of
from kvlab.predict.workload import Workload

WATERMARK = 0.05
"""Share of the pool that an admission would leave free."""
FEWER = 0.75
"""Share of the most that ran at once."""
HOST = 64 * GIB
MORE = 4 * GIB
CHUNK = 512


@dataclass(frozen=True, slots=True)
class Change:
    """One change: its key, what it is in words, the server with it, and a note that goes with it."""

    key: str
    what: str
    server: Server
    note: str = ""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change would have done. Delays are means in seconds; `gain` is the share of the end to
    end time that it takes off (negative: adds). `refused` says why it cannot be; the rest is empty."""

    change: Change
    delays: dict[str, float]
    gain: float
    preemptions: int
    recomputed: int
    cause: str
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Helped:
    """The run as it was, and the changes, best first."""

    base: dict[str, float]
    preemptions: int
    recomputed: int
    effects: tuple[Effect, ...]


def changes(server: Server, base: Played) -> list[tuple[str, str, Callable[[], Server], str]]:
    """(key, words, how to make the server, note) of the ten changes that fit this server."""
    config = server.config
    most = max(base.timeline.running)
    margin = max(1, int(WATERMARK * config.num_blocks))
    fewer = max(1, int(FEWER * most))
    tokens = config.step_tokens or 2048
    block = server.model.kv_bytes // min(server.tp, server.model.kv_heads) * config.block_size
    more = MORE // block
    host = HOST // block
    cache = "off" if config.prefix_cache else "on"

    def set_(**settings: Any) -> Callable[[], Server]:
        return lambda: server.changed(**settings)

    return [
        (
            "watermark",
            f"an admission leaves {margin:,} blocks free",
            set_(watermark_blocks=margin),
            "",
        ),
        ("max_running", f"at most {fewer} requests in a batch", set_(max_running=fewer), ""),
        ("step_tokens", f"{tokens * 4:,} tokens a step", set_(step_tokens=tokens * 4), ""),
        (
            "victim",
            "the one with the least computed is preempted",
            set_(victim="least_computed"),
            "",
        ),
        (
            "swap",
            f"swap to {HOST // GIB} GiB of host memory over {server.card.link / 1e9:.0f} GB/s",
            set_(method="swap", host_blocks=host, prefix_cache=False),
            "vLLM's V1 engine has no swap: it computes again; with it the prefix cache is off here",
        ),
        (
            "prefix_cache",
            f"prefix cache {cache}",
            set_(prefix_cache=not config.prefix_cache),
            "",
        ),
        (
            "chunk",
            f"a prompt has at most {CHUNK} tokens in a step",
            set_(chunk_tokens=CHUNK),
            "",
        ),
        (
            "memory",
            f"{MORE // GIB} GiB more for KV on each card",
            set_(num_blocks=config.num_blocks + more),
            "weights in 8 bits, or a larger card, would give it",
        ),
        (
            "reserve",
            "room for a request's longest output is reserved",
            set_(allocation="reserve_max"),
            "an engine knows the longest output, seldom the real one; here they are the same",
        ),
        ("cards", f"{2 * server.tp} cards", lambda: _twice(server), "twice the price"),
    ]


def _twice(server: Server) -> Server:
    if server.tp * 2 > MOST_CARDS:
        raise BadInput(f"more than {MOST_CARDS} cards are not predicted")
    twice = server_of(server.card.name, server.model.name, server.tp * 2)
    config = replace(server.config, num_blocks=twice.config.num_blocks)
    return replace(server, tp=server.tp * 2, config=config)


def helped(server: Server, workload: Workload, say: Say = lambda _: None) -> Helped:
    """Predict the run as it is and with each change. Raises BadInput for a request that never fits."""
    base = predict(server, workload, tick=partial(_tell, say, "as it was"))
    means = _means(base)
    effects = []
    for key, what, make, note in changes(server, base):
        try:
            change = Change(key, what, make(), note)
            played = predict(change.server, workload, tick=partial(_tell, say, what))
        except BadInput as error:
            change = Change(key, what, server, note)
            effects.append(Effect(change, {}, 0.0, 0, 0, "", refused=str(error)))
            continue
        now = _means(played)
        effects.append(
            Effect(
                change,
                now,
                -relative(now["e2e_s"], means["e2e_s"]),
                played.engine.preemptions,
                played.engine.recomputed,
                cause(base, played),
            )
        )
    effects.sort(key=lambda effect: (bool(effect.refused), -effect.gain))
    return Helped(means, base.engine.preemptions, base.engine.recomputed, tuple(effects))


def _tell(say: Say, what: str, share: float) -> None:
    say(f"{what}: {share:.0%}")


def _means(played: Played) -> dict[str, float]:
    return {name: statistics(values)["mean"] for name, values in delays_of(played).items()}


def cause(base: Played, changed: Played) -> str:
    """Why the delays differ, from what was counted in both runs."""
    before, after = base.engine, changed.engine
    told = []
    if before.preemptions != after.preemptions:
        told.append(f"{after.preemptions:,} preemptions instead of {before.preemptions:,}")
    if before.recomputed != after.recomputed:
        less = before.recomputed - after.recomputed
        told.append(f"{abs(less):,} tokens {'not' if less > 0 else 'more'} computed again")
    if before.from_cache != after.from_cache:
        told.append(f"{after.from_cache:,} tokens from the cache instead of {before.from_cache:,}")
    if after.copied:
        told.append(f"{after.copied:,} positions copied out and in")
    running = [_over_time(one, one.timeline.running) for one in (base, changed)]
    if abs(running[1] - running[0]) > 0.02 * running[0]:
        told.append(f"{running[1]:.0f} in flight in the mean instead of {running[0]:.0f}")
    steps = [max(one.last) / one.steps for one in (base, changed)]
    if abs(steps[1] / steps[0] - 1) > 0.02:
        told.append(f"a step takes {steps[1] * 1e3:.1f} ms instead of {steps[0] * 1e3:.1f}")
    return "; ".join(told) or "nothing that was counted differs"


def _over_time(played: Played, values: Any) -> float:
    ends = played.timeline.seconds
    spans = (end - start for start, end in zip([0.0, *ends], ends, strict=False))
    return sum(value * span for value, span in zip(values, spans, strict=True)) / (ends[-1] or 1.0)


def summary(found: Helped) -> dict[str, Any]:
    """The comparison as one JSON object."""
    return {
        "schema": "kvlab-helped/1",
        "base": {
            **found.base,
            "preemptions": found.preemptions,
            "tokens_recomputed": found.recomputed,
        },
        "changes": [
            {
                "key": effect.change.key,
                "what": effect.change.what,
                "note": effect.change.note,
                "refused": effect.refused,
            }
            if effect.refused
            else {
                "key": effect.change.key,
                "what": effect.change.what,
                "note": effect.change.note,
                "gain": effect.gain,
                **effect.delays,
                "preemptions": effect.preemptions,
                "tokens_recomputed": effect.recomputed,
                "cause": effect.cause,
                "clock": effect.change.server.clock().kind,
            }
            for effect in found.effects
        ],
    }


def report(found: Helped) -> str:
    """The comparison as a person reads it, best first."""
    head = "  ".join(f"{name:>9}" for name in DELAYS)
    base = "  ".join(f"{found.base[name]:9.3f}" for name in DELAYS)
    lines = [
        f"{'gain':>7}  {head}",
        f"{'':>7}  {base}  as it was: {found.preemptions:,} preemptions, "
        f"{found.recomputed:,} tokens computed again",
    ]
    for effect in found.effects:
        what = effect.change.what
        if effect.refused:
            lines.append(f"{'':>7}  {'':>31}  {what}: cannot be: {effect.refused}")
            continue
        row = "  ".join(f"{effect.delays[name]:9.3f}" for name in DELAYS)
        note = f" ({effect.change.note})" if effect.change.note else ""
        lines.append(f"{effect.gain:+7.1%}  {row}  {what}: {effect.cause}{note}")
    return "\n".join([*lines, ""])
