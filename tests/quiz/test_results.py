"""What a class learned, worked out by hand for small classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvlab.course.quiz.bank import CONSTRUCTS
from kvlab.course.quiz.results import COLUMNS, compared, gain, interval, read_answers
from kvlab.errors import BadInput


def write(path: Path, rights: dict[str, int]) -> Path:
    """Students with so many right answers; each wrong one stands for skipping_frees."""
    lines = [",".join(COLUMNS)]
    for student, count in rights.items():
        for at, item in enumerate(CONSTRUCTS):
            given, kind = ("5", "") if at < count else ("6", "skipping_frees")
            lines.append(f'"{student}","A","1","{item}","{given}","5","{kind}"')
    path.write_text("\r\n".join(lines) + "\r\n")
    return path


def test_gain_is_the_share_of_what_could_be_gained() -> None:
    """Hake: from 25 % to 75 % is two thirds of the 75 % that were left."""
    assert gain([0.25, 0.25], [0.5, 1.0]) == pytest.approx(2 / 3)
    assert gain([1.0], [1.0]) == 0
    assert gain([0.5, 0.5], [0.25, 0.25]) == pytest.approx(-0.5)


def test_the_interval_holds_the_gain_and_is_a_point_where_all_are_alike() -> None:
    before, after = [0.2, 0.4, 0.5, 0.3, 0.6], [0.5, 0.9, 0.6, 0.8, 0.7]
    low, high = interval(before, after)
    assert low < gain(before, after) < high
    assert interval([0.25] * 4, [0.75] * 4) == pytest.approx((2 / 3, 2 / 3))


def test_only_who_answered_both_counts(tmp_path: Path) -> None:
    before = write(tmp_path / "a.csv", {"k1": 3, "k2": 3, "gone": 0})
    after = write(tmp_path / "b.csv", {"k1": 9, "k2": 9, "late": 12})
    learned, kinds = compared(before, after)
    said = {row[0]: row[1] for row in learned.rows}
    assert said["students in both"] == "2"
    assert (said["right before"], said["right after"]) == ("25%", "75%")
    assert said["normalised gain"] == "0.67 (95 %: 0.67 to 0.67)"
    assert kinds.rows == (("skipping frees", "18", "6"),)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\xff\xfe",
        b"name,points\nk1,3\n",
        ",".join(COLUMNS).encode() + b"\n",
        ",".join(COLUMNS).encode() + b"\nk1,A,1,no_such_item,1,1,\n",
        ",".join(COLUMNS).encode() + b"\nk1,A\n",
    ],
)
def test_what_is_no_results_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r.csv"
    path.write_bytes(content)
    with pytest.raises(BadInput, match="quiz results") as caught:
        read_answers(path)
    assert len(str(caught.value)) < 300 + len(str(path))


def test_files_of_two_classes_are_refused(tmp_path: Path) -> None:
    before, after = write(tmp_path / "a", {"k1": 1}), write(tmp_path / "b", {"k2": 1})
    with pytest.raises(BadInput, match="no student is in both"):
        compared(before, after)
    with pytest.raises(BadInput, match="cannot be read"):
        compared(before, tmp_path / "none.csv")
