"""What the requirement files ask for, and what counts as having it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvlab.launcher.needs import LAB, TESTS, Pin, fingerprint, missing, read_pins, suits, unfinished

ROOT = Path(__file__).resolve().parents[2]


def test_the_shipped_files_are_pins_and_name_nothing_twice():
    lab, tests = read_pins(ROOT, [LAB]), read_pins(ROOT, [TESTS])
    assert {"torch", "jupyterlab", "voila", "typer"} <= {pin.name for pin in lab}
    assert {"pytest", "ruff", "mypy"} <= {pin.name for pin in tests}
    assert not {pin.name for pin in lab} & {pin.name for pin in tests}
    assert len(read_pins(ROOT, [LAB, TESTS])) == len(lab) + len(tests)


def test_a_line_that_is_no_pin_is_named(tmp_path: Path):
    (tmp_path / "r.txt").write_text("a==1\nb>=2\n")
    with pytest.raises(ValueError, match=r"r\.txt: 'b>=2'"):
        read_pins(tmp_path, ["r.txt"])


def test_a_pin_for_another_kind_of_machine_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.platform", "linux")
    (tmp_path / "r.txt").write_text(
        'a==1; sys_platform == "linux" and os_name != "nowhere"\n'
        "b==2 ; sys_platform == 'win32' or sys_platform == 'darwin'\n"
    )
    assert read_pins(tmp_path, ["r.txt"]) == [Pin("a", "1")]
    (tmp_path / "r.txt").write_text('a==1; python_version < "3.12"\n')
    with pytest.raises(ValueError, match="marker that cannot be read"):
        read_pins(tmp_path, ["r.txt"])


@pytest.mark.parametrize(
    ("pin", "version", "fits"),
    [
        (Pin("plotly", "7.1.0"), "7.1.0", True),
        (Pin("plotly", "7.1.0"), "7.1.1", False),
        (Pin("torch", "2.13.0"), "2.13.0+cpu", True),
        (Pin("torch", "2.13.0"), "2.13.0+cu130", True),
        (Pin("torch", "2.13.0"), "2.11.0", True),
        (Pin("torch", "2.13.0"), "2.14.1", True),
        (Pin("torch", "2.13.0"), "2.10.1", False),
        (Pin("torch", "2.13.0"), "3.0.0", False),
    ],
)
def test_a_torch_that_suits_is_kept_and_everything_else_is_the_pinned_release(
    pin: Pin, version: str, fits: bool
):
    assert suits(pin, version) is fits
    assert missing([pin], {pin.name: version}) == ([] if fits else [pin])


def test_names_are_compared_as_registries_do():
    assert missing([Pin("PyYAML", "6.0.4"), Pin("a_b", "1")], {"pyyaml": "6.0.4", "a-b": "1"}) == []


def test_line_ends_do_not_change_a_fingerprint(tmp_path: Path):
    unix, windows, other = (tmp_path / name for name in ("u", "w", "o"))
    unix.write_bytes(b"a==1\n")
    windows.write_bytes(b"a==1\r\n")
    other.write_bytes(b"a==2\n")
    assert fingerprint(unix) == fingerprint(windows) != fingerprint(other)


def test_what_an_interrupted_install_leaves_is_found(tmp_path: Path):
    whole, cut, replaced = (
        tmp_path / name for name in ("whole-1.dist-info", "cut-1.dist-info", "~ut")
    )
    for folder in (whole, cut, replaced):
        folder.mkdir()
    for name in ("METADATA", "INSTALLER", "RECORD"):
        (whole / name).touch()
    (cut / "METADATA").touch()
    assert unfinished(tmp_path) == [cut, replaced]
    assert unfinished(tmp_path / "absent") == []
