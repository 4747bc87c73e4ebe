"""A run's summary as plain text for a terminal: one row per step, then the totals."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kvlab.errors import printable

GAP = "  "
HARD_SPACE = "\N{NO-BREAK SPACE}"
"""Keeps one request's words on one line while a cell is wrapped; printed as a plain space."""

Summary = Mapping[str, Any]
"""The summary of a run, with the keys that `kvlab run --summary` prints."""


def step_table(
    summary: Summary, width: int = 100, token_text: Callable[[int], str] | None = None
) -> str:
    """The whole report. `token_text` gives a token's text, where there is a tokenizer."""
    parts = [heading(summary), steps(summary, width, token_text), totals(summary, width)]
    return "\n\n".join(part for part in parts if part) + "\n"


def heading(summary: Summary) -> str:
    """Scenario, device and model; says so when the tokens are stand-ins."""
    model = summary.get("model")
    words = [str(summary["scenario"])]
    if model is None:
        words.append("no model: scheduling only, the tokens are stand-ins")
    else:
        words.append(f"model {model}, {summary['dtype']} on {summary['device']}")
    words.append(f"{counted(summary['steps'], 'step')} in {summary['seconds']:.3f} s")
    return "\n".join([words[0], GAP.join(words[1:])])


def steps(
    summary: Summary, width: int = 100, token_text: Callable[[int], str] | None = None
) -> str:
    """One row per step: the state after it, and what happened in it."""
    header = ("step", "scheduled", "free", "blocks", "KV", "delivered", "what happened")
    delivered: dict[str, int] = {}
    rows: list[Sequence[str]] = []
    paused: set[str] = set()
    for step in summary["per_step"]:
        rows.append(
            (
                str(step["step"]),
                each(f"{name} {n}" for name, n in step["scheduled"].items()),
                str(step["free"]),
                _tables(step),
                each(f"{name} {n}" for name, n in step["kv"].items()),
                _delivered(step["emitted"], delivered, token_text),
                "; ".join(_events(step, paused, summary["requests"])),
            )
        )
        paused = set(step.get("paused", ()))
    return columns(header, rows, width, right=(0, 2))


def _tables(step: Mapping[str, Any]) -> str:
    held = [f"{name} {_blocks('P', ids)}" for name, ids in step["blocks"].items()]
    kept = [f"{name} {_blocks('H', ids)}" for name, ids in step.get("host_blocks", {}).items()]
    return each(held + kept)


def _blocks(letter: str, ids: Sequence[int]) -> str:
    """`P0 P1 P2`; a long run of neighbours as `P0..P9`."""
    runs: list[list[int]] = []
    for one in ids:
        if runs and one == runs[-1][-1] + 1:
            runs[-1].append(one)
        else:
            runs.append([one])
    return " ".join(
        f"{letter}{run[0]}..{letter}{run[-1]}"
        if len(run) > 3
        else " ".join(f"{letter}{one}" for one in run)
        for run in runs
    )


def _delivered(
    emitted: Mapping[str, Sequence[int]],
    so_far: dict[str, int],
    token_text: Callable[[int], str] | None,
) -> str:
    """`A x2 "the"`: outputs are counted per request over the whole run."""
    words = []
    for name, tokens in emitted.items():
        for token in tokens:
            place = so_far.get(name, 0)
            so_far[name] = place + 1
            text = f" {quoted(token_text(token))}" if token_text else ""
            words.append(f"{name} x{place}{text}")
    return each(words)


