"""What a token means for its request: the text that it gives, and whether it is the last."""

from __future__ import annotations

from kvlab.engine.request import Request
from kvlab.engine.runner import Runner, TextStream


class Outputs:
    """The text streams of all requests, and the rules of their ends."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._streams: dict[str, TextStream] = {}

    def open(self, request: Request) -> None:
        """Get ready for its first token."""
        stop = [text for text in request.stop if isinstance(text, str)]
        self._streams[request.id] = self._runner.text_stream(stop)

    def push(self, request: Request, token: int) -> tuple[str, str | None, str | None]:
        """(text to send now, finish reason or None, message) for the newest token of its history."""
        stream = self._streams[request.id]
        text = stream.push(token)
        reason, message = self._end(request, token, stopped=stream.stopped)
        if reason and not stream.stopped:
            text += stream.flush()
        return text, reason, message

    def _end(self, request: Request, token: int, *, stopped: bool) -> tuple[str | None, str | None]:
        if token in request.stop or stopped:
            return "stop", None
        if token in self._runner.eos_ids and not request.ignore_eos:
            return "stop", None
        if request.num_outputs >= request.max_tokens:
            return "length", None
        too_long = self.too_long(request)
        return ("length", too_long) if too_long else (None, None)

    def too_long(self, request: Request) -> str | None:
        """Why the model cannot take the history, or None."""
        length, context = len(request.history), self._runner.context
        if length <= context:
            return None
        return f"the history of {length} tokens is longer than the model's context of {context}"
