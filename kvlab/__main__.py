"""`python3 -m kvlab …`: the whole lab behind one command, on a machine that has nothing but Python.

This file must parse on any Python 3, so that one that is too old gets a sentence and no syntax
error. Everything that needs more than the standard library runs after the restart inside `.venv`.
"""

import os
import sys

OLDEST = (3, 11)


def main():  # type: ignore[no-untyped-def]  # annotations of today do not parse everywhere
    """Start the command of `sys.argv`; returns the exit status."""
    if sys.version_info < OLDEST:
        sys.stderr.write(
            "kvlab: Python %d.%d or newer is needed and this is %d.%d (%s): "
            "start kvlab with a newer one, for example `python3.12 -m kvlab app`.\n"
            % (OLDEST + sys.version_info[:2] + (sys.executable,))
        )
        return 2
    # Closed by whoever started us (`2>&-`): nobody hears it, and the exit status still tells.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  # until the end
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    here = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.abspath(sys.path[0]) == here:
        # Started as `python3 path/to/kvlab`: our modules must not stand in for the standard
        # library's (`trace`), and `kvlab` itself must be found.
        sys.path[0] = os.path.dirname(here)
    try:
        from kvlab.launcher.start import start
    except KeyboardInterrupt:  # later ones are the launcher's
        sys.stderr.write("kvlab: stopped\n")
        return 130
    return start(sys.argv[1:], command_line)


def command_line(arguments):  # type: ignore[no-untyped-def]
    """The commands, on an interpreter that has what they need."""
    from kvlab.cli import main

    return main(arguments)


if __name__ == "__main__":
    sys.exit(main())
