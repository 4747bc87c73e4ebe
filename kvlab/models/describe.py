"""What a model folder holds, as lines for a person, from its headers alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from kvlab.errors import BadInput, size
from kvlab.models.cache import cached_models, damage
from kvlab.models.chat import ChatTemplate
from kvlab.models.checkpoint import WEIGHTS, Checkpoint
from kvlab.models.config import ModelConfig
from kvlab.models.loading import DTYPES, check_tensors, count_values, settle_head
from kvlab.models.memory import available_memory
from kvlab.models.places import STORY
from kvlab.models.tokenizer import Tokenizer

STORED = {name: str(kind).removeprefix("torch.") for name, kind in WEIGHTS.items()}


@dataclass(frozen=True, slots=True)
class Description:
    """A model that can be loaded: everything was looked at but the weights."""

    folder: Path
    config: ModelConfig
    stored: str
    values: int
    tokenizer: Tokenizer | None
    template: ChatTemplate | None

    @classmethod
    def of(cls, folder: Path) -> Description:
        """Raises BadInput for what `load_model` would refuse, short of too little memory."""
        config = ModelConfig.from_folder(folder)
        path = folder / "tokenizer.json"
        tokenizer = Tokenizer(path) if path.is_file() else None
        template = ChatTemplate.from_folder(folder)
        checkpoint = Checkpoint.open(folder)
        config = settle_head(config, checkpoint)
        names = check_tensors(config, checkpoint)
        counts: Counter[str] = Counter()
        for name in names:
            counts[checkpoint.tensors[name].dtype] += checkpoint.tensors[name].count
        stored = ", ".join(STORED[kind] for kind, _ in counts.most_common())
        values = count_values(config, checkpoint, names)
        return cls(folder, config, stored, values, tokenizer, template)

    def lines(self) -> Iterator[tuple[str, str]]:
        """(what, how) in the order of interest."""
        c = self.config
        yield "folder", str(self.folder)
        yield "family", c.family + ("" if not c.qk_norm else ", normed q and k")
        yield "parameters", f"{self.parameters:,}, stored as {self.stored}"
        yield "layers", f"{c.num_layers} of width {c.hidden_size:,}, inner {c.intermediate_size:,}"
        yield "heads", f"{c.num_heads} of size {c.head_dim}, over {c.num_kv_heads} KV heads"
        yield "vocabulary", f"{c.vocab_size:,}, {'tied head' if c.tie_embeddings else 'own head'}"
        window = f" (its sliding attention window of {c.window:,})" if c.window else ""
        yield "context", f"{c.max_positions:,} tokens{window}"
        scaling = c.rope_scaling
        scaled = f", {scaling.kind} x {scaling.factor:g}" if scaling else ""
        yield "rope", f"theta {c.rope_theta:,.0f}{scaled}"
        yield "KV cache", ", ".join(self._kv(name, kind) for name, kind in DTYPES.items())
        needs = (f"{size(self.values * kind.itemsize)} in {name}" for name, kind in DTYPES.items())
        yield "memory", ", ".join(needs) + self._free()
        words = self.tokenizer
        yield "tokenizer", f"{words.size:,} tokens" if words else "none: prompts are token ids"
        yield "chat", f"template in {Path(self.template.where).name}" if self.template else "no"

    @property
    def parameters(self) -> int:
        """Numbers in the weights; `values` counts the rotary tables too."""
        return self.values - self.config.max_positions * self.config.head_dim

    def _kv(self, name: str, kind: torch.dtype) -> str:
        return f"{self.config.kv_values_per_token * kind.itemsize:,} bytes a token in {name}"

    @staticmethod
    def _free() -> str:
        free = available_memory()
        return "" if free is None else f"; {size(free)} are free"


def models_here() -> Iterator[tuple[str, str]]:
    """(name for a scenario, what it is) of every model that needs no network."""
    yield "story", _in_short(STORY)
    for name, dtype, folder in cached_models():
        wrong = damage(folder)
        yield name, f"{dtype}: damaged ({wrong})" if wrong else _in_short(folder)
    for name, snapshot in _hub_models():
        yield name, _in_short(snapshot)


def _hub_models() -> Iterator[tuple[str, Path]]:
    """Models of the Hub's cache that are computed here; others are passed over."""
    try:
        from huggingface_hub import scan_cache_dir
        from huggingface_hub.errors import CacheNotFound
    except ImportError:
        return
    try:
        repositories = sorted(scan_cache_dir().repos, key=lambda repo: repo.repo_id)
    except CacheNotFound:
        return
    from kvlab.models.hub import cached_snapshot

    for repository in repositories:
        if repository.repo_type == "model":
            try:
                snapshot = cached_snapshot(repository.repo_id)
                if snapshot is not None:
                    ModelConfig.from_folder(snapshot)
                    yield repository.repo_id, snapshot
            except BadInput:
                continue


def _in_short(folder: Path) -> str:
    try:
        about = Description.of(folder)
    except BadInput as error:
        return f"cannot be loaded: {error}"
    config = about.config
    millions = about.parameters / 1e6
    return (
        f"{about.stored}, {millions:,.1f} M parameters, context {config.max_positions:,}, {folder}"
    )
