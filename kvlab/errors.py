"""The one error that a person sees: something they gave us does not fit."""


class BadInput(ValueError):
    """What is wrong, where, and what to do, in one sentence. The command line exits with status 2."""


class NotSupportedYet(BadInput):
    """A scenario asks for a feature of the contract that this release does not have."""
