"""From the name in a scenario to the folder that holds the model."""

from __future__ import annotations

import re
from pathlib import Path

from kvlab.errors import BadInput
from kvlab.models.cache import cached_models, damage

STORY = Path(__file__).resolve().parents[2] / "assets" / "models" / "story"
SMOLLM2 = "smollm2"
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
PREFERRED = ("float32", "bfloat16", "float16")


def find_model(name: str, *, dtype: str = "float32", base: Path | None = None) -> Path:
    """The folder of `story`, `smollm2`, a folder (relative ones from `base`) or `org/name`, a model
    of the Hub that is in this machine's cache, in that order. Nothing is ever fetched.

    A converted model that is there in several dtypes is taken in `dtype`, so that it can be mapped
    as it is, else in the widest. Raises BadInput with what to do.
    """
    if name == "story":
        return STORY
    if name == SMOLLM2:
        return find_converted(name, dtype)
    try:
        folder = (base or Path()) / Path(name).expanduser()
        if folder.is_dir():
            return folder
    except (OSError, RuntimeError, ValueError):  # no such user, or no name that a disk can hold
        raise BadInput(f"model: {name[:80]!r} names no folder on this machine.") from None
    if HUB_NAME.fullmatch(name):
        from kvlab.models.hub import cached_snapshot

        snapshot = cached_snapshot(name)
        if snapshot is not None:
            return snapshot
        raise BadInput(
            f"model: {name} is neither a folder nor on this machine; `kvlab model get {name}` "
            "fetches it from the Hugging Face Hub."
        )
    raise BadInput(
        f"model: {name} is not a folder; name one with config.json and *.safetensors, "
        "or use `story`."
    )


def find_converted(name: str, dtype: str) -> Path:
    """A model that `kvlab model get` has put into the cache."""
    there = {kind: folder for of, kind, folder in cached_models() if of == name}
    if not there:
        raise BadInput(
            f"model: {name} is not on this machine yet; `kvlab model get {name}` fetches it."
        )
    kind = dtype if dtype in there else next((k for k in PREFERRED if k in there), min(there))
    wrong = damage(there[kind])
    if wrong:
        raise BadInput(
            f"model: the copy of {name} in {there[kind]} is damaged ({wrong}); "
            f"`kvlab model get {name} --dtype {kind}` makes it again."
        )
    return there[kind]
