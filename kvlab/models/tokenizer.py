"""Text to tokens and back, also piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kvlab.errors import BadInput

INCOMPLETE = "\ufffd"
"""What decoding shows for bytes that are not a whole character yet."""


class Tokenizer:
    """A `tokenizer.json` of Hugging Face's format. Raises BadInput when it cannot be read."""

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer as FastTokenizer  # late: a model without text needs none

        try:
            self._fast = FastTokenizer.from_file(str(path))
        except Exception as error:  # the library raises a bare Exception
            raise BadInput(f"{path} is not a readable tokenizer ({error}).") from None

    @property
    def size(self) -> int:
        """Number of tokens, the added ones included."""
        return int(self._fast.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str, *, opening: bool = False) -> list[int]:
        """Token ids of `text`, without special tokens; with those that the tokenizer puts around a
        prompt (the begin-of-text of Llama and Mistral) when `opening`.

        Raises BadInput for half a character.
        """
        try:
            return list(self._fast.encode(text, add_special_tokens=opening).ids)
        except TypeError:
            raise BadInput(
                f"the text {text[:40]!a} holds half a character (a lone surrogate), which cannot "
                "be encoded."
            ) from None

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of `tokens`, special tokens left out."""
        return self._fast.decode(list(tokens), skip_special_tokens=True)

    def text_of(self, token: int) -> str:
        """One token as a label: special tokens are shown, half a character is the sign for it."""
        return self._fast.decode([token], skip_special_tokens=False)


class TokenText:
    """A text stream over a decoder: joined, the pieces equal the whole text.

    Characters that are not complete yet are held back, and as much as could be the start of a stop
    string. When one is found the text ends before it and `stopped` is set.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str] = ()) -> None:
        self._decode = decode
        self._stop = [text for text in stop if text]
        self._context: list[int] = []  # decoded together with what follows: spaces depend on it
        self._fresh: list[int] = []
        self._held = ""
        self.stopped = False

    def push(self, token: int) -> str:
        """The text that is certain after this token."""
        self._fresh.append(token)
        piece = self._piece()
        if piece.endswith(INCOMPLETE):
            return ""
        self._context, self._fresh = self._fresh, []
        return self._release(piece)

    def flush(self) -> str:
        """What was held back, when no token follows."""
        piece, self._fresh = self._piece(), []
        text = self._release(piece) + ("" if self.stopped else self._held)
        self._held = ""
        return text

    def _piece(self) -> str:
        before = self._decode(self._context)
        return self._decode([*self._context, *self._fresh])[len(before) :]

    def _release(self, piece: str) -> str:
        """Everything but what may still turn out to be a stop string."""
        text = self._held + piece
        found = [at for at in (text.find(stop) for stop in self._stop) if at >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        keep = max((overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a proper start of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if stop.startswith(text[-n:])), 0)
