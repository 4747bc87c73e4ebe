"""What a run came to: delays in seconds, beside the measured ones where the workload has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvlab.predict.replay import Played, Tick, play
from kvlab.predict.server import Server
from kvlab.predict.workload import Workload

SCHEMA = "kvlab-prediction/1"
DELAYS = ("ttft_s", "tpot_s", "e2e_s")
STATISTICS = ("mean", "p50", "p90", "p99")


def predict(
    server: Server, workload: Workload, *, users: int | None = None, tick: Tick | None = None
) -> Played:
    """Play the workload on the server. Raises BadInput for a request that never fits."""
    return play(workload, server.config, server.clock(), users=users, tick=tick)


def quantile(ordered: Sequence[float], share: float) -> float:
    """The first value that more than `share` of them do not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def statistics(values: Sequence[float]) -> dict[str, float]:
    """Mean and quantiles; of no values, zeros."""
    if not values:
        return dict.fromkeys(STATISTICS, 0.0)
    ordered = sorted(values)
    quantiles = {f"p{part}": quantile(ordered, part / 100) for part in (50, 90, 99)}
    return {"mean": sum(ordered) / len(ordered), **quantiles}


def delays(played: Played) -> dict[str, list[float]]:
    """Each request's seconds to its first output, a further output, and the last.

    They count from the request's arrival; where arrivals are those at which a real engine took
    requests up (or are made by `users`), from when ours does. A request with one output has no
    further one and is left out of `tpot_s`.
    """
    asked = played.workload.requests
    arrivals = [one.arrival_s for one in asked]
    since = played.taken if played.workload.queued or played.closed else arrivals
    return _delays(since, played.first, played.last, [one.output_tokens for one in asked])


def measured_delays(workload: Workload) -> dict[str, list[float]] | None:
    """The same as they were measured; None where some were not."""
    measured = [one.measured for one in workload.requests if one.measured is not None]
    if len(measured) < len(workload.requests):
        return None
    return _delays(
        [one.arrival_s for one in workload.requests],
        [one.first_token_s for one in measured],
        [one.last_token_s for one in measured],
        [one.output_tokens for one in workload.requests],
    )


def _delays(
    since: Sequence[float], first: Sequence[float], last: Sequence[float], outputs: Sequence[int]
) -> dict[str, list[float]]:
    ends = list(zip(since, first, last, outputs, strict=True))
    return {
        "ttft_s": [begin - start for start, begin, _, _ in ends],
        "tpot_s": [(end - begin) / (count - 1) for _, begin, end, count in ends if count > 1],
        "e2e_s": [end - start for start, _, end, _ in ends],
    }


def summary(server: Server, played: Played) -> dict[str, Any]:
    """The run as one JSON object: the contract of `kvlab predict --summary`."""
    clock, engine = server.clock(), played.engine
    predicted = delays(played)
    told: dict[str, Any] = {
        "schema": SCHEMA,
        "workload": played.workload.name,
        "gpu": server.card.name,
        "model": server.model.name,
        "tp": server.tp,
        "requests": len(played.jobs),
        "makespan_s": max(played.last),
        "steps": played.steps,
        "preemptions": engine.preemptions,
        "requests_preempted": sum(job.preemptions > 0 for job in played.jobs),
        "tokens_recomputed": engine.recomputed,
        "tokens_from_cache": engine.from_cache,
        **{name: statistics(values) for name, values in predicted.items()},
        "goodput_rps": len(played.jobs) / max(played.last),
        "num_blocks": server.config.num_blocks,
        "clock": {"kind": clock.kind, "source": clock.source, "known_error": clock.known_error},
    }
    if server.pool is not None:
        told["memory"] = {"block_bytes": server.pool.block_bytes, "terms": server.pool.terms}
    measured = measured_delays(played.workload)
    if measured is not None and not played.closed:
        told["measured"] = {name: statistics(values) for name, values in measured.items()}
        told["error"] = {
            name: {
                which: relative(told[name][which], told["measured"][name][which])
                for which in STATISTICS
            }
            for name in DELAYS
        }
        off = [
            abs(relative(ours, theirs))
            for ours, theirs in zip(predicted["e2e_s"], measured["e2e_s"], strict=True)
        ]
        told["error"]["e2e_per_request"] = sum(off) / len(off)
    return told


def relative(ours: float, theirs: float) -> float:
    """How far off, as a share of the measured."""
    return ours / theirs - 1 if theirs else 0.0


def report(server: Server, played: Played) -> str:
    """The summary as a person reads it."""
    told = summary(server, played)
    cards = server.card.title if server.tp == 1 else f"{server.tp} x {server.card.title}"
    lines = [
        f"{told['workload']}: {told['requests']:,} requests on {cards}, {server.model.name}",
        "",
        *(server.pool.told() if server.pool else [f"{server.config.num_blocks:,} blocks, as set"]),
        "",
        f"{told['makespan_s']:,.1f} s, {told['steps']:,} steps, {told['goodput_rps']:.2f} requests/s, "
        f"{max(played.timeline.running)} in flight at most",
        f"{told['preemptions']:,} preemptions of {told['requests_preempted']:,} requests: "
        f"{told['tokens_recomputed']:,} tokens computed again, "
        f"{told['tokens_from_cache']:,} found in the cache",
        "",
        "predicted      " + "".join(f"{name:>12}" for name in STATISTICS),
    ]
    for name in DELAYS:
        lines.append(f"{name:<15}" + "".join(f"{told[name][one]:12.4f}" for one in STATISTICS))
    if "measured" in told:
        lines.append("measured")
        for name in DELAYS:
            row = told["measured"][name]
            lines.append(f"{name:<15}" + "".join(f"{row[one]:12.4f}" for one in STATISTICS))
        lines.append("off by")
        for name in DELAYS:
            row = told["error"][name]
            lines.append(f"{name:<15}" + "".join(f"{row[one]:+12.2%}" for one in STATISTICS))
        lines.append(
            f"end to end, each request: {told['error']['e2e_per_request']:.2%} in the mean"
        )
    clock = told["clock"]
    lines += ["", f"clock: {clock['source']}", f"its error: {clock['known_error']}", ""]
    return "\n".join(lines)
