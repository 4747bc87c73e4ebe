"""kvlab: see what a language-model server does when its KV cache runs out.

    import kvlab

    run = kvlab.run("figure-5")            one real run, recorded: a name, a path, YAML text or a dict
    run.player()                           the picture, step by step
    run.what_if(step=3, method="swap")     the same run with one thing changed from a step on
    run.compare(other)                     two runs side by side

    engine = kvlab.Engine.of("figure-2")   the engine in your own hands
    for step in engine:
        print(step)                        what happened, in words
    engine.kv("A", layer=0)                K and V of a request, gathered through its block table

    kvlab.build.check(2, Pool)             a piece of an engine that you wrote yourself, checked

Importing it costs nothing: torch comes with the first run that needs a model.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

LATE = {"run": "kvlab.lab.front", "Engine": "kvlab.lab.by_hand", "build": "kvlab.build"}
"""Where the names of the front door are, for when somebody first asks for them."""


def __getattr__(name: str) -> Any:
    if name not in LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(LATE[name])
    return module if name == "build" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *LATE])
