"""Chat templates of instruct models, rendered in a sandbox.

A template comes with a model and is somebody else's program. Jinja's immutable sandbox lets it
read plain JSON values and build text: it reaches no attribute that leads to Python's inside, calls
nothing but what is listed here, and changes nothing. The settings and the few extra names are those
of transformers' `apply_chat_template`, so that both render the same text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from kvlab.errors import BadInput
from kvlab.models.config import read_json

OLDEST_JINJA = (3, 1, 6)
"""Earlier releases have known ways out of the sandbox."""

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")

Messages = Sequence[Mapping[str, Any]]
"""`{"role": "user", "content": "…"}`, oldest first."""


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A template's source, where it came from, and the special tokens that it may name."""

    source: str
    where: str
    special: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_folder(cls, folder: Path) -> ChatTemplate | None:
        """`chat_template.jinja`, else the key of `tokenizer_config.json` (its `default` where it
        holds several). None for a model without one. Raises BadInput for a file that is damaged."""
        config_path = folder / "tokenizer_config.json"
        config = read_json(config_path) or {}
        keys = [f"{role}_token" for role in ROLES]
        special = {key: text for key in keys if (text := _token_text(config.get(key)))}
        path = folder / "chat_template.jinja"
        if path.is_file():
            try:
                return cls(path.read_text(encoding="utf-8"), str(path), special)
            except (OSError, ValueError) as error:
                raise BadInput(f"{path} cannot be read ({error}).") from None
        source = config.get("chat_template")
        if isinstance(source, list):
            named = {one.get("name"): one for one in source if isinstance(one, dict)}
            source = named.get("default", {}).get("template")
        return cls(source, str(config_path), special) if isinstance(source, str) else None

    def render(self, messages: Messages, *, reply: bool = True, **more: Any) -> str:
        """The text of a conversation, with the opening of an answer when `reply`.

        `more` are further names that a template may know, `enable_thinking` for example. Raises
        BadInput for messages that are none, and with the template's own complaint.
        """
        plain = _plain(messages, more)
        names = {"tools": None, "documents": None} | dict(self.special) | plain["more"]
        names |= {"messages": plain["messages"], "add_generation_prompt": reply}
        environment = _environment()
        try:
            text: str = environment.from_string(self.source).render(names)
            return text
        except Exception as error:  # whatever a template does wrong is the template's fault
            raise self._fault(error) from None

    def _fault(self, error: Exception) -> BadInput:
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return BadInput(f"the chat template in {self.where} cannot be rendered ({text}).")


def _token_text(entry: Any) -> str | None:
    text = entry.get("content") if isinstance(entry, dict) else entry
    return text if isinstance(text, str) else None


def _plain(messages: Messages, more: Mapping[str, Any]) -> dict[str, Any]:
    """Copies that consist of JSON values alone: no object of ours is within a template's reach."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps({"messages": messages, "more": more}))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"a chat message holds something that is not JSON ({error}).") from None
    found = plain["messages"]
    if not isinstance(found, list) or not found:
        raise BadInput("a chat is a list of messages, at least one.")
    for place, message in enumerate(found):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadInput(f"chat message {place} must be an object with role and content.")
    return plain


def _environment() -> Any:
    import jinja2
    from jinja2.exceptions import SecurityError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    release = tuple(int(part) for part in jinja2.__version__.split(".")[:3])
    if release < OLDEST_JINJA:
        raise BadInput(
            f"chat templates need Jinja2 {'.'.join(map(str, OLDEST_JINJA))} or newer, this is "
            f"{jinja2.__version__}: `python -m pip install --upgrade jinja2`."
        )

    class Generation(Extension):
        """`{% generation %}` marks an answer for training; its inside is ordinary text."""

        tags = {"generation"}  # noqa: RUF012  # the name that jinja reads

        def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    class Namespace(jinja2.utils.Namespace):
        """Jinja's `namespace`, without names that begin with an underscore."""

        def __init__(*args: Any, **kwargs: Any) -> None:
            self, args = args[0], args[1:]
            values = dict(*args, **kwargs)
            jinja2.utils.Namespace.__init__(self)
            for name, value in values.items():
                self[name] = value

        def __setitem__(self, name: str, value: Any) -> None:
            if str(name).startswith("_"):
                raise SecurityError(f"the name {name!r} may not be set")
            super().__setitem__(name, value)

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    def to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )
    environment.filters["tojson"] = to_json
    environment.globals = {
        "range": environment.globals["range"],  # the sandbox's own, which is bounded
        "dict": lambda *values, **named: dict(*values, **named),
        "namespace": Namespace,
        "raise_exception": refuse,
        "strftime_now": lambda pattern: datetime.now().strftime(pattern),
    }
    return environment