def _events(
    step: Mapping[str, Any], paused_before: set[str], requests: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """What happened, causes before effects. Bare numbers count blocks."""
    said = []
    for name in step.get("paused", ()):
        if name not in paused_before:
            said.append(f"{name} paused, keeps its blocks")
    for victim in step["preempted"]:
        held, back = victim["blocks"], victim["reclaimable"]
        freed = f"{back}" if back == held else f"{back} of {held}"
        said.append(f"{victim['id']} preempted ({victim['method']}), {freed} freed")
    for copy in step.get("copies", ()):
        verb = "copied" if copy["done"] else "is being copied"
        said.append(f"{copy['id']} {verb} {copy['direction']}, {copy['blocks']}")
    resumed = step["resumed"]
    for name in resumed:
        said.append(f"{name} resumed")
    fresh = [name for name in step["admitted"] if name not in resumed]
    if fresh:
        said.append(f"{', '.join(fresh)} admitted")
    for stall in step["stalled"]:
        said.append(f"{stall['id']} stalled, needs {stall['needs']}")
    for name in step["finished"]:
        why = requests[name].get("finish_reason") if name in requests else None
        usual = why in (None, "length", "stop")
        said.append(f"{name} finished" if usual else f"{name} ended ({why})")
    return said


def totals(summary: Summary, width: int = 100) -> str:
    """The run in numbers, then each request."""
    lines = [
        f"{counted(summary['preemptions'], 'preemption')}, "
        f"{counted(summary['tokens_processed'], 'token')} processed, "
        f"{summary['tokens_recomputed']} of them again"
    ]
    if summary.get("blocks_swapped_out") or summary.get("blocks_swapped_in"):
        lines.append(
            f"{counted(summary['blocks_swapped_out'], 'block')} copied out "
            f"({summary['bytes_swapped_out']:,} bytes), "
            f"{counted(summary['blocks_swapped_in'], 'block')} copied in "
            f"({summary['bytes_swapped_in']:,} bytes)"
        )
    if summary.get("tokens_from_cache"):
        own = summary.get("tokens_from_own_cache", 0)
        again = f", {own} of them a request's own, found again" if own else ""
        lines.append(
            f"{counted(summary['tokens_from_cache'], 'token')} taken from the cache{again}"
        )
    for damage in summary.get("damage", ()):
        lines.append(
            f"damaged: {damage['request']}, layer {damage['layer']}, block {damage['block']} "
            f"({damage['why']})"
        )
    header = ("request", "outputs", "first in step", "gaps", "waited", "recovery", "end", "text")
    rows = [_request_row(name, request) for name, request in summary["requests"].items()]
    table = columns(header, rows, width, right=(1, 2, 4, 5))
    messages = [
        f"{name}: {request['message']}"
        for name, request in summary["requests"].items()
        if request.get("message")
    ]
    blocks = ["\n".join(lines), table, "\n".join(messages)]
    return "\n\n".join(block for block in blocks if block)


def _request_row(name: str, request: Mapping[str, Any]) -> Sequence[str]:
    first = request.get("ttft_steps")
    text = request.get("text")
    return (
        name,
        str(len(request["output"])),
        "-" if first is None else str(first),
        " ".join(str(gap) for gap in request.get("gaps_steps", ())) or "-",
        str(request.get("waiting_steps", "-")),
        str(request.get("recovery_steps", "-")),
        _ends(request),
        quoted(text) if text else "-",
    )


def _ends(request: Mapping[str, Any]) -> str:
    """Why it ended; where its samples ended for different reasons, all of them in order."""
    reasons = request.get("sample_reasons", [request.get("finish_reason")])
    return " ".join(map(str, reasons if len(set(reasons)) > 1 else reasons[:1]))


def columns(
    header: Sequence[str], rows: Sequence[Sequence[str]], width: int, right: Sequence[int] = ()
) -> str:
    """Columns as wide as they must be; where they do not fit, the widest wrap. Columns that are
    empty in every row are left out; the indices in `right` are set flush right."""
    shown = [i for i in range(len(header)) if any(row[i] for row in rows)]
    widths = {i: max(len(line) for line in (header[i], *(row[i] for row in rows))) for i in shown}
    smallest = {
        i: max(len(word) for row in (header, *rows) for word in row[i].split(" ")) for i in shown
    }
    room = width - len(GAP) * (len(shown) - 1)
    while sum(widths.values()) > room:
        widest = max(shown, key=lambda i: widths[i] - smallest[i])
        if widths[widest] <= smallest[widest]:
            break  # a word that is wider than the page: let it stand out
        widths[widest] -= 1
    lines = []
    for row in (header, *rows):
        cells = {i: _wrap(row[i], widths[i]) for i in shown}
        for n in range(max(len(cell) for cell in cells.values())):
            parts = []
            for i in shown:
                text = cells[i][n] if n < len(cells[i]) else ""
                parts.append(text.rjust(widths[i]) if i in right else text.ljust(widths[i]))
            lines.append(GAP.join(parts).rstrip().replace(HARD_SPACE, " "))
    return "\n".join(lines)


def _wrap(cell: str, width: int) -> list[str]:
    return textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False) or [""]


def each(items: Iterable[str]) -> str:
    """Items that may part from each other but not within."""
    return GAP.join(item.replace(" ", HARD_SPACE) for item in items)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def quoted(text: str) -> str:
    """A token's text with its line ends, and all else that cannot be seen, written out."""
    shown = printable(text.replace("\\", "\\\\"))
    return f'"{shown}"'
