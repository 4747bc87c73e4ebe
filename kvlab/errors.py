"""The one error that a person sees: something they gave us does not fit."""


def printable(text: str) -> str:
    """The text with all that a reader cannot see written out as in Python: line breaks, control
    characters, characters that turn the direction of writing or have no form."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text
    )


def memory_ran_out(error: BaseException) -> bool:
    """Whether an error says that there was no memory left: Python's own, or torch's on any device."""
    told = ("can't allocate memory", "out of memory", "can't start new thread")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in told)
    )


def reason_of(error: BaseException) -> str:
    """What a library's error says, in a few words: torch names lines of its sources."""
    return "out of memory" if memory_ran_out(error) else (str(error).splitlines() or [""])[0]


class BadInput(ValueError):
    """What is wrong, where, and what to do, in one sentence. The command line exits with status 2.

    What people gave us may stand in it: it is made `printable` here, once for all messages.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(printable(sentence))

    def _render_traceback_(self) -> list[str]:
        """What IPython shows for it in a notebook: the sentence, without the way through our code."""
        return [f"{type(self).__name__}: {self}"]


class NotSupportedYet(BadInput):
    """A scenario asks for a feature of the contract that this release does not have."""
