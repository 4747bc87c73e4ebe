"""A name on the Hub: fetched when asked for, else found in its cache; if not, one sentence.

The Hub itself is played by a stand-in for `huggingface_hub`: these tests ask no network.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvlab.errors import BadInput, Console
from kvlab.models.hub import choose_files, get_from_hub
from kvlab.models.loading import STORY, load_model

NAME = "someone/Tiny-1.0"


class RepositoryNotFoundError(Exception): ...


class GatedRepoError(RepositoryNotFoundError): ...


class ConnectError(Exception): ...


@dataclass
class Hub:
    """`huggingface_hub` as far as we use it: `remote` is what it has, `calls` what was asked."""

    cache: Path
    remote: dict[str, bytes] = field(default_factory=dict)
    trouble: Exception | None = None
    calls: list[str] = field(default_factory=list)

    @property
    def snapshot(self) -> Path:
        return self.cache / "models--someone--Tiny-1.0" / "snapshots" / "abc"

    def _ask(self, what: str) -> None:
        self.calls.append(what)
        if self.trouble:
            raise self.trouble

    def model_info(self, name: str, **options: Any) -> Any:
        self._ask(f"info {name}")
        files = [*self.remote.items(), ("onnx/model.onnx", b"1"), ("original/x.pth", b"2")]
        siblings = [SimpleNamespace(rfilename=n, size=len(content)) for n, content in files]
        return SimpleNamespace(siblings=siblings)

    def hf_hub_download(self, name: str, file: str) -> str:
        self._ask(f"file {file}")
        return self._store(file)

    def snapshot_download(self, name: str, *, allow_patterns: list[str]) -> str:
        self._ask(f"snapshot {' '.join(allow_patterns)}")
        for file in allow_patterns:
            self._store(file)
        return str(self.snapshot)

    def try_to_load_from_cache(self, name: str, file: str) -> str | None:
        path = self.snapshot / file
        return str(path) if name == NAME and path.is_file() else None

    def _store(self, file: str) -> str:
        path = self.snapshot / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.remote[file])
        return str(path)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """A Hub that has the bundled model, and a README and a pickle beside it."""
    hub = Hub(tmp_path / "hub")
    hub.remote = {file.name: file.read_bytes() for file in STORY.iterdir()}
    hub.remote["pytorch_model.bin"] = b"\x80\x04."
    module = SimpleNamespace(
        HfApi=lambda: hub,
        hf_hub_download=hub.hf_hub_download,
        snapshot_download=hub.snapshot_download,
        try_to_load_from_cache=hub.try_to_load_from_cache,
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return hub


def refusal(name: str = NAME) -> str:
    with pytest.raises(BadInput) as caught:
        get_from_hub(name, Console())
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_scenario_asks_no_network(hub: Hub) -> None:
    with pytest.raises(BadInput, match=f"`kvlab model get {NAME}` fetches it"):
        load_model(NAME, device="cpu")
    assert hub.calls == []


def test_fetched_once_then_found(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    folder = get_from_hub(NAME, Console())
    said = capsys.readouterr()
    assert said.out == ""
    assert "4 MB, from the Hugging Face Hub" in said.err  # before the download
    assert hub.calls[1] == "file config.json"
    assert "bin" not in hub.calls[2]
    assert (folder / "model.safetensors").read_bytes() == hub.remote["model.safetensors"]
    hub.trouble = ConnectError("no network")
    assert get_from_hub(NAME, Console()) == folder
    assert "is on this machine already" in capsys.readouterr().err
    hub.calls.clear()
    loaded = load_model(NAME, device="cpu")
    assert loaded.name == NAME
    assert loaded.encode("Ana and Ben")
    assert hub.calls == []


def test_a_folder_of_that_name_wins(hub: Hub, tmp_path: Path) -> None:
    shutil.copytree(STORY, tmp_path / NAME)
    assert load_model(NAME, device="cpu", base=tmp_path).name == NAME
    assert not hub.snapshot.exists()


def test_a_model_that_is_not_computed_here_costs_no_download(hub: Hub) -> None:
    hub.remote["config.json"] = json.dumps({"model_type": "mamba"}).encode()
    assert "model_type = 'mamba'" in refusal()
    assert not any(call.startswith("snapshot") for call in hub.calls)


def test_a_download_that_was_interrupted(hub: Hub) -> None:
    hub.hf_hub_download(NAME, "config.json")
    with pytest.raises(BadInput, match=rf"in part .*`kvlab model get {NAME}` completes it"):
        load_model(NAME, device="cpu")
    get_from_hub(NAME, Console())
    load_model(NAME, device="cpu")


@pytest.mark.parametrize(
    ("trouble", "sentence"),
    [
        (ConnectError("[Errno -2]\nName or service"), "did not answer.*check the network"),
        (ConnectionError("offline mode"), "did not answer"),
        (RepositoryNotFoundError("401\nClient Error"), "the Hub has no model someone/Tiny-1.0"),
        (GatedRepoError("403"), "is gated: accept its licence"),
        (RuntimeError("two\nlines"), r"could not be fetched.*RuntimeError: two lines"),
    ],
)
def test_trouble_is_one_sentence(hub: Hub, trouble: Exception, sentence: str) -> None:
    hub.trouble = trouble
    assert re.search(sentence, refusal())


def test_a_disk_that_is_full(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=1_000_000))
    assert "4 MB, but 1 MB are free" in refusal()
    assert not any(call.startswith("snapshot") for call in hub.calls)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "pip install huggingface_hub" in refusal()
    with pytest.raises(BadInput, match="neither a folder nor on this machine"):
        load_model(NAME, device="cpu")


def test_the_real_package_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert "did not answer" in refusal()
    with pytest.raises(BadInput, match="fetches it"):
        load_model(NAME, device="cpu")


ALWAYS = ["config.json", "tokenizer.json"]


@pytest.mark.parametrize(
    ("weights", "chosen"),
    [
        (["model.safetensors", "pytorch_model.bin"], ["model.safetensors"]),
        (["model.safetensors", "consolidated.safetensors"], ["model.safetensors"]),
        (
            [
                "consolidated.safetensors",
                "model-1-of-2.safetensors",
                "model-2-of-2.safetensors",
                "model.safetensors.index.json",
            ],
            [
                "model-1-of-2.safetensors",
                "model-2-of-2.safetensors",
                "model.safetensors.index.json",
            ],
        ),
        (["weights.safetensors"], ["weights.safetensors"]),
    ],
)
def test_one_set_of_weights_is_chosen(weights: list[str], chosen: list[str]) -> None:
    assert choose_files(NAME, [*ALWAYS, *weights, "x.py"]) == sorted([*ALWAYS, *chosen])


def test_what_is_no_model_for_us() -> None:
    with pytest.raises(BadInput, match=r"it has pytorch_model\.bin"):
        choose_files(NAME, [*ALWAYS, "pytorch_model.bin"])
    with pytest.raises(BadInput, match=r"no config\.json"):
        choose_files(NAME, ["model.safetensors"])
