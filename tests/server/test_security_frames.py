"""What goes through between a page and its kernel, frame by frame; no server."""

from __future__ import annotations

import json
import struct

import pytest
from jupyter_server.services.kernels.connection.base import (
    deserialize_msg_from_ws_v1,
    serialize_msg_to_ws_v1,
)

from kvlab.server.frames import MOST_BYTES, Refused, kind_of, read

HEADER = {
    "msg_id": "a",
    "msg_type": "comm_msg",
    "username": "",
    "session": "s",
    "date": "2026-01-01T00:00:00Z",
    "version": "5.2",
}
CONTENT = {"comm_id": "c", "data": {"method": "request_state"}}


def frame(
    header: object = HEADER,
    metadata: object = None,
    content: object = CONTENT,
    buffers: tuple[bytes, ...] = (),
    channel: str = "shell",
) -> bytes:
    """As Jupyter's own writer makes it."""
    parts = [json.dumps(one).encode() for one in (header, {}, metadata or {}, content)]
    return serialize_msg_to_ws_v1([*parts, *buffers], channel)


def test_what_a_page_sends_goes_on_unchanged_and_with_a_header_of_our_own():
    given = frame({**HEADER, "subshell_id": "x", "more": {}}, {"version": "1"}, buffers=(b"\0\1",))
    channel, parts = deserialize_msg_from_ws_v1(read(given).frame())
    assert channel == "shell"
    assert json.loads(parts[0]) == HEADER
    assert [json.loads(part) for part in parts[1:4]] == [{}, {"version": "1"}, CONTENT]
    assert parts[4:] == [b"\0\1"]


def offsets(*numbers: int, tail: bytes = b"") -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers) + tail


BROKEN = {
    "text": "{}",
    "nothing": b"",
    "seven bytes": b"\0" * 7,
    "no offsets": offsets(0),
    "2^64 offsets": b"\xff" * 8,
    "a billion offsets": offsets(10**9, tail=b"x" * 100),
    "65 offsets": offsets(65, *[8 * 66] * 65),
    "five offsets": offsets(5, *[48] * 5),
    "offsets cut off": offsets(6, 56, 56),
    "offsets beyond the end": offsets(6, 56, 56, 56, 56, 56, 10**12),
    "descending": offsets(6, 56, 60, 58, 59, 60, 61, tail=b"x" * 20),
    "inside the table": offsets(6, 0, 8, 16, 24, 32, 40),
    "no JSON": offsets(6, 56, 61, 62, 63, 64, 65, tail=b"shell" + b"x" * 9),
    "too large": b"\0" * (MOST_BYTES + 1),
    "another channel": frame(channel="control"),
    "header is a list": frame([1]),
    "header holds objects": frame({**HEADER, "msg_id": {"$": 1}}),
    "a deep header": b"".join([frame()[:0], serialize_msg_to_ws_v1([b"[" * 4000] * 4, "shell")]),
    "a large header": frame({**HEADER, "username": "x" * 5000}),
    "metadata is a list": frame(metadata=[1]),
    "a widget of any class": frame(
        {**HEADER, "msg_type": "comm_open"},
        content={"comm_id": "c", "target_name": "jupyter.widget", "data": {"state": {}}},
    ),
    "a target that is a list": frame(
        {**HEADER, "msg_type": "comm_open"}, content={"target_name": []}
    ),
    **{
        kind: frame({**HEADER, "msg_type": kind}, content={"code": "1"})
        for kind in (
            "execute_request",
            "inspect_request",
            "complete_request",
            "history_request",
            "is_complete_request",
            "debug_request",
            "input_reply",
            "interrupt_request",
            "shutdown_request",
            "create_subshell_request",
            "",
        )
    },
}


@pytest.mark.parametrize("name", BROKEN)
def test_anything_else_is_refused(name: str):
    with pytest.raises(Refused):
        read(BROKEN[name])


def test_a_page_hears_widgets_and_no_streams_or_errors():
    """A kernel's streams and errors hold tracebacks and paths (handlers.Channels.write_message)."""
    from kvlab.server.frames import HEARD

    assert kind_of(frame()) == "comm_msg"
    assert kind_of(b"garbage") == ""
    assert not HEARD & {"stream", "error", "execute_input", "execute_result", "display_data"}
