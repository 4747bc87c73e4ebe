"""Runs in vLLM's environment, knows nothing of kvlab: JSON lines in, JSON lines out.

First line {model, dtype, blocks, block_size, step_tokens}, then {prompts, outputs} each time.
"""

# mypy: ignore-errors
import json
import os
import sys
import time

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # vLLM logs to stdout


def answer(what):
    answers.write(json.dumps(what) + "\n")
    answers.flush()


def main():
    from vllm import LLM, SamplingParams

    settings = json.loads(sys.stdin.readline())
    llm = LLM(
        model=settings["model"],
        dtype=settings["dtype"],
        enforce_eager=True,
        max_num_seqs=64,
        max_num_batched_tokens=settings["step_tokens"],
        max_model_len=min(
            settings["step_tokens"], (settings["blocks"] - 1) * settings["block_size"]
        ),
        block_size=settings["block_size"],
        num_gpu_blocks_override=settings["blocks"],
        gpu_memory_utilization=0.2,
        enable_prefix_caching=False,
        disable_log_stats=False,
    )
    answer({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        wanted = SamplingParams(temperature=0, max_tokens=asked["outputs"], ignore_eos=True)
        prompts = [{"prompt_token_ids": one} for one in asked["prompts"]]
        before = preemptions(llm)
        started = time.perf_counter()
        found = llm.generate(prompts, wanted, use_tqdm=False)
        seconds = time.perf_counter() - started
        answer(
            {
                "seconds": seconds,
                "outputs": [list(one.outputs[0].token_ids) for one in found],
                "preemptions": preemptions(llm) - before,
            }
        )


def preemptions(llm):
    for metric in llm.get_metrics():
        if metric.name == "vllm:num_preemptions":
            return int(metric.value)
    return 0


if __name__ == "__main__":
    main()
