"""Workloads: when requests came and how long they were, from files of four forms.

JSON lines with `arrival_s`, `prompt_tokens`, `output_tokens` and optionally `prompt_blocks` and
`measured`; CSV with the first three as its header; Azure's CSV (`TIMESTAMP,ContextTokens,
GeneratedTokens`); Mooncake's JSON lines (`timestamp`, `input_length`, `output_length`, `hash_ids`).
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from kvlab.errors import BadInput

SERVERS = Path(__file__).resolve().parents[2] / "assets" / "servers"
SHIPPED = {
    "azure-code": "azure-code.csv.gz",
    "azure-conv": "azure-conv.csv.gz",
    "sharegpt-300": "sharegpt-300.jsonl.gz",
}
BLOCK = 16
"""Tokens of a block of `prompt_blocks`."""
MOONCAKE_BLOCK = 512
MOST_REQUESTS = 200_000
MOST_TOKENS = 1_000_000
LARGEST = 200_000_000  # bytes


@dataclass(frozen=True, slots=True)
class Measured:
    """When a real server's first and last token of a request left the engine, in seconds."""

    first_token_s: float
    last_token_s: float


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: its arrival in seconds, the tokens of its prompt and of its output.

    `blocks` are numbers of the prompt's full 16-token blocks, from its beginning on: equal numbers
    mean equal tokens with an equal beginning. A prompt without them shares nothing.
    """

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    measured: Measured | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in the order of their arrival, the first at second 0.

    `queued`: the arrivals are the times at which a real engine took the requests up, always between
    two of its steps (vLLM's queued time, as in our own JSON lines). Delays then count from when the
    engine takes a request up; otherwise from its arrival, which mostly falls into a step.
    """

    name: str
    requests: tuple[Asked, ...]
    queued: bool

    @property
    def is_measured(self) -> bool:
        return all(asked.measured is not None for asked in self.requests)

    @property
    def seconds(self) -> float:
        """From the first arrival to the last."""
        return self.requests[-1].arrival_s

    def at_rate(self, rate: float) -> Workload:
        """The same requests, `rate` times as fast; what was measured is no measure of that."""
        if not 0 < rate < 1e6:
            raise BadInput(f"--rate {rate:g}: must be above 0 and below a million.")
        if rate == 1:
            return self
        faster = (
            replace(asked, arrival_s=asked.arrival_s / rate, measured=None)
            for asked in self.requests
        )
        return replace(self, requests=tuple(faster))

    def first(self, count: int) -> Workload:
        """The first `count` requests."""
        return replace(self, requests=self.requests[:count])


def load_workload(name: str | Path) -> Workload:
    """A shipped workload by its name, or a file. Raises BadInput, naming the line."""
    shipped = SHIPPED.get(str(name))
    path = SERVERS / "workloads" / shipped if shipped else Path(name)
    try:
        if path.is_file() and path.stat().st_size > LARGEST:
            raise BadInput(f"{name}: larger than {LARGEST:,} bytes.")
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or "not a whole gzip file"
        known = ", ".join(sorted(SHIPPED))
        raise BadInput(f"{name}: cannot be read ({reason}); shipped are {known}.") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{name}: not UTF-8 text ({error.reason}, byte {error.start}).") from None
    return read_workload(text, str(name))


