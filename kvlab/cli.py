"""The command line. Each command imports what it needs when it runs, so that `--help` is quick.

Exit status: 0 done, 1 our fault (and: a test stage failed, or the doctor finds that the lab cannot
run), 2 the input or the machine does not fit: one sentence on stderr.
"""

from __future__ import annotations

import contextlib
import errno
import inspect
import json
import os
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from kvlab.bench.cli import bench
from kvlab.errors import BadInput, printable
from kvlab.export.cli import export, quiz
from kvlab.files.write import same_file
from kvlab.models.cli import model
from kvlab.predict import options

INTERRUPTED = 130
ROOT = Path(__file__).resolve().parents[1]
SHIPPED = sorted(path.stem for path in (ROOT / "kvlab" / "runs" / "scenarios").glob("*.yaml"))
OUTSIDE = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF}
"""What can be wrong with the place that an output goes to: not our fault."""
TEXTS = ("--chat", "-k", "-m")
"""What these are followed by may be empty."""

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
app.command()(export)
app.command()(quiz)

Port = Annotated[
    int | None,
    typer.Option(metavar="PORT", help="Port on 127.0.0.1; without it the next free one is taken."),
]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the address, open nothing.")]
TraceFile = Annotated[
    Path | None, typer.Option("--json", metavar="TRACE", help="Write the trace to this file.")
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show the server's own log.")]


@app.command(epilog=f"Shipped scenarios: {', '.join(SHIPPED)}.")
def run(
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO-or-FILE", help="A shipped one, such as figure-5, or a file of yours."
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a value: engine.method=swap."),
    ] = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="Print one JSON object instead of the table.")
    ] = False,
    trace: TraceFile = None,
) -> None:
    """Run one scenario to its end and print what each step did."""
    if trace is not None:
        _refuse_target(trace, scenario)
    # stdout belongs to the result, whatever a library may want to print.
    with contextlib.redirect_stdout(sys.stderr):
        from kvlab.runs.run import run_scenario
        from kvlab.runs.scenario import load_scenario

        result = run_scenario(load_scenario(scenario, settings or ()), on_step=_ticker())
        unwritten = None
        if trace is not None:
            try:
                result.trace.write(trace)
            except BadInput as error:  # what the run has found is printed all the same
                unwritten = error
    if summary:
        print(json.dumps(result.summary, allow_nan=False))
    else:
        from kvlab.runs.step_table import step_table

        words = result.trace.document["tokens"]
        table = step_table(result.summary, _width(), lambda token: words[str(token)])
        print(table, end="")
    if unwritten is not None:
        raise unwritten
    if trace is not None:
        print(f"kvlab: trace written to {printable(str(trace))}", file=sys.stderr)


def _refuse_target(trace: Path, scenario: str) -> None:
    """Raise BadInput, before the run, where its trace could not be put."""
    from kvlab.files.write import refuse_unwritable

    if str(trace) == "-":
        raise BadInput("--json -: stdout has the table or the summary; give the name of a file")
    if same_file(trace, scenario):
        raise BadInput(f"--json {trace}: that is the scenario itself; give another file")
    try:
        refuse_unwritable(trace)
    except BadInput as error:
        raise BadInput(f"--json: {error}") from None


def _ticker() -> Any:
    """Shows on a terminal that a long run is alive; costs nothing elsewhere."""
    if not sys.stderr.isatty():
        return None
    from kvlab.errors import Console

    console = Console()

    def tick(report: Any) -> None:
        if report.step % 50 == 0:
            console.status(f"step {report.step}")

    return tick


def _width() -> int:
    import shutil

    return max(80, min(100, shutil.get_terminal_size(fallback=(100, 40)).columns))


@app.command()
def predict(
    workload: options.Workload,
    gpu: options.Gpu,
    model: options.Model,
    tp: options.Tp = 1,
    rate: options.Rate = 1.0,
    settings: options.Settings = None,
    requests: options.First = None,
    summary: options.Summary = False,
    trace: TraceFile = None,
) -> None:
    """Predict how vLLM serves a workload on a GPU: delays, preemptions, what they cost."""
    from kvlab.predict.commands import Asked, predicted

    if trace is not None:
        _refuse_target(trace, workload)
    asked = Asked(workload, gpu, model, tp, rate, settings or (), requests)
    found = predicted(asked, traced=trace is not None)
    print(found.told(as_json=summary), flush=True)
    if trace is not None:
        from kvlab.runs.run import run_told
        from kvlab.runs.scenario import scenario_from

        scenario = scenario_from(found.scenario(), Path(), "the prediction")
        run_told(scenario, found.played.decided, on_step=_ticker()).trace.write(trace)
        print(f"kvlab: trace written to {printable(str(trace))}", file=sys.stderr)


