"""The command line. Each command imports what it needs when it runs, so that `--help` is quick.

Exit status: 0 done, 1 our fault (and: a test stage failed, or the doctor finds that the lab cannot
run), 2 the input or the machine does not fit: one sentence on stderr.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvlab.bench.cli import bench
from kvlab.errors import BadInput
from kvlab.models.cli import model

if TYPE_CHECKING:
    from kvlab.engine.report import StepReport

INTERRUPTED = 130
ROOT = Path(__file__).resolve().parents[1]

app = typer.Typer(
    name="kvlab",
    help="What an LLM server does when its KV cache runs out, with a real engine.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

app.add_typer(bench, name="bench")
app.add_typer(model, name="model")

Port = Annotated[
    int | None,
    typer.Option(metavar="PORT", help="Port on 127.0.0.1; without it the next free one is taken."),
]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the address, open nothing.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show the server's own log.")]


@app.command()
def run(
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO-or-FILE", help="A shipped one, such as figure-5, or a file."
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a value: engine.method=swap."),
    ] = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="Print one JSON object instead of the table.")
    ] = False,
    trace: Annotated[
        Path | None, typer.Option("--json", metavar="TRACE", help="Write the trace to this file.")
    ] = None,
) -> None:
    """Run one scenario to its end and print what each step did."""
    if trace is not None and (trace.is_dir() or not trace.absolute().parent.is_dir()):
        raise BadInput(f"--json {trace}: give a file in a folder that exists")
    if trace is not None and _same_file(trace, scenario):
        raise BadInput(f"--json {trace}: that is the scenario itself; give another file")
    # stdout belongs to the result, whatever a library may want to print.
    with contextlib.redirect_stdout(sys.stderr):
        from kvlab.run import run_scenario
        from kvlab.scenario import load_scenario

        result = run_scenario(load_scenario(scenario, settings or ()), on_step=_ticker())
        if trace is not None:
            result.trace.write(trace)
    if summary:
        print(json.dumps(result.summary, allow_nan=False))
    else:
        from kvlab.step_table import step_table

        words = result.trace.document["tokens"]
        table = step_table(result.summary, _width(), lambda token: words[str(token)])
        print(table, end="")
    if trace is not None:
        print(f"kvlab: trace written to {trace}", file=sys.stderr)


def _same_file(one: Path, other: str) -> bool:
    """Both are there and are one file; a name that no disk can hold is none."""
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return False


def _ticker() -> Any:
    """Shows on a terminal that a long run is alive; costs nothing elsewhere."""
    if not sys.stderr.isatty():
        return None
    from kvlab.launcher.console import Console

    console = Console()

    def tick(report: StepReport) -> None:
        if report.step % 50 == 0:
            console.status(f"step {report.step}")

    return tick


def _width() -> int:
    import shutil

    return max(80, min(100, shutil.get_terminal_size(fallback=(100, 40)).columns))


@app.command()
def doctor() -> None:
    """Say what this machine has, what is missing and what to do. Status 1: the lab cannot run."""
    from kvlab.doctor import examine

    examination = examine(ROOT)
    print(examination.report(), end="")
    raise typer.Exit(0 if examination.can_run else 1)


@app.command()
def memory(
    model_name: Annotated[
        str, typer.Argument(metavar="MODEL", help="story, smollm2, a folder, or a cached name.")
    ] = "story",
    block_size: Annotated[int, typer.Option(min=1, max=4_096, help="Tokens of a block.")] = 16,
    length: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens of a request; else 2,048, or the context if shorter."),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=1.0,
            help="Of the free memory on the CPU (0.5 if not given), of all memory on CUDA (0.9).",
        ),
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Say how many KV blocks, tokens and requests fit on this machine, and by what formula."""
    from kvlab.runtime.memory import report

    rows = report(
        model_name, block_size=block_size, length=length, share=share, dtype=dtype, device=device
    )
    for what, how in list(rows):
        typer.echo(f"{what:<10} {how}")


@app.command(name="app")
def app_command(
    port: Port = None,
    no_browser: NoBrowser = False,
    verbose: Verbose = False,
    notebook: Annotated[
        Path | None, typer.Option("--notebook", hidden=True, help="Another page than ours.")
    ] = None,
) -> None:
    """Open the lab as a web page. It is served on 127.0.0.1 alone; Ctrl-C ends it."""
    from kvlab.app.server import DashboardSettings, serve_dashboard

    serve_dashboard(
        DashboardSettings(
            notebook=notebook or ROOT / "notebooks" / "dashboard.ipynb",
            port=port,
            open_browser=not no_browser,
            verbose=verbose,
        )
    )


@app.command()
def record() -> None:
    """Run every shipped scenario on the CPU and write its trace into assets/traces again."""
    from kvlab.lessons.record import record_all

    record_all(say=typer.echo)


@app.command()
def lab(port: Port = None, no_browser: NoBrowser = False, verbose: Verbose = False) -> None:
    """Open the notebooks in JupyterLab. Ctrl-C ends it."""
    from kvlab.app.lab_server import LabSettings, serve_lab

    serve_lab(
        LabSettings(
            folder=ROOT / "notebooks", port=port, open_browser=not no_browser, verbose=verbose
        )
    )


@app.command(
    name="test", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def suite_command(
    context: typer.Context,
    full: Annotated[
        bool,
        typer.Option("--full", help="Also what needs a network, large weights or over a minute."),
    ] = False,
) -> None:
    """Run the suite: ruff, mypy, pytest. Further arguments go to pytest."""
    from kvlab.suite import run_suite

    raise typer.Exit(run_suite(ROOT, context.args, full))


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit status. Nothing but a bug in here raises."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a letter is no error
    try:
        status = app(list(arguments), prog_name="kvlab", standalone_mode=False)
        sys.stdout.flush()
        if status == INTERRUPTED:  # typer's word for Ctrl-C
            return _complain("stopped", INTERRUPTED)
        return status if isinstance(status, int) else 0
    except BadInput as error:
        return _complain(str(error), 2)
    except typer.TyperException as error:
        return _complain(_usage(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("stopped", INTERRUPTED)
    except BrokenPipeError:
        # The reader (`| head`) has seen enough; keep the interpreter's own flush from complaining.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ModuleNotFoundError as error:
        if (error.name or "kvlab").partition(".")[0] != "kvlab":
            place = ROOT / ".venv"
            return _complain(f"{error.name} is not installed: remove {place} and start again", 2)
        return _our_fault(error)
    except Exception as error:
        return _our_fault(error)


def _usage(error: typer.TyperException) -> str:
    """A usage error in one sentence; help asked for by giving nothing stays help."""
    context = getattr(error, "ctx", None)
    message = " ".join(error.format_message().split())
    path = getattr(context, "command_path", "kvlab")
    if context is not None and type(error).__name__ == "NoArgsIsHelpError":
        print(context.get_help())
        return "give a command"
    return f"{message.rstrip('.')} (`{path} --help` tells more)"


def _complain(sentence: str, status: int) -> int:
    print(f"kvlab: {sentence}", file=sys.stderr)
    return status


def _our_fault(error: Exception) -> int:
    if os.environ.get("KVLAB_DEBUG"):
        traceback.print_exception(error)
    text = " ".join(str(error).split())
    return _complain(f"our fault: {type(error).__name__}: {text} (KVLAB_DEBUG=1 shows where)", 1)
