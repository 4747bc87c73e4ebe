"""What a class learned: the answers of both forms, before and after, as the pages save them."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean

from kvlab.course.quiz.bank import CONSTRUCTS
from kvlab.errors import BadInput
from kvlab.trace.table import Table

COLUMNS = ("student", "form", "seed", "item", "given", "right", "misconception")
ROUNDS = 10_000  # of the bootstrap
SEED = 1
MOST_BYTES = 5_000_000


@dataclass(frozen=True, slots=True)
class Answers:
    """One student's answers: the share that is right, and the misconceptions of the others."""

    student: str
    share: float
    misconceptions: tuple[str, ...]


def read_answers(path: Path) -> dict[str, Answers]:
    """A file of one or many students, by student. Raises BadInput for what is no such file."""
    what = f"quiz results {str(path)[:200]}"
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadInput(f"{what}: larger than {MOST_BYTES:,} bytes; give what the page saved.")
        lines = path.read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise BadInput(f"{what}: that is no text; give the CSV file that the page saved.") from None
    except OSError as error:
        raise BadInput(f"{what}: cannot be read ({error.strerror}).") from None
    rows = list(csv.reader(lines))
    if not rows or tuple(rows[0]) != COLUMNS:
        raise BadInput(f"{what}: the first line must be {','.join(COLUMNS)}.")
    found: dict[str, dict[str, tuple[bool, str]]] = {}
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(COLUMNS) or row[3] not in CONSTRUCTS or not row[0]:
            raise BadInput(f"{what}, line {number}: not an answer as the page saves it.")
        found.setdefault(row[0], {})[row[3]] = (row[4] == row[5], row[6])
    if not found:
        raise BadInput(f"{what}: there is no answer in it.")
    return {
        student: Answers(
            student,
            sum(right for right, _ in answers.values()) / len(CONSTRUCTS),
            tuple(kind for right, kind in answers.values() if not right and kind),
        )
        for student, answers in found.items()
    }


def gain(before: Sequence[float], after: Sequence[float]) -> float:
    """The normalised gain of a class (Hake 1998, doi:10.1119/1.18809): of what could be gained, the
    share that was: (mean after - mean before) / (1 - mean before). 0 where nothing was left."""
    left = 1 - fmean(before)
    return (fmean(after) - fmean(before)) / left if left > 0 else 0.0


def interval(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """The middle 95 % of the gain over ROUNDS classes drawn with replacement from the students (the
    percentile bootstrap, Efron and Tibshirani 1993, chapter 13), seeded."""
    rng, pairs = Random(SEED), list(zip(before, after, strict=True))
    gains = []
    for _ in range(ROUNDS):
        drawn = rng.choices(pairs, k=len(pairs))
        gains.append(gain([one for one, _ in drawn], [other for _, other in drawn]))
    gains.sort()
    return gains[round(0.025 * (ROUNDS - 1))], gains[round(0.975 * (ROUNDS - 1))]


def compared(before: Path, after: Path) -> tuple[Table, Table]:
    """The class before and after, and which misconceptions it had. Only who answered both counts.

    Raises BadInput for a file that is none, or two files without a student in common.
    """
    was, now = read_answers(before), read_answers(after)
    both = sorted(was.keys() & now.keys())
    if not both:
        raise BadInput("quiz results: no student is in both files; use the same codes twice.")
    first, second = [was[one].share for one in both], [now[one].share for one in both]
    low, high = interval(first, second)
    rows = (
        ("students in both", str(len(both))),
        ("right before", f"{fmean(first):.0%}"),
        ("right after", f"{fmean(second):.0%}"),
        ("normalised gain", f"{gain(first, second):.2f} (95 %: {low:.2f} to {high:.2f})"),
    )
    counts = [Counter(kind for one in both for kind in of[one].misconceptions) for of in (was, now)]
    kinds = sorted(counts[0] | counts[1], key=lambda kind: (-counts[0][kind], kind))
    held = tuple(
        (kind.replace("_", " "), *(str(count[kind]) for count in counts)) for kind in kinds
    )
    return (
        Table("What the class learned", ("", ""), rows),
        Table("Misconceptions, times chosen", ("", "before", "after"), held),
    )
