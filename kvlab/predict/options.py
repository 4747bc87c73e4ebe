"""Arguments and options of `kvlab predict` and `kvlab plan`."""

from __future__ import annotations

from typing import Annotated

import typer

Workload = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD",
        help="azure-conv, azure-code, sharegpt-300, or a file: JSON lines, CSV, Azure's, Mooncake's.",
    ),
]
Gpu = Annotated[
    str,
    typer.Option(
        "--gpu",
        metavar="CARD",
        help="rtx4090, rtxpro6000; from data sheets: h100, h200, a100, l4, mi300x.",
    ),
]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="llama-3.1-8b, llama-3.1-70b, qwen2.5-7b, qwen3-32b, or a config.json.",
    ),
]
Tp = Annotated[int, typer.Option("--tp", metavar="N", help="Cards that hold one model.")]
Rate = Annotated[float, typer.Option("--rate", metavar="X", help="Plays it X times as fast.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="engine.KEY=VALUE", help="A setting: engine.num_blocks=2587."),
]
Summary = Annotated[bool, typer.Option("--summary", help="Print one JSON object instead.")]
First = Annotated[
    int | None, typer.Option("--requests", metavar="N", min=1, help="The first N requests alone.")
]
Limits = Annotated[
    list[str] | None,
    typer.Option("--limit", metavar="DELAY.STATISTIC<S", help="Say ttft_s.p99<2; repeat it."),
]
Helped = Annotated[
    bool, typer.Option("--helped", help="Instead: ten changes at this rate, ranked, and why.")
]
