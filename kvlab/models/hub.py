"""Models of the Hugging Face Hub: fetched when `kvlab model get` asks, else only looked up.

`huggingface_hub` is used where it is installed; its own cache is the place, so that models which
other programs have fetched are found, and an interrupted download goes on where it stopped.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from kvlab.errors import BadInput, Console, size
from kvlab.models.checkpoint import INDEX, PICKLES, weight_files
from kvlab.models.config import ModelConfig, read_json

TIMEOUT = 20.0


def cached_snapshot(name: str) -> Path | None:
    """The folder of `org/name` in the Hub's cache on this machine; None when it is not there.

    Asks no network. Raises BadInput for a download that has not been finished.
    """
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    found = try_to_load_from_cache(name, "config.json")
    if not isinstance(found, str):
        return None
    folder = Path(found).parent
    try:
        weight_files(folder)
    except BadInput as error:
        raise BadInput(
            f"model: {name} is on this machine in part ({str(error).rstrip('.')}); "
            f"`kvlab model get {name}` completes it."
        ) from None
    return folder


def get_from_hub(name: str, console: Console) -> Path:
    """Fetch `org/name`: its config first, then, if we can compute it, the rest. Raises BadInput."""
    hub = _huggingface_hub()
    try:
        files = _files(hub, name)
        chosen = choose_files(name, files)
        config_file = Path(hub.hf_hub_download(name, "config.json"))
        ModelConfig.from_json(read_json(config_file) or {}, f"{name}: config.json")
        total = sum(files[file] for file in chosen)
        free = shutil.disk_usage(config_file.parent).free
        if total > free:
            raise BadInput(
                f"{name} has {size(total)}, but {size(free)} are free in {config_file.parent}."
            )
        console.say(f"{name}: {len(chosen)} files, {size(total)}, from the Hugging Face Hub")
        return Path(hub.snapshot_download(name, allow_patterns=chosen))
    except BadInput:
        raise
    except Exception as error:
        if _offline(error) and (there := cached_snapshot(name)) is not None:
            console.say(f"the Hub did not answer; {name} is on this machine already")
            return there
        raise _explain(name, error) from None


def _huggingface_hub() -> ModuleType:
    try:
        import huggingface_hub
    except ImportError:
        raise BadInput(
            "models of the Hub need the package huggingface_hub: "
            "`python -m pip install huggingface_hub` into .venv."
        ) from None
    return huggingface_hub


def _files(hub: Any, name: str) -> dict[str, int]:
    """Sizes of the files at the top of a repository."""
    info = hub.HfApi().model_info(name, files_metadata=True, timeout=TIMEOUT)
    return {
        file.rfilename: int(file.size or 0) for file in info.siblings if "/" not in file.rfilename
    }


def choose_files(name: str, files: Iterable[str]) -> list[str]:
    """What is needed to run: configs, tokenizer, template, licence, and one set of weights. Never a
    pickle. Raises BadInput for a repository that has no safetensors or no config."""
    files = sorted(files)
    if "config.json" not in files:
        raise BadInput(f"{name} has no config.json: it is no model that can be loaded here.")
    weights = [file for file in files if file.endswith(".safetensors")]
    if "model.safetensors" in weights and INDEX not in files:
        weights = ["model.safetensors"]
    elif INDEX in files:
        weights = [file for file in weights if file.startswith("model-")] or weights
    if not weights:
        pickles = [file for file in files if any(Path(file).match(one) for one in PICKLES)]
        there = f" (it has {pickles[0]})" if pickles else ""
        raise BadInput(f"{name} has no *.safetensors file{there}; other formats are not read.")
    texts = [file for file in files if file.endswith((".json", ".jinja"))]
    papers = [file for file in files if file.upper().startswith(("LICENSE", "README", "NOTICE"))]
    return sorted({*weights, *texts, *papers})


OFFLINE = {
    "ConnectError",
    "ConnectionError",
    "LocalEntryNotFoundError",
    "OfflineModeIsEnabled",
    "TimeoutException",
}
"""Errors of huggingface_hub and of what it is built on; their modules differ between releases."""


def _offline(error: Exception) -> bool:
    return not OFFLINE.isdisjoint(kind.__name__ for kind in type(error).__mro__)


def _explain(name: str, error: Exception) -> BadInput:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "GatedRepoError" in kinds:
        return BadInput(
            f"{name} is gated: accept its licence on its page on the Hub, log in with "
            "`hf auth login`, then try again."
        )
    if "RepositoryNotFoundError" in kinds or "HFValidationError" in kinds:
        return BadInput(f"the Hub has no model {name}, or shows it to members only.")
    if _offline(error):
        return BadInput(
            f"the Hub did not answer, so {name} could not be fetched: check the network and try "
            "again (what is there already is kept)."
        )
    text = " ".join(str(error).split())[:200]
    return BadInput(f"{name} could not be fetched from the Hub ({type(error).__name__}: {text}).")
