"""The bundled model is what its users are told: small, with room, able to encode any text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from safetensors import safe_open

from kvlab.models.loading import STORY, load_model
from kvlab.models.tokenizer import Tokenizer


def config() -> dict[str, Any]:
    return json.loads((STORY / "config.json").read_text(encoding="utf-8"))


def test_all_files_together_are_at_most_8_mb() -> None:
    assert sum(path.stat().st_size for path in STORY.iterdir()) <= 8_000_000


def test_there_is_nothing_to_execute_in_the_folder() -> None:
    assert {path.suffix for path in STORY.iterdir()} <= {".json", ".safetensors", ".md"}


def test_vocabulary_and_context() -> None:
    loaded = load_model("story", device="cpu")
    assert loaded.config.vocab_size == config()["vocab_size"] >= 512
    assert loaded.config.max_positions == config()["max_position_embeddings"] >= 2_048
    tokens = json.loads((STORY / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    assert max(tokens.values()) < loaded.config.vocab_size


def test_the_card_has_the_parameter_count_of_the_file() -> None:
    card = (STORY / "README.md").read_text(encoding="utf-8")
    with safe_open(STORY / "model.safetensors", framework="pt") as file:
        shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    count = 0
    for shape in shapes:
        size = 1
        for length in shape:
            size *= length
        count += size
    assert f"{count:,}" in card
    for said in ("python -m training.train", "licence", "token", "seed"):
        assert said in card.lower(), f"the card does not say {said!r}"


def test_every_byte_can_be_encoded() -> None:
    """UTF-8 has all bytes but C0, C1 and F5-FF in some character; those have tokens as well."""
    tokenizer = Tokenizer(STORY / "tokenizer.json")
    seen: set[int] = set()
    wide = [0x80 + 61 * n for n in range(32)] + [0x800 + 7_919 * n for n in range(7)]
    planes = [0x10000 * n + 0x1234 for n in range(1, 17)]
    leads = [lead << 6 for lead in range(2, 32)] + [lead << 12 for lead in range(1, 16)]
    for code in [*range(0x80), *range(0x80, 0x100), *wide, *planes, *leads, *range(0x400, 0x440)]:
        if 0xD800 <= code < 0xE000:
            continue
        text = chr(code)
        seen |= set(text.encode("utf-8"))
        assert tokenizer.decode(tokenizer.encode(text)) == text, hex(code)
    assert set(range(256)) - seen <= {0xC0, 0xC1, *range(0xF5, 0x100)}
    vocabulary = json.loads((STORY / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    assert len([token for token in vocabulary["vocab"] if len(token) == 1]) == 256


@pytest.mark.parametrize(
    "text", ["", " ", "  two spaces", "a\n\nb\tc", "Ana and Ben", "0123 <|end", "\x00\x7f"]
)
def test_encoding_and_decoding_is_the_identity(text: str) -> None:
    tokenizer = Tokenizer(STORY / "tokenizer.json")
    assert tokenizer.decode(tokenizer.encode(text)) == text
