"""Layer tables: microseconds that the kernels of one layer took on a card, and what lies between.

Measured by LLMServingSim 2.0's profiler in vLLM without graphs or compilation (assets/servers has
their origin and licence). Four parts: dense layers by tokens; head and sampler by sequences;
attention of decoding requests alone, all of one context, by sequences and context; attention of one
prefill chunk by its tokens and the positions before it, alone and with decoding requests beside it.
"""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

TABLES = Path(__file__).resolve().parents[2] / "assets" / "servers" / "tables"
UNIT = 1e-8
"""Seconds of 1 in the files."""
MATRICES = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
NORMS = 2
"""Layer norms in a layer; every other dense layer is there once."""
ONCE = ("embedding", "final_layernorm")
"""Of a whole step, not of a layer."""

Axis = Sequence[int]


def place(axis: Axis, at: float) -> tuple[int, float]:
    """Between which two values of the axis: (index of the lower, share of the way to the next).

    Above the axis its last stretch goes on; below it the first value counts.
    """
    if at <= axis[0]:
        return 0, 0.0
    low = min(bisect_right(axis, at) - 1, len(axis) - 2)
    return low, (at - axis[low]) / (axis[low + 1] - axis[low])


def line(axis: Axis, values: Sequence[float], at: float) -> float:
    """The value at `at`, straight between its neighbours."""
    low, share = place(axis, at)
    return values[low] + share * (values[low + 1] - values[low])


def plane(
    rows: Axis, columns: Axis, values: Sequence[Sequence[float]], r: float, c: float
) -> float:
    """The value at (r, c), bilinear between its four neighbours."""
    low, share = place(rows, r)
    at, part = place(columns, c)
    first = values[low][at] + part * (values[low][at + 1] - values[low][at])
    second = values[low + 1][at] + part * (values[low + 1][at + 1] - values[low + 1][at])
    return first + share * (second - first)


@dataclass(frozen=True, slots=True)
class Attention:
    """Seconds of one layer's attention, uniform contexts."""

    decode_sequences: Axis
    decode_context: Axis
    decode_time: list[list[float]]
    chunk: Axis
    before: Axis
    chunk_time: list[list[float]]
    mixed_axes: tuple[Axis, Axis, Axis, Axis]  # chunk, before, sequences, context
    mixed_extra: list[float]  # what the decoding ones add, the last axis fastest

    def decode(self, sequences: float, context: float) -> float:
        """Of `sequences` decoding requests with `context` positions each."""
        return plane(
            self.decode_sequences, self.decode_context, self.decode_time, sequences, context
        )

    def prefill(self, tokens: float, before: float) -> float:
        """Of one chunk of `tokens`, with `before` positions before it."""
        return plane(self.chunk, self.before, self.chunk_time, tokens, before)

    def beside(self, tokens: float, before: float, sequences: float, context: float) -> float:
        """What decoding requests add to a chunk's attention when both are in one batch.

        More of them than were measured: as the most, with contexts as much longer (what they read
        together decides what the card's cache still holds), and each further one's own launch.
        """
        axes = self.mixed_axes
        most, least = axes[2][-1], axes[3][0]
        if sequences > most:
            launches = self.beside(tokens, before, most, least) * (sequences / most - 1)
            return launches + self.beside(tokens, before, most, context * sequences / most)
        spots = [
            place(axis, at)
            for axis, at in zip(axes, (tokens, before, sequences, context), strict=True)
        ]
        corners = [(0, 1.0)]
        for axis, (low, share) in zip(axes, spots, strict=True):
            corners = [
                (index * len(axis) + low + step, weight * (share if step else 1 - share))
                for index, weight in corners
                for step in (0, 1)
                if share or not step
            ]
        return sum(self.mixed_extra[index] * weight for index, weight in corners)

    @property
    def streaming(self) -> float:
        """Seconds for one more position of one request, when many are read: memory at its full rate.

        The slope at the table's far end, where what a kernel costs at its start is left behind.
        """
        (near, far), row = self.decode_context[-2:], self.decode_time[-1]
        return (row[-1] - row[-2]) / (far - near) / self.decode_sequences[-1]

    @property
    def alone(self) -> float:
        """Seconds for one more position of a request that one processor reads by itself.

        From the smallest chunk with one decoding request beside it: that kernel does not split a
        context, and one head of a request is one processor's work.
        """
        context = self.mixed_axes[3]
        last, before_last = self.mixed_extra[len(context) - 1], self.mixed_extra[len(context) - 2]
        return (last - before_last) / (context[-1] - context[-2])

    @property
    def floor(self) -> float:
        """Seconds of the smallest attention there is: its launch."""
        return self.decode_time[0][0]


