"""A visitor without a browser: asks for the page as one would, and talks to its kernel.

It uses the protocol of the page (kvlab/server/frames.py says which), so that many of them fit on the
machine that they measure; tests attack with it.
"""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlsplit

from tornado.httpclient import AsyncHTTPClient, HTTPRequest, HTTPResponse
from tornado.websocket import WebSocketClientConnection, websocket_connect

from kvlab.server.frames import PROTOCOL, Message

KERNEL = re.compile(r'"kernelId"\s*:\s*"([0-9a-f-]{36})"')
MOST_HEARD = 64 * 1024 * 1024


class Visitor:
    """One person: cookies, at most one page, its kernel and a websocket."""

    def __init__(self, url: str) -> None:
        """`url`: the server's address, with its token where it has one."""
        parts = urlsplit(url)
        self.base = f"{parts.scheme}://{parts.netloc}"
        self.first = parts.path + (f"?{parts.query}" if parts.query else "")
        self.cookies: dict[str, str] = {}
        self.kernel = ""
        self.session = uuid.uuid4().hex
        self.socket: WebSocketClientConnection | None = None

    async def fetch(
        self,
        path: str,
        method: str = "GET",
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> HTTPResponse:
        """One request, whatever its answer; cookies are kept, redirections not followed."""
        client: AsyncHTTPClient = AsyncHTTPClient(force_instance=True)
        answer = await client.fetch(
            HTTPRequest(
                self.base + path,
                method=method,
                headers=self._headers(headers),
                body=body,
                follow_redirects=False,
                request_timeout=120,
                allow_nonstandard_methods=True,
            ),
            raise_error=False,
        )
        client.close()
        for line in answer.headers.get_list("Set-Cookie"):
            for name, morsel in SimpleCookie(line).items():
                self.cookies[name] = morsel.coded_value
        return answer

    def _headers(self, more: dict[str, str] | None = None) -> dict[str, str]:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return {**({"Cookie": cookie} if cookie else {}), **(more or {})}

    async def enter(self) -> HTTPResponse:
        """The page; `kernel` is its kernel then, or empty where the answer is another one."""
        answer = await self.fetch(self.first)
        if answer.code in (301, 302):
            answer = await self.fetch(answer.headers["Location"])
        found = KERNEL.search(answer.body.decode("utf-8", "replace")) if answer.body else None
        self.kernel = found[1] if found else ""
        return answer

    async def connect(
        self,
        kernel: str | None = None,
        protocols: list[str] | None = None,
        session: str | None = None,
    ) -> WebSocketClientConnection:
        """A websocket to the kernel. Raises tornado's HTTPClientError where it is refused."""
        url = (
            f"ws{self.base[4:]}/api/kernels/{kernel or self.kernel}/channels"
            f"?session_id={self.session if session is None else session}"
        )
        self.socket = await websocket_connect(
            HTTPRequest(url, headers=self._headers(), request_timeout=30),
            subprotocols=[PROTOCOL] if protocols is None else protocols,
            max_message_size=MOST_HEARD,
        )
        return self.socket

    def frame(
        self,
        kind: str,
        content: Any,
        metadata: Any = None,
        buffers: tuple[bytes, ...] = (),
        **header: Any,
    ) -> bytes:
        """A frame as the page sends it; `header` overrides what is in one."""
        head = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": kind,
            "username": "",
            "session": self.session,
            "date": "2026-01-01T00:00:00Z",
            "version": "5.2",
            **header,
        }
        parts = tuple(json.dumps(one).encode() for one in (head, {}, metadata or {}, content))
        return Message(kind, (*parts, *buffers), 0, False).frame()

    async def send(self, kind: str, content: Any, metadata: Any = None) -> None:
        assert self.socket is not None
        await self.socket.write_message(self.frame(kind, content, metadata), binary=True)

    async def hear(self, seconds: float = 60) -> tuple[str, dict[str, Any]] | None:
        """The next message's type and content; None when the connection has closed."""
        assert self.socket is not None
        got = await asyncio.wait_for(self.socket.read_message(), seconds)
        if got is None:
            return None
        assert isinstance(got, bytes)
        count = int.from_bytes(got[:8], "little")
        places = [int.from_bytes(got[8 * at : 8 * at + 8], "little") for at in range(1, count + 1)]
        header = json.loads(got[places[1] : places[2]])
        return header["msg_type"], json.loads(got[places[4] : places[5]])

    async def widgets(self) -> dict[str, dict[str, Any]]:
        """The state of every widget of the page, by its comm's id: what the page asks for first."""
        control = uuid.uuid4().hex
        target = {"comm_id": control, "target_name": "jupyter.widget.control", "data": {}}
        await self.send("comm_open", target, {"version": "1.0.0"})
        await self.send("comm_msg", {"comm_id": control, "data": {"method": "request_states"}})
        while (heard := await self.hear()) is not None:
            kind, content = heard
            if kind == "comm_msg" and content["comm_id"] == control:
                states = content["data"]["states"]
                return {name: one["state"] for name, one in states.items()}
        raise ConnectionError("the connection was closed before the page's state came")

    async def ask(self, comm: str, beat: int = 1) -> None:
        """A ping to the player, and its answer: the kernel hears and speaks."""
        data = {"method": "custom", "content": {"type": "ping", "beat": beat}}
        await self.send("comm_msg", {"comm_id": comm, "data": data})
        while (heard := await self.hear()) is not None:
            kind, content = heard
            said = content.get("data", {}).get("content", {}) if kind == "comm_msg" else {}
            if said.get("type") == "pong" and said.get("beat") == beat:
                return
        raise ConnectionError("the connection was closed before the kernel answered")

    async def leave(self) -> int:
        """Close the page as a browser does; the answer's status."""
        path = f"/voila/api/shutdown/{self.kernel}"
        answer = await self.fetch(path, method="POST", body=b"")
        if self.socket is not None:
            self.socket.close()
        return answer.code


def player_of(widgets: dict[str, dict[str, Any]]) -> str:
    """The comm of the page's player. Raises LookupError where there is none."""
    for name, state in widgets.items():
        if str(state.get("_anywidget_id", "")).endswith(".Player"):
            return name
    raise LookupError("the page has no player")
