"""The tokens of vLLM's recorded run, on weights that anybody can make again.

Source: the same run of vLLM 0.32.0 as in test_vllm_rules.py, greedy, fp32. Its model is a llama
with seeded random weights: transformers makes the file again, and its SHA-256 must be the one
recorded with the run. A torch that draws other numbers gives another file: then there is nothing to
compare.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import scenario_from

transformers = pytest.importorskip("transformers")

SHA256 = "05210e774bf1d89ed22692734a27a6b1f38eb8ede1080ac90d8bf9429f91fe13"

PROMPTS = {
    "r0": """
        992 799 454 122 10 95 935 968 964 829 599 38 690 712 88 103 787 366 245 20 34 1013 810 19
        357 666 641 498 633 477 155
    """,
    "r1": """
        96 190 733 120 868 17 518 501 904 991 258 69 686 557 937 480 73 618 694 94 530 595 50 279
        847 572 67 663 312 495 873 366
    """,
}

OUTPUTS = {
    "r0": """
        197 584 595 102 94 883 81 216 773 752 266 487 25 421 678 487 980 226 137 671 75 487 859
        700 139 413 240 204 353 296 205 485 265 957 842 775 25 715 382 1002 606 615 479 80 679 264
        932 694 401 612 365 95 252 270 58 333 90 819 62 466 832 503 523 325 1005 991 145 493 510
        59 27 744 396 907 349 761 596 395 840 68 1020 544 21 78 706 1019 418 824 583 700 748 825
        264 466 636 548 430 571 126 233 314 72 262 876 520 768 207 730 270 434 897 856 154 357 350
        748 66 915 393 985 989 902 17 971 513 393 115 94 210 39 144 197 217 544 849 699 40 264 205
        612 836 767 450 679 876 95 643 671 288 255
    """,
    "r1": """
        363 1010 496 348 674 115 122 233 495 95 649 214 607 485 641 452 540 357 552 697 154 818
        609 221 524 551 411 349 521 228 127 296 932 582 479 759 564 674 701 153 228 122 372 261
        428 478 1010 552 521 825 636 728 371 804 589 153 452 766 159 932 851 1000 987 489 633 49
        371 1011 634 42 1003 852 87 95 828 822 696 78 341 618 816 199 942 824 559 571 957 431 297
        870 431 196 579 265 822 45 296 263 279 692 622 303 253 878 487 952 557 615 950 522 579 656
        1010 349 78 565 314 479 268 487 267 197 427 286 746 887 249 712 593 745 858 563 951 232
        308 863 783 268 435 936 768 894 379 235 659 753 545 630 869 995
    """,
}


def ids(text: str) -> list[int]:
    return [int(number) for number in text.split()]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run's model: 3.4 million parameters, seed 0."""
    folder = tmp_path_factory.mktemp("tiny-llama")
    config = transformers.LlamaConfig(
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=1024,
        max_position_embeddings=2048,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        initializer_range=0.08,
    )
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).float().eval().save_pretrained(folder)
    made = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if made != SHA256:
        pytest.skip(f"this torch draws other weights for seed 0 (SHA-256 {made[:8]}…)")
    return folder


def test_tokens_and_preemption_are_those_of_vllm(model: Path) -> None:
    document = {
        "name": "vllm-tokens",
        "model": str(model),
        "device": "cpu",
        "engine": {
            "preset": "vllm_v1",
            "num_blocks": 8,
            "block_size": 32,
            "host_blocks": 0,
            "method": "recompute",
            "step_tokens": 256,
            "max_running": 8,
        },
        "requests": [
            {"id": id, "prompt": ids(prompt), "max_tokens": 150} for id, prompt in PROMPTS.items()
        ],
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a model this small only loses by a second thread
    summary = run_scenario(scenario_from(document, Path(), "vllm-tokens")).summary
    torch.set_num_threads(threads)
    for id, outputs in OUTPUTS.items():
        assert summary["requests"][id]["output"] == ids(outputs)
    assert [summary["requests"][id]["preemptions"] for id in PROMPTS] == [0, 1]
    assert [i for i, step in enumerate(summary["per_step"]) if step["preempted"]] == [97]
    assert summary["per_step"][150]["scheduled"] == {"r1": 129}
    assert summary["per_step"][150]["blocks"] == {"r1": [4, 6, 7, 5, 3]}
