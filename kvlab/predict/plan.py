"""How much a server can take: the largest rate and the most users that meet limits, and what breaks.

Both are found by doubling and halving. A run is given up as soon as a limit cannot be met any more,
so that probes far beyond the knee cost little.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kvlab.errors import BadInput
from kvlab.predict.outcome import DELAYS, STATISTICS, delays, predict, statistics
from kvlab.predict.replay import Played
from kvlab.predict.server import Server
from kvlab.predict.workload import Workload

SCHEMA = "kvlab-plan/1"
MOST_PROBED = 3_000
"""Requests of a workload that a search plays, its first ones; more take longer, not further."""
FINE = 0.05
"""A search ends when the rates between which the knee lies are this close."""
CURVE = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)
"""Of the largest rate: where the curve is drawn."""
LEAST_RATE, MOST_RATE = 2.0**-10, 2.0**10
MOST_USERS = 4_096

Say = Callable[[str], None]
"""Told what is being tried. Whoever wants to stop raises in it."""


@dataclass(frozen=True, slots=True)
class Limit:
    """`statistic` of `delay`, in seconds, must be below `most`."""

    delay: str
    statistic: str
    most: float

    def __str__(self) -> str:
        return f"{self.delay}.{self.statistic}<{self.most:g}"


def limit_of(text: str) -> Limit:
    """`ttft_s.p99<2` as a limit. Raises BadInput."""
    found = re.fullmatch(r"\s*(\w+)\.(\w+)\s*<=?\s*([0-9.eE+-]+)\s*", text)
    try:
        most = float(found[3]) if found else 0.0
    except ValueError:
        most = 0.0
    if not found or found[1] not in DELAYS or found[2] not in STATISTICS or not 0 < most < 1e9:
        raise BadInput(
            f"--limit {text}: write it as DELAY.STATISTIC<SECONDS, say ttft_s.p99<2; delays are "
            f"{', '.join(DELAYS)}, statistics {', '.join(STATISTICS)}."
        )
    return Limit(found[1], found[2], most)


@dataclass(frozen=True, slots=True)
class Point:
    """One probe: what was asked of the server and what came of it.

    `rate` is a multiple of the workload's own, `users` the requests in flight; the other is None.
    """

    rate: float | None
    users: int | None
    requests_per_s: float
    in_flight: float  # in the mean, over time
    preemptions: int
    recomputed: int
    delays: dict[str, dict[str, float]]
    kept: dict[str, float]  # share of the time in which somebody waited, by what for
    cache: float  # share of the pool in use, in the mean

    def broken(self, limits: Sequence[Limit]) -> list[Limit]:
        return [
            limit for limit in limits if self.delays[limit.delay][limit.statistic] >= limit.most
        ]


def point(played: Played, rate: float | None, users: int | None) -> Point:
    """What a run says about the server under that load."""
    line, blocks = played.timeline, played.engine.config.num_blocks
    spans = [end - start for start, end in zip([0.0, *line.seconds], line.seconds, strict=False)]
    whole = sum(spans) or 1.0
    kept: Counter[str] = Counter()
    for span, why in zip(spans, line.kept, strict=True):
        if why:
            kept[why] += span / whole  # type: ignore[assignment]
    return Point(
        rate=rate,
        users=users,
        requests_per_s=len(played.jobs) / max(played.last),
        in_flight=sum(n * span for n, span in zip(line.running, spans, strict=True)) / whole,
        preemptions=played.engine.preemptions,
        recomputed=played.engine.recomputed,
        delays={name: statistics(values) for name, values in delays(played).items()},
        kept=dict(kept),
        cache=1 - sum(n * span for n, span in zip(line.free, spans, strict=True)) / whole / blocks,
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """The largest rate and number of users that meet the limits (None: not even the smallest), the
    curve over rates, and why it ends."""

    server: Server
    workload: Workload
    limits: tuple[Limit, ...]
    rate: Point | None
    users: Point | None
    curve: tuple[Point, ...]
    breaks: str
    why: str


def plan(
    server: Server, workload: Workload, limits: Sequence[Limit], say: Say = lambda _: None
) -> Plan:
    """Find what meets all limits. Raises BadInput without one, or for a request that never fits."""
    if not limits:
        raise BadInput("--limit: give at least one, say ttft_s.p99<2.")
    probed = workload.first(MOST_PROBED)
    seen: dict[tuple[float | None, int | None], Point] = {}

    def at(rate: float | None = None, users: int | None = None) -> Point:
        if (rate, users) not in seen:
            load = f"rate x {rate:.3g}" if rate else f"{users} users"

            def tick(share: float) -> None:
                say(f"{load}: {share:.0%}")

            say(load)
            played = predict(server, probed.at_rate(rate or 1.0), users=users, tick=tick)
            seen[rate, users] = point(played, rate, users)
        return seen[rate, users]

    best, beyond = _largest_rate(lambda rate: at(rate=rate), limits)
    most = _most_users(lambda users: at(users=users), limits, min(MOST_USERS, len(probed.requests)))
    middle = best.rate if best and best.rate else LEAST_RATE
    curve = [at(rate=middle * part) for part in CURVE] if best else [at(rate=1.0)]
    breaks, why = what_breaks(beyond, limits)
    return Plan(server, probed, tuple(limits), best, most, tuple(curve), breaks, why)


def _largest_rate(
    at: Callable[[float], Point], limits: Sequence[Limit]
) -> tuple[Point | None, Point | None]:
    """The last rate that meets the limits, and the first beyond it that was tried."""
    low, high = 0.0, 1.0
    while not at(high).broken(limits):
        low, high = high, high * 2
        if high > MOST_RATE:
            return at(low), None
    if not low:
        low = high / 2
        while at(low).broken(limits):
            low, high = low / 2, low
            if low < LEAST_RATE:
                return None, at(high)
    while high / low > 1 + FINE:
        middle = (low * high) ** 0.5
        if at(middle).broken(limits):
            high = middle
        else:
            low = middle
    return at(low), at(high)


def _most_users(at: Callable[[int], Point], limits: Sequence[Limit], most: int) -> Point | None:
    low, high = 0, 1
    while high <= most and not at(high).broken(limits):
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > max(1, int(low * FINE)):
        middle = (low + high) // 2
        if at(middle).broken(limits):
            high = middle
        else:
            low = middle
    return at(low) if low else None


WAITS = {
    "no_room": "memory",
    "preempted": "memory",
    "batch_full": "places",
    "budget": "compute",
}
"""What a wait at the head of the queue is a want of."""


def what_breaks(beyond: Point | None, limits: Sequence[Limit]) -> tuple[str, str]:
    """(memory, places, compute or nothing, the sentence of why) just beyond the largest rate."""
    if beyond is None:
        return "nothing", f"every rate up to x {MOST_RATE:g} meets the limits"
    wants: Counter[str] = Counter()
    for why, share in beyond.kept.items():
        wants[WAITS[why]] += share  # type: ignore[assignment]
    over = ", ".join(
        f"{limit.delay}.{limit.statistic} is {beyond.delays[limit.delay][limit.statistic]:.3g} s"
        for limit in beyond.broken(limits)
    )
    load = f"at rate x {beyond.rate:.3g} {over}"
    want = wants.most_common(1)[0][0] if wants else ""
    if want == "memory" and wants["memory"] > 0.02:
        return "memory", (
            f"{load}: {wants['memory']:.0%} of the time somebody waits for blocks, "
            f"{beyond.cache:.0%} of the pool is in use, {beyond.preemptions:,} preemptions have "
            f"{beyond.recomputed:,} tokens computed again"
        )
    if want == "places" and wants["places"] > 0.02:
        return "places", (
            f"{load}: {wants['places']:.0%} of the time somebody waits since max_running requests "
            "are in the batch"
        )
    return "compute", (
        f"{load}: {beyond.in_flight:.0f} requests share each step in the mean, and prompts fill "
        f"its step_tokens {wants['compute']:.0%} of the time; {beyond.preemptions:,} preemptions"
    )


def summary(found: Plan) -> dict[str, Any]:
    """The plan as one JSON object."""
    clock = found.server.clock()
    return {
        "schema": SCHEMA,
        "workload": found.workload.name,
        "requests": len(found.workload.requests),
        "gpu": found.server.card.name,
        "model": found.server.model.name,
        "tp": found.server.tp,
        "num_blocks": found.server.config.num_blocks,
        "limits": [str(limit) for limit in found.limits],
        "rate": _told(found.rate),
        "users": _told(found.users),
        "curve": [_told(one) for one in found.curve],
        "breaks": found.breaks,
        "why": found.why,
        "clock": {"kind": clock.kind, "source": clock.source, "known_error": clock.known_error},
    }


def _told(point: Point | None) -> dict[str, Any] | None:
    if point is None:
        return None
    load = {"rate": point.rate} if point.users is None else {"users": point.users}
    return {
        **load,
        "requests_per_s": point.requests_per_s,
        "in_flight": point.in_flight,
        "cache": point.cache,
        "preemptions": point.preemptions,
        "tokens_recomputed": point.recomputed,
        "waiting_for": point.kept,
        **point.delays,
    }


def report(found: Plan) -> str:
    """The plan as a person reads it."""
    asked = len(found.workload.requests)
    limits = ", ".join(map(str, found.limits))
    lines = [
        f"{found.workload.name}, its first {asked:,} requests, on {found.server.tp} x "
        f"{found.server.card.title}, {found.server.model.name}, "
        f"{found.server.config.num_blocks:,} blocks",
        f"limits: {limits}",
        "",
    ]
    if found.rate is None:
        lines.append("no rate meets the limits")
    else:
        rate = found.rate
        own = asked / found.workload.seconds if found.workload.seconds else 0.0
        lines.append(
            f"largest rate: x {rate.rate:.3g}, {own * (rate.rate or 0):.3g} requests a second"
        )
    users = found.users.users if found.users else 0
    lines += [
        f"most users: {users} requests in flight",
        f"breaks first: {found.breaks}; {found.why}",
    ]
    lines += [
        "",
        "    rate  requests/s  in flight  cache  preempted  "
        + "  ".join(f"{limit.delay}.{limit.statistic}" for limit in found.limits),
    ]
    for one in found.curve:
        values = "  ".join(
            f"{one.delays[limit.delay][limit.statistic]:{len(limit.delay + limit.statistic) + 1}.3g}"
            for limit in found.limits
        )
        lines.append(
            f"{one.rate or 0:8.3g}{one.requests_per_s:12.3g}{one.in_flight:11.0f}{one.cache:7.0%}"
            f"{one.preemptions:11,}  {values}"
        )
    return "\n".join([*lines, ""])
