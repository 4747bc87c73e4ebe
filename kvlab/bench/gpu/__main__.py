"""`python -m kvlab.bench.gpu --json FILE`, for a machine without the lab's other needs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kvlab.bench.gpu.run import SECONDS, command
from kvlab.errors import BadInput


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m kvlab.bench.gpu",
        description="The CUDA path against the reference, the floor and a plain copy.",
    )
    parser.add_argument("--json", type=Path, help="where to write what was found")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="at most so long")
    asked = parser.parse_args()
    try:
        return command(asked.json, device=asked.device, seconds=asked.seconds)
    except BadInput as refusal:
        print(refusal, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