@dataclass(frozen=True, slots=True)
class LayerTables:
    """One card's tables for one model (one of `tp` cards' share of it). Times in seconds."""

    card: str
    model: str
    tp: int
    tokens: Axis
    dense: dict[str, list[float]]
    sequences: Axis
    per_sequence: dict[str, list[float]]
    attention: Attention

    def matrices(self, tokens: float) -> float:
        """Of one layer's four matrix products."""
        return sum(line(self.tokens, self.dense[name], tokens) for name in MATRICES)

    def elementwise(self, tokens: float) -> float:
        """Of one layer's norms, rotary positions and activation."""
        names = [name for name in self.dense if name not in (*MATRICES, *ONCE)]
        return sum(
            line(self.tokens, self.dense[name], tokens) * (NORMS if name == "layernorm" else 1)
            for name in names
        )

    def ends(self, tokens: float) -> float:
        """Of the embedding and the last norm."""
        return sum(line(self.tokens, self.dense[name], tokens) for name in ONCE)

    def head(self, sequences: float) -> float:
        """Of the head and of selecting a token, greedily, for `sequences` requests."""
        return sum(line(self.sequences, times, sequences) for times in self.per_sequence.values())


def has_tables(card: str, model: str, tp: int) -> bool:
    return _path(card, model, tp).is_file()


def _path(card: str, model: str, tp: int) -> Path:
    return TABLES / f"{card}-{model}{'' if tp == 1 else f'-tp{tp}'}.json.gz"


@cache
def load_tables(card: str, model: str, tp: int) -> LayerTables:
    """The shipped tables of a card and a model; `has_tables` says whether there are some."""
    raw: dict[str, Any] = json.loads(gzip.decompress(_path(card, model, tp).read_bytes()))
    dense, head, decode = raw["dense"], raw["per_sequence"], raw["decode"]
    return LayerTables(
        card=raw["card"],
        model=raw["model"],
        tp=raw["tp"],
        tokens=dense["tokens"],
        dense={name: _seconds(times) for name, times in dense.items() if name != "tokens"},
        sequences=head["sequences"],
        per_sequence={name: _seconds(times) for name, times in head.items() if name != "sequences"},
        attention=Attention(
            decode["sequences"],
            decode["context"],
            [_seconds(row) for row in decode["time"]],
            raw["prefill"]["chunk"],
            raw["prefill"]["before"],
            [_seconds(row) for row in raw["prefill"]["time"]],
            *_mixed(raw),
        ),
    )


def _seconds(times: list[int]) -> list[float]:
    return [time * UNIT for time in times]


def _mixed(raw: dict[str, Any]) -> tuple[tuple[Axis, Axis, Axis, Axis], list[float]]:
    """The axes, and the times less those of the chunk alone."""
    mixed, prefill = raw["mixed"], raw["prefill"]
    axes = (mixed["chunk"], mixed["before"], mixed["sequences"], mixed["context"])
    inner = len(axes[2]) * len(axes[3])
    alone = [
        prefill["time"][prefill["chunk"].index(tokens)][prefill["before"].index(before)]
        for tokens in axes[0]
        for before in axes[1]
    ]
    return axes, _seconds([time - alone[at // inner] for at, time in enumerate(mixed["time"])])
