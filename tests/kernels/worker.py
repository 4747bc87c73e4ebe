"""Runs checks of the Triton kernels, one a line: ["kind", {settings}] in, findings out, in JSON.

A process of its own, because Triton decides once, when it is imported, whether kernels are
interpreted. Without a GPU it must be started with TRITON_INTERPRET=1.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

import torch

from kvlab.bench.gpu.checks import Case, Model, attention, decode_steps, figure_5

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def look(kind: str, settings: dict[str, Any]) -> dict[str, Any]:
    if kind == "attention":
        return attention(Case(**settings), DEVICE)
    if kind == "decode_steps":
        return decode_steps(Model(**settings), DEVICE)
    return figure_5(**settings)


def main() -> None:
    for line in sys.stdin:
        try:
            answer = look(*json.loads(line))
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
