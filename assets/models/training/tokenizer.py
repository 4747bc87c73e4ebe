"""The tokenizer of the model `story`: byte-level BPE, trained on the model's own text."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from training.corpus import END

VOCABULARY = 1024


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """1,024 tokens: the end token, every byte, and merges learned from `texts`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != VOCABULARY:
        raise ValueError(f"only {tokenizer.get_vocab_size()} tokens came of this text")
    return tokenizer


def end_id(tokenizer: Tokenizer) -> int:
    """The id of the end token."""
    found = tokenizer.token_to_id(END)
    if found is None:
        raise ValueError(f"the tokenizer has no {END}")
    return found