def read_workload(text: str, name: str) -> Workload:
    """The workload in a text of any of the four forms; `name` is for messages. Raises BadInput."""
    lines = [(at, line) for at, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not lines:
        raise BadInput(f"{name}: there is no request in it.")
    if len(lines) > MOST_REQUESTS + 1:
        raise BadInput(f"{name}: more than {MOST_REQUESTS:,} requests.")
    if lines[0][1].lstrip().startswith("{"):
        rows = [(at, _json_row(line, f"{name}: line {at}")) for at, line in lines]
        ours = "arrival_s" in rows[0][1]
        asked = [
            _from_json(row, f"{name}: line {at}")
            if ours
            else _from_mooncake(row, f"{name}: line {at}")
            for at, row in rows
        ]
        return _from_second_0(name, asked, queued=ours)
    return _from_second_0(name, list(_from_csv(lines, name)), queued=False)


def _from_second_0(name: str, asked: list[Asked], *, queued: bool) -> Workload:
    """Sorted by arrival, and counted from the first; a measurement lives on the same clock."""
    if not asked:
        raise BadInput(f"{name}: there is no request in it.")
    asked.sort(key=lambda one: one.arrival_s)
    start = asked[0].arrival_s
    if start:
        asked = [_earlier(one, start) for one in asked]
    return Workload(name, tuple(asked), queued)


def _earlier(asked: Asked, by: float) -> Asked:
    measured = asked.measured
    if measured is not None:
        measured = Measured(measured.first_token_s - by, measured.last_token_s - by)
    return replace(asked, arrival_s=asked.arrival_s - by, measured=measured)


def _json_row(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise BadInput(f"{where}: not a whole JSON object (a torn line?).") from None
    if not isinstance(row, dict):
        raise BadInput(f"{where}: must be a JSON object.")
    return row


def _from_json(row: dict[str, Any], where: str) -> Asked:
    prompt = _count(row, "prompt_tokens", where)
    blocks = row.get("prompt_blocks", [])
    if not isinstance(blocks, list) or not all(type(block) is int for block in blocks):
        raise BadInput(f"{where}: prompt_blocks must be a list of whole numbers.")
    if len(blocks) > prompt // BLOCK:
        raise BadInput(
            f"{where}: {len(blocks)} prompt_blocks of {BLOCK} tokens are more than the prompt's "
            f"{prompt} tokens fill."
        )
    return Asked(
        _seconds(row, "arrival_s", where),
        prompt,
        _count(row, "output_tokens", where),
        tuple(blocks),
        _measured(row.get("measured"), where),
    )


def _measured(raw: Any, where: str) -> Measured | None:
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise BadInput(f"{where}: measured must be an object with first_token_s and last_token_s.")
    times = (_seconds(raw, name, where) for name in ("first_token_s", "last_token_s"))
    return Measured(*times)


def _from_mooncake(row: dict[str, Any], where: str) -> Asked:
    """Times in milliseconds; a number of `hash_ids` is a block of 512 tokens, 32 of ours."""
    prompt = _count(row, "input_length", where)
    ids = row.get("hash_ids", [])
    if not isinstance(ids, list) or not all(type(id) is int for id in ids):
        raise BadInput(f"{where}: hash_ids must be a list of whole numbers.")
    parts = MOONCAKE_BLOCK // BLOCK
    blocks = [id * parts + part for id in ids for part in range(parts)]
    return Asked(
        _seconds(row, "timestamp", where) / 1_000,
        prompt,
        _count(row, "output_length", where),
        tuple(blocks[: prompt // BLOCK]),
    )


OURS = ("arrival_s", "prompt_tokens", "output_tokens")
AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def _from_csv(lines: Iterable[tuple[int, str]], name: str) -> Iterator[Asked]:
    numbers, texts = zip(*lines, strict=True)
    reader = csv.reader(texts)
    header = tuple(cell.strip() for cell in next(reader))
    names = next((form for form in (OURS, AZURE) if set(form) <= set(header)), None)
    if names is None:
        raise BadInput(
            f"{name}: line {numbers[0]}: neither JSON lines nor a CSV header with "
            f"{', '.join(OURS)} or {', '.join(AZURE)}."
        )
    for at, cells in zip(numbers[1:], reader, strict=False):
        where = f"{name}: line {at}"
        if len(cells) != len(header):
            raise BadInput(f"{where}: {len(cells)} values where the header has {len(header)}.")
        row: dict[str, Any] = dict(zip(header, (cell.strip() for cell in cells), strict=True))
        when, prompt, output = names
        if names is AZURE:
            row[when] = _timestamp(row[when], where)
        yield Asked(
            _seconds(row, when, where), _count(row, prompt, where), _count(row, output, where)
        )


def _timestamp(text: str, where: str) -> float:
    """Seconds of `2023-11-16 18:15:46.6805900`; whole days apart or not makes no difference."""
    try:
        whole, _, part = text.partition(".")
        at = datetime.fromisoformat(whole)
        return (at - datetime(at.year, 1, 1)).total_seconds() + float(f"0.{part[:9] or 0}")
    except ValueError:
        raise BadInput(f"{where}: TIMESTAMP = {text!r} is no date and time.") from None


def _seconds(row: dict[str, Any], key: str, where: str) -> float:
    value = row.get(key)
    try:
        seconds = float(value) if isinstance(value, str | int | float) else float("nan")
    except ValueError:
        seconds = float("nan")
    if not 0 <= seconds < 1e12 or isinstance(value, bool):
        raise BadInput(f"{where}: {key} = {value!r} must be a time from 0 on.")
    return seconds


def _count(row: dict[str, Any], key: str, where: str) -> int:
    value = row.get(key)
    try:
        count = int(value) if isinstance(value, str | int) else 0
    except ValueError:
        count = 0
    if not 1 <= count <= MOST_TOKENS or isinstance(value, bool):
        raise BadInput(
            f"{where}: {key} = {value!r} must be a whole number from 1 to {MOST_TOKENS:,}."
        )
    return count
