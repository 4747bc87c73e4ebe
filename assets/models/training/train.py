"""Make the model `story` again: its text, its tokenizer, its weights and its card.

    cd assets/models && python -m training.train --out FOLDER

The same seed and number of steps give the same text, tokenizer and order of training; the weights
then agree as closely as the arithmetic of two machines does.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from kvlab.models.config import ModelConfig
from kvlab.models.llama import Attend, Llama
from training.card import card
from training.corpus import stories
from training.export import export, round_weights
from training.tokenizer import VOCABULARY, end_id, train_tokenizer

TRAINING_STORIES = 40_000
HELD_OUT_STORIES = 400
TOKENIZER_STORIES = 5_000

TOKENS_PER_STEP = 4_096
WINDOW = 256
LONG_WINDOW = 2_048
LONG_STEPS = 75
"""The last steps use the long window, so that every position is trained."""

PEAK_RATE = 3e-3
LOW_RATE = 3e-5
WARMUP = 100
COOLDOWN = 150
HORIZON = 1_900
"""Steps after the warm-up in which the cosine alone would bring the rate down to the low one."""


@dataclass(frozen=True, slots=True)
class Text:
    """Encoded stories end to end, each followed by the end token, and where each one starts."""

    ids: Tensor
    starts: Tensor

    @classmethod
    def encode(cls, tokenizer: Tokenizer, texts: list[str]) -> Text:
        end = end_id(tokenizer)
        rows = [[*encoding.ids, end] for encoding in tokenizer.encode_batch(texts)]
        lengths = torch.tensor([len(row) for row in rows])
        flat = torch.tensor([token for row in rows for token in row], dtype=torch.int64)
        return cls(flat, lengths.cumsum(0) - lengths)

    def windows(self, firsts: Tensor, length: int) -> Tensor:
        """Rows of `length` + 1 tokens, [rows, length + 1], that begin with stories `firsts`."""
        return self.ids[self.starts[firsts, None] + torch.arange(length + 1)]

    def choose(self, rows: int, length: int, generator: torch.Generator) -> Tensor:
        """Windows that begin with `rows` random stories."""
        last = int(torch.searchsorted(self.starts, len(self.ids) - length - 1))
        return self.windows(torch.randint(last, (rows,), generator=generator), length)


def shape(tokenizer: Tokenizer) -> ModelConfig:
    """2.0 million parameters: 5 layers of width 192, 6 query heads over 2 KV heads."""
    return ModelConfig(
        vocab_size=VOCABULARY,
        hidden_size=192,
        intermediate_size=448,
        num_layers=5,
        num_heads=6,
        num_kv_heads=2,
        head_dim=32,
        max_positions=2048,
        tie_embeddings=True,
        eos_ids=(end_id(tokenizer),),
    )


def causal(rows: int) -> Attend:
    """Plain causal attention within each of `rows` equally long sequences, packed one by one."""

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.view(rows, -1, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2).flatten(0, 1)

    return attend


def loss_of(model: Llama, windows: Tensor) -> Tensor:
    """Mean cross-entropy, in nats, of each next token in `windows` [rows, length + 1]."""
    rows, length = windows.shape[0], windows.shape[1] - 1
    positions = torch.arange(length).repeat(rows)
    hidden = model(windows[:, :-1].reshape(-1), positions, causal(rows))
    return functional.cross_entropy(model.logits(hidden), windows[:, 1:].reshape(-1))


def initialise(model: Llama) -> None:
    """Small normal weights; the two matrices that write to the residual stream smaller still."""
    narrow = 0.02 / math.sqrt(2 * model.config.num_layers)
    for name, weight in model.named_parameters():
        if weight.dim() == 2:
            last = name.endswith(("o_proj.weight", "down_proj.weight"))
            torch.nn.init.normal_(weight, std=narrow if last else 0.02)


def rate_at(step: int, steps: int) -> float:
    """Learning rate: a linear warm-up, half a cosine's slow fall, a linear cool-down to nothing."""
    warm = min(1.0, (step + 1) / WARMUP)
    cool = min(1.0, (steps - step) / COOLDOWN)
    done = min(1.0, max(0.0, (step - WARMUP) / HORIZON))
    share = 0.5 * (1 + math.cos(math.pi * done))
    return warm * cool * (LOW_RATE + (PEAK_RATE - LOW_RATE) * share)


def optimiser_of(model: Llama) -> torch.optim.AdamW:
    """AdamW; matrices decay, norms do not."""
    matrices = [weight for weight in model.parameters() if weight.dim() == 2]
    norms = [weight for weight in model.parameters() if weight.dim() != 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": norms, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.95))


def fit(model: Llama, text: Text, steps: int, seed: int) -> float:
    """Train for `steps`; the mean training loss of the last 50 of them."""
    generator = torch.Generator().manual_seed(seed)
    optimiser = optimiser_of(model)
    began, losses = time.monotonic(), []
    for step in range(steps):
        length = LONG_WINDOW if step >= steps - LONG_STEPS else WINDOW
        for group in optimiser.param_groups:
            group["lr"] = rate_at(step, steps)
        loss = loss_of(model, text.choose(TOKENS_PER_STEP // length, length, generator))
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step} loss {losses[-1]:.3f} {time.monotonic() - began:.0f} s", flush=True)
    return sum(losses[-50:]) / len(losses[-50:])


@torch.no_grad()
def held_out_loss(model: Llama, text: Text) -> float:
    """Mean loss over windows that begin with every fourth story of `text`."""
    last = int(torch.searchsorted(text.starts, len(text.ids) - WINDOW - 1))
    batches = torch.split(torch.arange(0, last, 4), 8)
    losses = [(len(firsts), loss_of(model, text.windows(firsts, WINDOW))) for firsts in batches]
    return sum(count * loss.item() for count, loss in losses) / sum(count for count, _ in losses)


def train(out: Path, steps: int, seed: int) -> None:
    """Write the whole model folder `out`."""
    torch.manual_seed(seed)
    texts = list(stories(seed, TRAINING_STORIES))
    tokenizer = train_tokenizer(texts[:TOKENIZER_STORIES])
    model = Llama(shape(tokenizer))
    initialise(model)
    began = time.monotonic()
    text = Text.encode(tokenizer, texts)
    training_loss = fit(model, text, steps, seed)
    seconds = time.monotonic() - began
    round_weights(model)
    unseen = Text.encode(tokenizer, list(stories(seed + 1, HELD_OUT_STORIES)))
    export(model, tokenizer, out)
    facts = {
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "stories": len(texts),
        "text_tokens": len(text.ids),
        "seen_tokens": steps * TOKENS_PER_STEP,
        "steps": steps,
        "seed": seed,
        "seconds": round(seconds),
        "threads": torch.get_num_threads(),
        "training_loss": training_loss,
        "held_out_loss": held_out_loss(model, unseen),
    }
    (out / "README.md").write_text(card(model, tokenizer, facts), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--steps", type=int, default=1_075, help="steps of 4,096 tokens")
    parser.add_argument("--seed", type=int, default=1, help="seed of the text and of the training")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    train(given.out, given.steps, given.seed)


if __name__ == "__main__":
    main()
