"""What a page may say to its kernel, and hear from it: frames of Jupyter's websocket protocol v1.

A frame is 8 bytes with the number of offsets, that many offsets of 8 bytes (little-endian), then
the parts: channel, header, parent header, metadata, content, buffers. Jupyter's reader believes
whatever a frame says of itself, so that a few bytes made it build a list of 2^64 numbers. Here a
frame is checked before anything reads it, and what goes on to the kernel is built anew.

Source: jupyter_server, docs/source/developers/websocket-protocols.rst.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

PROTOCOL = "v1.kernel.websocket.jupyter.org"

MOST_BYTES = 4 * 1024 * 1024
"""Of one frame: an uploaded scenario or trace, and no more."""
MOST_HEADER = 4096
MOST_OPENING = 4096
FEWEST_OFFSETS, MOST_OFFSETS = 6, 64

KINDS = frozenset(
    {"comm_open", "comm_msg", "comm_close", "comm_info_request", "kernel_info_request"}
)
"""All that a page of widgets ever sends. Nothing here runs code of the visitor's."""

HEARD = frozenset(
    {
        "status",
        "comm_open",
        "comm_msg",
        "comm_close",
        "comm_info_reply",
        "kernel_info_reply",
        "iopub_welcome",
    }
)
"""What a page hears. Not the streams and errors of a kernel: they hold paths and tracebacks."""

TARGET = "jupyter.widget.control"
"""The one comm that a page opens: it asks for the state of all widgets. `jupyter.widget` would let a
visitor make widgets of any class in the kernel."""

HEADER = ("msg_id", "msg_type", "username", "session", "date", "version")


class Refused(Exception):
    """The frame is not one that the lab's page sends; the text says why."""


@dataclass(frozen=True, slots=True)
class Message:
    """A frame that was checked. `parts` are header, parent header, metadata, content, buffers."""

    kind: str
    parts: tuple[bytes, ...]
    size: int
    beat: bool
    """Whether it is the page's own heartbeat, which no person has sent."""

    def frame(self) -> bytes:
        """The same message as a frame of its own making, on the shell channel."""
        parts = (b"shell", *self.parts)
        at = 8 * (len(parts) + 2)
        places = [at]
        for part in parts:
            at += len(part)
            places.append(at)
        numbers = (len(places), *places)
        return b"".join(number.to_bytes(8, "little") for number in numbers) + b"".join(parts)


def split(frame: bytes) -> list[bytes]:
    """A frame's parts, channel first. Raises Refused unless it keeps to the protocol."""
    if len(frame) < 8:
        raise Refused("no room for a number of offsets")
    count = int.from_bytes(frame[:8], "little")
    if not FEWEST_OFFSETS <= count <= MOST_OFFSETS:
        raise Refused(f"between {FEWEST_OFFSETS} and {MOST_OFFSETS} offsets are allowed")
    if len(frame) < 8 * (count + 1):
        raise Refused("no room for the offsets")
    places = [int.from_bytes(frame[8 * at : 8 * at + 8], "little") for at in range(1, count + 1)]
    if places[0] < 8 * (count + 1) or places[-1] > len(frame):
        raise Refused("an offset lies outside the frame")
    if any(one > other for one, other in pairwise(places)):
        raise Refused("offsets must ascend")
    return [frame[one:other] for one, other in pairwise(places)]


def read(frame: object) -> Message:
    """Check a frame from a page. Raises Refused for whatever the lab's page would not send."""
    if not isinstance(frame, bytes):
        raise Refused("frames are binary")
    if len(frame) > MOST_BYTES:
        raise Refused(f"a frame has at most {MOST_BYTES} bytes")
    channel, header, _, metadata, content, *buffers = split(frame)
    if channel != b"shell":
        raise Refused("only the channel shell is open")
    if max(len(header), len(metadata)) > MOST_HEADER:
        raise Refused(f"header and metadata have at most {MOST_HEADER} bytes each")
    known = _object(header, "header")
    clean = {key: known.get(key, "") for key in HEADER}
    if not all(isinstance(value, str) for value in clean.values()):
        raise Refused("a header's fields are text")
    kind = clean["msg_type"]
    if kind not in KINDS:
        raise Refused("this type of message is not for visitors")
    _object(metadata, "metadata")
    if kind == "comm_open":
        if len(content) > MOST_OPENING:
            raise Refused("too much in comm_open")
        if _object(content, "content").get("target_name") != TARGET:
            raise Refused("no such comm target for visitors")
    parts = (json.dumps(clean).encode(), b"{}", metadata, content, *buffers)
    # The player asks whether its kernel still answers: no sign of a person.
    beat = kind == "comm_msg" and len(content) < 300 and b'"type":"ping"' in content
    return Message(kind, parts, len(frame), beat)


def kind_of(message: bytes) -> str:
    """The type of a message on its way to the page; empty where there is none."""
    try:
        return str(json.loads(split_sent(message)[1])["msg_type"])
    except (LookupError, TypeError, ValueError):
        return ""


def split_sent(frame: bytes) -> list[bytes]:
    """The first two parts of a frame of the server's own: it may have any number of buffers."""
    places = [int.from_bytes(frame[8 * at : 8 * at + 8], "little") for at in range(1, 4)]
    return [frame[one:other] for one, other in pairwise(places)]


def _object(part: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(part)
    except (ValueError, RecursionError):
        raise Refused(f"the {what} is no JSON") from None
    if not isinstance(found, dict):
        raise Refused(f"the {what} is no JSON object")
    return found
