"""Streaming text: joined pieces are the whole text, whatever the tokens cut apart.

The expected text is the string that was encoded, or the decoding of all tokens at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvlab.errors import BadInput
from kvlab.models.loading import STORY
from kvlab.models.tokenizer import Tokenizer, TokenText

BYTE_TEXTS = [
    "é",
    "€",
    "☃",
    "🙂",
    "👩\u200d👧",
    "Größe 10 µm, 25 € 🙂!",
    "日本語のテキスト",
    "a🙂b🙂c",
]


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer(STORY / "tokenizer.json")


def pieces(tokens: Sequence[int], stop: Sequence[str] = ()) -> tuple[list[str], TokenText]:
    """What is streamed, piece by piece, until a stop string or the end."""
    stream = TokenText(tokenizer().decode, stop)
    given = []
    for token in tokens:
        given.append(stream.push(token))
        if stream.stopped:
            return given, stream
    return [*given, stream.flush()], stream


@pytest.mark.parametrize("text", BYTE_TEXTS)
def test_characters_split_over_tokens_come_whole(text: str) -> None:
    tokens = tokenizer().encode(text)
    streamed, _ = pieces(tokens)
    assert "".join(streamed) == text
    assert not any("\ufffd" in piece for piece in streamed)


def test_such_characters_really_are_split() -> None:
    tokens = tokenizer().encode("🙂")
    assert len(tokens) > 1
    streamed, _ = pieces(tokens)
    assert streamed[:-2] == [""] * (len(tokens) - 1)  # held back until the last byte
    assert streamed[-2:] == ["🙂", ""]


def test_a_character_that_stays_incomplete_shows_as_one_at_the_end() -> None:
    tokens = tokenizer().encode("a🙂")[:-1]
    streamed, _ = pieces(tokens)
    assert "".join(streamed) == tokenizer().decode(tokens)
    assert streamed[-1].endswith("\ufffd")


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_any_text_comes_back_as_it_was(text: str) -> None:
    streamed, _ = pieces(tokenizer().encode(text))
    assert "".join(streamed) == text


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 1023), max_size=30))
def test_any_tokens_join_to_their_decoding(tokens: list[int]) -> None:
    """Tokens that a model might put out, half characters in any order included."""
    streamed, _ = pieces(tokens)
    assert "".join(streamed) == tokenizer().decode(tokens)


@pytest.mark.parametrize(
    ("text", "stop", "before"),
    [
        ("The boat was small.", "boat", "The "),
        ("The boat was small.", "t w", "The boa"),  # across a space, over a token border
        ("one, two, three, four", ", t", "one"),
        ("aaab", "aab", "a"),
        ("Größe 25 € 🙂 end", "🙂 e", "Größe 25 € "),
        ("at the very end", "end", "at the very "),
        ("first", "f", ""),
    ],
)
def test_the_text_ends_before_a_stop_string(text: str, stop: str, before: str) -> None:
    streamed, stream = pieces(tokenizer().encode(text), [stop])
    assert "".join(streamed) == before
    assert stream.stopped


def test_stop_strings_really_cross_token_borders() -> None:
    tokens = tokenizer().encode("The boat was small.")
    assert not any("t w" in tokenizer().text_of(token) for token in tokens)


def test_what_only_begins_like_a_stop_string_is_sent_after_all() -> None:
    streamed, stream = pieces(tokenizer().encode("the boat was"), ["was small"])
    assert "".join(streamed) == "the boat was"
    assert not stream.stopped
    assert streamed[-1] == "was"


def test_nothing_that_may_begin_a_stop_string_is_sent_early() -> None:
    for n in range(1, len(tokens := tokenizer().encode("a boat was small")) + 1):
        stream = TokenText(tokenizer().decode, ["boat was small."])
        sent = "".join(stream.push(token) for token in tokens[:n])
        assert "a ".startswith(sent)


@settings(max_examples=300, deadline=None)
@given(
    st.text("ab ŧ🙂", max_size=25),
    st.text("ab ŧ🙂", min_size=1, max_size=4),
)
def test_any_stop_string_ends_any_text_where_it_first_stands(text: str, stop: str) -> None:
    streamed, stream = pieces(tokenizer().encode(text), [stop])
    assert "".join(streamed) == text.partition(stop)[0]
    assert stream.stopped is (stop in text)


def test_the_first_of_several_stop_strings_counts() -> None:
    tokens = tokenizer().encode("The boat was small, and slow.")
    assert "".join(pieces(tokens, ["slow", "small", "zebra"])[0]) == "The boat was "
    assert "".join(pieces(tokens, ["oat", "boat"])[0]) == "The "  # both in one token: where first


def test_special_tokens_are_labels_but_no_text() -> None:
    end = 0  # <|end|>, config.json's eos_token_id
    assert tokenizer().text_of(end) == "<|end|>"
    a, b = tokenizer().encode("a"), tokenizer().encode("b")
    assert "".join(pieces([*a, end, *b])[0]) == "ab"


def test_a_text_that_no_encoding_has_is_refused() -> None:
    with pytest.raises(BadInput):
        tokenizer().encode("half a pair: \ud83d")