@app.command()
def plan(
    workload: options.Workload,
    gpu: options.Gpu,
    model: options.Model,
    limit: options.Limits = None,
    helped: options.Helped = False,
    tp: options.Tp = 1,
    rate: options.Rate = 1.0,
    settings: options.Settings = None,
    requests: options.First = None,
    summary: options.Summary = False,
) -> None:
    """Find the largest rate and number of users that meet limits, and what breaks first."""
    from kvlab.predict.commands import Asked, planned, what_helps

    asked = Asked(workload, gpu, model, tp, rate, settings or (), requests)
    if helped:
        print(what_helps(asked, as_json=summary))
    else:
        print(planned(asked, limit or (), as_json=summary))


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
    from kvlab.server.server import DashboardSettings, serve_dashboard

    serve_dashboard(
        DashboardSettings(
            notebook=notebook or ROOT / "notebooks" / "dashboard.ipynb",
            port=port,
            open_browser=not no_browser,
            verbose=verbose,
        )
    )


@app.command()
def site(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Made where it is missing.")],
    language: Annotated[str, typer.Option("--language", help="Of the player: en or de.")] = "en",
    predict: Annotated[
        bool, typer.Option("--predict", help="The pages ask before they show.")
    ] = False,
    lab: Annotated[
        bool,
        typer.Option(
            "--lab/--no-lab", help="With the lab that runs; fetches Pyodide once, 6.5 MB."
        ),
    ] = True,
    pyodide: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Pyodide from here: npm's package, unpacked, or its .tgz."
        ),
    ] = None,
) -> None:
    """Write all lessons and the lab as web pages into a folder, for any web server. The lessons open
    from a disk, too; the lab runs scenarios in the visitor's browser."""
    from kvlab.export.page import PageOptions
    from kvlab.export.site import write_site
    from kvlab.export.tab.pyodide import NoPyodide, fetched_pyodide, pyodide_from

    python = None
    if pyodide is not None:
        python = pyodide_from(pyodide)
    elif lab:
        try:
            python = fetched_pyodide()
        except NoPyodide as error:
            print(f"kvlab: without the lab: {error}", file=sys.stderr)
    files = list(write_site(folder, PageOptions(language=language, predict=predict), python))
    size = sum(path.stat().st_size for path in files) / 1e6
    pages = sum(path.suffix == ".html" for path in files)
    print(f"kvlab: {pages} pages written, {size:.1f} MB; open {files[-1]}", file=sys.stderr)


@app.command()
def serve(
    seats: Annotated[
        int, typer.Option("--class", metavar="N", min=1, max=500, help="Seats: pages at a time.")
    ] = 30,
    ip: Annotated[
        str,
        typer.Option(
            "--ip", metavar="ADDRESS", help="Address to listen on; 0.0.0.0: all of this machine's."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="Port; without it the next free one from 8866 on."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help='What visitors must know; off 127.0.0.1 a new one by default. "none": nothing.',
        ),
    ] = None,
    heated: Annotated[
        int | None,
        typer.Option(min=0, max=500, help="Kernels started ahead; as many as seats by default."),
    ] = None,
    memory: Annotated[
        int,
        typer.Option(
            metavar="MIB", min=256, max=1_048_576, help="Memory of its own that a kernel may take."
        ),
    ] = 1_536,
    frame: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="A course's origin that may frame the lab; repeat it."),
    ] = None,
    verbose: Verbose = False,
    notebook: Annotated[
        Path | None, typer.Option("--notebook", hidden=True, help="Another page than ours.")
    ] = None,
) -> None:
    """Serve the lab to a room of people. Ctrl-C ends it."""
    from kvlab.server.classroom import serve_class

    serve_class(
        notebook or ROOT / "notebooks" / "dashboard.ipynb",
        seats=seats,
        ip=ip,
        port=port,
        token=token,
        heated=heated,
        memory=memory * 1024 * 1024,
        frame_ancestors=tuple(frame or ()),
        verbose=verbose,
    )


