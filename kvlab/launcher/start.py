"""The way of one start: is everything there, install what is not, hand over to the command."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from kvlab.errors import CannotStart, Console, size
from kvlab.files.lock import only_one
from kvlab.launcher.environment import Environment
from kvlab.launcher.needs import (
    LAB,
    TESTS,
    installed_here,
    missing,
    normal,
    read_pins,
    unfinished,
)

ROOT = Path(__file__).resolve().parents[2]

COMMANDS = {
    "app": "the lab as a web page, on this machine alone",
    "lab": "the notebooks in JupyterLab",
    "serve": "the lab for a room of people",
    "run": "one scenario in the terminal",
    "export": "a run taken along: a page, pictures, the trace",
    "site": "all lessons as web pages in a folder",
    "test": "the whole test suite",
    "doctor": "what this machine has and what is missing",
    "model": "fetch a model, list those that are here, look at one",
    "memory": "how many KV blocks fit, and for how many requests",
    "bench": "measurements",
    "record": "the recorded traces of the lessons, made again",
}

HELP = """usage: python3 -m kvlab COMMAND [OPTIONS]

{commands}

The first start installs what the lab needs into {folder}; later ones take seconds.
`python3 -m kvlab COMMAND --help` tells a command's options.
"""

DOWNLOAD = {LAB: 120_000_000, TESTS: 110_000_000}
"""Bytes, for saying what a download will cost beside torch's."""

RESTARTED = "KVLAB_RESTARTED"
"""Set for the restart inside `.venv`, so that a fault cannot make an endless chain of them."""

AS_IT_IS = "KVLAB_AS_IT_IS"
"""Set by a person to run on this very interpreter, whatever it has: nothing is installed."""


Command = Callable[[list[str]], int]
"""The command line proper: arguments -> exit status. It needs what is installed here."""


def start(arguments: Sequence[str], command_line: Command) -> int:
    """Run the command, after making what it needs. Returns the exit status."""
    console = Console()
    try:
        return _start(list(arguments), Environment(ROOT), console, command_line)
    except CannotStart as trouble:
        console.say(str(trouble))
        return 2
    except OSError as error:
        console.say(sentence(error, ROOT))
        return 2
    except KeyboardInterrupt:
        console.say("stopped; the next start goes on from here")
        return 130
    except Exception as error:
        if os.environ.get("KVLAB_DEBUG"):
            raise
        console.say(f"our fault: {type(error).__name__}: {error} (KVLAB_DEBUG=1 shows where)")
        return 1


def _start(
    arguments: list[str], environment: Environment, console: Console, command_line: Command
) -> int:
    restarted = os.environ.pop(RESTARTED, None) is not None
    command = arguments[0] if arguments else ""
    files = (LAB, TESTS) if command == "test" else (LAB,)
    if os.environ.get(AS_IT_IS) or suits_here(environment, files):
        return command_line(arguments)
    if restarted:
        raise CannotStart(
            f"{environment.folder} was made but does not have all of {' and '.join(files)}: "
            "remove the folder and start again"
        )
    if command not in COMMANDS and not environment.ready(files):
        return _without_install(command, environment)
    ensure(environment, files, console)
    if environment.runs_this_process() and suits_here(environment, files):
        return command_line(arguments)
    return hand_over(environment.python, arguments)


def suits_here(environment: Environment, files: Sequence[str]) -> bool:
    """Whether the running interpreter has all that these requirement files ask for."""
    if environment.runs_this_process():
        if environment.ready(files):
            return True
        import sysconfig

        if unfinished(Path(sysconfig.get_path("purelib"))):
            return False
    pins = read_pins(environment.root, files)
    return not missing(pins, installed_here(pins))


def _without_install(command: str, environment: Environment) -> int:
    """Help and typing errors need no download."""
    if command in ("", "-h", "--help"):
        commands = "\n".join(f"  {name:8}{what}" for name, what in COMMANDS.items())
        sys.stdout.write(HELP.format(commands=commands, folder=environment.folder))
        return 0 if command else 2
    raise CannotStart(f"there is no command {command!r}: use one of {', '.join(COMMANDS)}")


