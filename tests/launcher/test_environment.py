"""When `.venv` counts as whole, and how it is made and mended. No pip runs here."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from kvlab.errors import CannotStart, Console
from kvlab.launcher.environment import Environment
from kvlab.launcher.needs import LAB, TESTS

QUIET = Console(io.StringIO())


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A checkout with a fresh environment that has been stamped for the lab."""
    (tmp_path / "tests").mkdir()
    (tmp_path / LAB).write_text("one==1.0\n")
    (tmp_path / TESTS).write_text("two==2.0\n")
    environment = Environment(tmp_path)
    environment.make_folder()
    environment.create(QUIET)
    environment.write_stamp([LAB])
    return environment


def test_a_stamped_environment_is_ready_for_what_it_was_stamped_for(environment: Environment):
    assert environment.ready([LAB])
    assert not environment.ready([LAB, TESTS])
    environment.write_stamp([LAB, TESTS])
    assert environment.ready([LAB, TESTS])


def test_a_changed_requirement_file_is_noticed_and_the_other_stamp_is_kept(
    environment: Environment,
):
    environment.write_stamp([LAB, TESTS])
    (environment.root / LAB).write_text("one==1.1\n")
    assert not environment.ready([LAB])
    environment.write_stamp([LAB])
    assert environment.ready([LAB, TESTS])


def test_no_environment_and_a_damaged_stamp_are_not_ready(environment: Environment):
    environment.stamp.write_text("{")
    assert not environment.ready([LAB])
    environment.stamp.write_text("[]")
    assert not environment.ready([LAB])
    shutil.rmtree(environment.folder)
    assert not environment.ready([LAB])


def test_an_environment_whose_python_has_gone_is_not_ready(environment: Environment):
    config = environment.folder / "pyvenv.cfg"
    config.write_text("home = /nowhere/bin\n")
    assert not environment.ready([LAB])


@pytest.mark.skipif(os.name == "nt", reason="links")
def test_a_python_that_has_been_replaced_under_the_environment_is_not_ready(
    environment: Environment,
):
    environment.python.unlink()
    assert not environment.ready([LAB])
    assert environment.probe() is None
    environment.python.symlink_to("/bin/sh")
    assert not environment.ready([LAB])
    assert environment.probe() is None


@pytest.mark.skipif(os.name == "nt", reason="links")
def test_a_moved_checkout_is_looked_at_again_and_still_runs(environment: Environment):
    probe = environment.probe()
    assert probe is not None
    environment.point_to_checkout(probe.site_packages)
    moved = environment.root.with_name("moved")
    shutil.move(environment.root, moved)
    there = Environment(moved)
    assert not there.ready([LAB])
    probe = there.probe()
    assert probe is not None
    (link,) = probe.site_packages.glob("kvlab*.pth")
    assert (probe.site_packages / link.read_text().strip()).resolve() == moved.resolve()


def test_the_probe_tells_versions_by_normal_name(environment: Environment):
    probe = environment.probe()
    assert probe is not None
    info = probe.site_packages / "A_b-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: A_b\nVersion: 1.5\n")
    probe = environment.probe()
    assert probe is not None
    assert probe.version == sys.version_info[:2]
    assert probe.installed["a-b"] == "1.5"
    assert environment.repair(probe.site_packages) == 1
    assert not info.exists()


def test_making_it_anew_removes_the_old_but_never_somebody_elses_folder(tmp_path: Path):
    environment = Environment(tmp_path)
    environment.make_folder()
    mine = environment.folder / "letters" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("dear")
    with pytest.raises(CannotStart, match="is no Python environment: move it away"):
        environment.create(QUIET)
    assert mine.read_text() == "dear"
    (environment.folder / "pyvenv.cfg").touch()
    environment.lock.touch()
    environment.create(QUIET)
    assert not mine.exists()
    assert environment.lock.exists()
    assert environment.probe() is not None


def test_the_stamp_is_replaced_in_one_piece(environment: Environment):
    assert json.loads(environment.stamp.read_text())["format"] == 1
    assert not list(environment.folder.glob("*.draft"))
