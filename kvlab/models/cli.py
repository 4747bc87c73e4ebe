"""`kvlab model …`: fetch a model, list those that are here, look at one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

model = typer.Typer(no_args_is_help=True, help="Models: fetch, list, look at.")


@model.command()
def get(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="smollm2, or org/name on the Hugging Face Hub.")
    ],
    dtype: Annotated[
        str,
        typer.Option(
            metavar="DTYPE",
            help="smollm2 only: float32 (538 MB, the exact weights) or bfloat16 (269 MB).",
        ),
    ] = "float32",
) -> None:
    """Fetch a model into this user's cache; without a network it is used from there."""
    from kvlab.errors import BadInput, Console
    from kvlab.models.places import HUB_NAME, SMOLLM2

    console = Console()
    if name == SMOLLM2:
        from kvlab.models.smollm2 import get_smollm2

        folder = get_smollm2(dtype, console)
    elif HUB_NAME.fullmatch(name):
        from kvlab.models.hub import get_from_hub

        folder = get_from_hub(name, console)
    elif name == "story":
        raise BadInput("story comes with the lab: there is nothing to fetch")
    else:
        raise BadInput(f"{name}: give {SMOLLM2}, or a name on the Hub such as org/name")
    typer.echo(f"{name}: {folder}")
    typer.echo(f"use it with `model: {name}` in a scenario, or `--set model={name}`")


@model.command("list")
def list_() -> None:
    """The models that are on this machine, by the name that a scenario gives."""
    from kvlab.models.describe import models_here

    for name, what in models_here():
        typer.echo(f"{name:<12} {what}")


@model.command()
def show(
    name: Annotated[
        str, typer.Argument(metavar="FOLDER", help="A model folder, or the name of a model.")
    ],
    chat: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Put TEXT as a user's message into the model's chat template: the text that the "
            "model sees, and its token ids, for a request's `prompt`.",
        ),
    ] = None,
) -> None:
    """What a model is and what it needs, without loading it."""
    from kvlab.errors import BadInput
    from kvlab.models.describe import Description
    from kvlab.models.places import find_model

    about = Description.of(find_model(name, base=Path()))
    if chat is None:
        for what, how in about.lines():
            typer.echo(f"{what:<11} {how}")
        return
    if about.template is None:
        raise BadInput(f"{name} has no chat template: it continues plain text")
    text = about.template.render([{"role": "user", "content": chat}])
    typer.echo(text)
    if about.tokenizer is not None:
        typer.echo(json.dumps(about.tokenizer.encode(text)))