def ensure(environment: Environment, files: Sequence[str], console: Console) -> None:
    """Make or mend the environment until it meets these requirement files; nothing to do costs
    a few file reads. Raises CannotStart."""
    if environment.ready(files):
        return
    try:
        environment.make_folder()
        with only_one(environment.lock, console) as held:
            if not environment.ready(files):  # else the start that was waited for made it
                _make(environment, files, console, held)
    except OSError as error:
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM) and _met(environment, files):
            return  # whole, though nothing can be written to say so
        raise CannotStart(sentence(error, environment.folder)) from error


def _met(environment: Environment, files: Sequence[str]) -> bool:
    probe = environment.probe()
    if probe is None or unfinished(probe.site_packages):
        return False
    return not missing(read_pins(environment.root, files), probe.installed)


def _make(environment: Environment, files: Sequence[str], console: Console, held: int) -> None:
    # Here and not above: a start that finds everything in place should not pay for these.
    from kvlab.launcher import torch_build
    from kvlab.launcher.pip import Pip

    pins = read_pins(environment.root, files)
    probe = environment.probe()
    if probe is None or probe.version < (3, 11):
        environment.create(console)
        probe = environment.probe()
    elif environment.repair(probe.site_packages):
        console.say("an earlier install was cut short: going on from there")
        probe = environment.probe()
    if probe is None:
        raise CannotStart(f"{environment.python} does not run: remove {environment.folder}")
    wanted = missing(pins, probe.installed)
    if wanted:
        # From here on the environment is in pieces until the new stamp is written.
        environment.stamp.unlink(missing_ok=True)
        pip = Pip(environment.find_pip(console), console, environment.log, keep_open=(held,))
        torch = next((pin for pin in wanted if normal(pin.name) == "torch"), None)
        if torch is not None:
            console.say("asking pip which torch it would take")
            choice = torch_build.choose(torch, pip, torch_build.nvidia_driver_answers())
            console.say(str(choice))
            _check_room(environment.folder, torch_build.UNPACKED[choice.build])
            pip.install("torch", choice.arguments)
        rest = [pin for pin in wanted if pin is not torch]
        if rest:
            names = ", ".join(pin.name for pin in rest)
            most = size(sum(DOWNLOAD[file] for file in files))
            console.say(f"installing {names} and what they need (at most {most} to download)")
            pip.install("packages", [str(pin) for pin in rest])
        probe = environment.probe()
        if probe is None or missing(pins, probe.installed):
            raise CannotStart(f"pip ended well but packages are missing: see {environment.log}")
    environment.point_to_checkout(probe.site_packages)
    environment.write_stamp(files)


def _check_room(folder: Path, needed: int) -> None:
    import shutil

    free = shutil.disk_usage(folder).free
    if free < needed:
        raise CannotStart(
            f"{folder} needs about {size(needed)} and its disk has {size(free)} free: "
            "make room and start again"
        )


def hand_over(python: Path, arguments: Sequence[str]) -> int:
    """Go on inside the environment, in place of this process where the system can do that."""
    command = [str(python), "-m", "kvlab", *arguments]
    environment = {**os.environ, RESTARTED: "1"}
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        os.execve(python, command, environment)
    import subprocess

    child = subprocess.Popen(command, env=environment)
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:
            continue  # the child got it too, and decides


def sentence(error: OSError, place: Path) -> str:
    """What a failed file operation means for the person who started us."""
    where = error.filename or place
    if error.errno == errno.ENOSPC:
        return f"{where}: the disk is full: make room and start again"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return (
            f"{where} cannot be written ({error.strerror}): copy the checkout to a folder of "
            "your own and start there"
        )
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return f"{where} is in the way of the folder for the environment: move it away"
    return f"{where}: {error.strerror or error}"