@app.command()
def record() -> None:
    """Run every shipped scenario on the CPU and write its trace into assets/traces again."""
    from kvlab.course.record import record_all

    record_all(say=typer.echo)


@app.command()
def lab(
    port: Port = None,
    no_browser: NoBrowser = False,
    verbose: Verbose = False,
    student: Annotated[
        bool,
        typer.Option("--student", help="A copy in ./kvlab-notebooks, without the solutions."),
    ] = False,
) -> None:
    """Open the notebooks in JupyterLab. Ctrl-C ends it."""
    from kvlab.server.lab_server import LabSettings, hand_out, serve_lab

    folder = hand_out(Path("kvlab-notebooks")) if student else ROOT / "notebooks"
    serve_lab(LabSettings(folder=folder, port=port, open_browser=not no_browser, verbose=verbose))


@app.command()
def grade(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Notebooks handed in, in folders or not.")
    ],
    as_csv: Annotated[
        bool, typer.Option("--csv", help="A line an exercise, for a spreadsheet.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(help="Adds cases that nobody has seen; the same for a number.")
    ] = None,
) -> None:
    """Grade the exercises that learners wrote. Their code runs here, with your rights."""
    from kvlab.lab.build import grade as grading

    grades = grading.grade(folder, seed)
    if as_csv:
        print(grading.as_csv(grades), end="")
        return
    for one in grades:
        print(f"{one.notebook}, exercise {one.exercise}: {one.said}")


@app.command(
    name="test", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def suite_command(
    context: typer.Context,
    long: Annotated[
        bool, typer.Option("--long", help="Also what takes minutes, as in CI.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="All: also what needs a network or large weights.")
    ] = False,
) -> None:
    """Run the suite: ruff, mypy, pytest. Further arguments go to pytest."""
    from kvlab.launcher.suite import run_suite

    more = [name for name, wanted in (("--long", long), ("--full", full)) if wanted]
    raise typer.Exit(run_suite(ROOT, context.args, more))


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit status. Nothing but a bug in here raises."""
    _describe_in_whole_sentences(app)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a letter is no error
    try:
        _refuse_empty(arguments)
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
    except BrokenPipeError:  # the reader (`| head`) has seen enough
        _silence(sys.stdout)
        return 0
    except OSError as error:
        if error.errno not in OUTSIDE:
            return _our_fault(error)
        _silence(sys.stdout)
        return _complain(
            f"{error.filename or 'the output'} cannot be written ({error.strerror})", 2
        )
    except ModuleNotFoundError as error:
        if (error.name or "kvlab").partition(".")[0] != "kvlab":
            place = ROOT / ".venv"
            return _complain(f"{error.name} is not installed: remove {place} and start again", 2)
        return _our_fault(error)
    except Exception as error:
        return _our_fault(error)


def _refuse_empty(arguments: Sequence[str]) -> None:
    """A name that is empty, as where a shell's variable is not set, would mean the folder that one
    happens to be in. Raises BadInput."""
    before = ""
    for one in arguments:
        if (one == "" and before not in TEXTS) or re.fullmatch(r"--[a-z-]+=", one):
            raise BadInput(f"{one or before or 'the command'}: what is given here is empty")
        before = one


def _describe_in_whole_sentences(commands: typer.Typer) -> None:
    """In a list of commands each has its first sentence, whole: left alone, typer cuts it off."""
    for command in commands.registered_commands:
        text = " ".join((inspect.getdoc(command.callback) or "").split())
        command.short_help = text.partition(". ")[0].removesuffix(".") + "."
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            _describe_in_whole_sentences(group.typer_instance)


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
    """Say it, where anybody can hear it: the status stands in any case."""
    try:
        print(f"kvlab: {printable(sentence)}", file=sys.stderr, flush=True)
    except OSError:
        _silence(sys.stderr)
    return status


def _silence(stream: Any) -> None:
    """Keep the interpreter's own flush at the end from complaining about a stream that is broken."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _our_fault(error: Exception) -> int:
    if os.environ.get("KVLAB_DEBUG"):
        traceback.print_exception(error)
    text = " ".join(str(error).split())
    return _complain(f"our fault: {type(error).__name__}: {text} (KVLAB_DEBUG=1 shows where)", 1)
