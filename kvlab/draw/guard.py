"""One decorator for every callback of a page: an error becomes a card, never a dead page.

An exception in a widget callback is invisible to the person at the page, so each callback of an
object with `fail(message)` is wrapped: what a person gave us is told in its own words, anything
else as our fault, without a traceback; the log has that.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

from kvlab.errors import BadInput, memory_ran_out
from kvlab.trace.speech import Speech

log = logging.getLogger("kvlab.pages")
Given = ParamSpec("Given")


class Page(Protocol):
    """What the guard needs of a page."""

    @property
    def speech(self) -> Speech:
        """The language in which it is told."""

    def fail(self, message: str) -> None:
        """Show a card with this message."""


Owner = TypeVar("Owner", bound=Page)


def guarded(
    callback: Callable[Concatenate[Owner, Given], None],
) -> Callable[Concatenate[Owner, Given], None]:
    """A method that never raises: it logs and calls `self.fail` with one sentence."""

    @functools.wraps(callback)
    def wrapper(self: Owner, *args: Given.args, **kwargs: Given.kwargs) -> None:
        try:
            callback(self, *args, **kwargs)
        except BadInput as error:
            log.warning("%s: %s", callback.__name__, error)
            self.fail(str(error))
        except Exception as error:
            log.exception("%s failed", callback.__name__)
            key = "page.no_memory" if memory_ran_out(error) else "page.fault"
            self.fail(self.speech(key, name=type(error).__name__))

    return cast(Callable[Concatenate[Owner, Given], None], wrapper)
