"""Nobody gets in: each way tried by hand against running servers, over HTTP and raw websockets.

Two servers with the lab's own page: `kvlab app`, which asks for no token, and `kvlab serve` with one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from apart import run
from tornado.httpclient import HTTPClientError
from tornado.websocket import WebSocketClosedError

from kvlab.bench.visitor import Visitor, player_of
from kvlab.server import server

TOKEN = "WALL-7X9K"
NOBODY = "01234567-89ab-4def-8123-456789abcdef"


@pytest.fixture(scope="module")
def open_lab(serve: Callable[..., Any]) -> Any:
    return serve("app")


@pytest.fixture(scope="module")
def closed_lab(serve: Callable[..., Any]) -> Any:
    return serve("serve", "--class", "3", "--heated", "1", "--token", TOKEN)


@pytest.fixture(scope="module")
def guest(open_lab: Any) -> Visitor:
    """Somebody with a page of their own, who now tries other things."""
    visitor = Visitor(open_lab.url)
    run(visitor.enter())
    assert visitor.kernel
    return visitor


def as_guest(guest: Visitor, url: str) -> Visitor:
    """The same person within another event loop."""
    other = Visitor(url)
    other.cookies, other.kernel = dict(guest.cookies), guest.kernel
    return other


PATHS = [
    "/dashboard.ipynb",
    "/voila/render/dashboard.ipynb",
    "/voila/files/dashboard.ipynb",
    "/voila/tree",
    "/voila/query/" + NOBODY,
    "/voila/execution/" + NOBODY,
    "/voila/api/contents",
    "/api/contents/dashboard.ipynb",
    "/api/kernels",
    "/api/kernelspecs",
    "/api/sessions",
    "/api/terminals",
    "/api/config/x",
    "/api/status",
    "/api/me",
    "/files/dashboard.ipynb",
    "/nbconvert/html/dashboard.ipynb",
    "/edit/x",
    "/lab",
    "/tree",
    "/terminals/1",
    "/terminals/websocket/1",
    "/metrics",
    "/logout",
    "/static/x",
    "/proxy/80",
    "/%00",
    "//evil.example",
    "/..%2f..%2fetc/passwd",
    "/voila/templates/",
    "/voila/templates/x",
    "/voila/templates/lab/index.html.j2",
    "/voila/templates/..%2f..%2f..%2f..%2fetc/passwd",
    "/voila/templates/lab/static/../../../../../../../etc/passwd",
    "/voila/templates/lab/static/%00",
    "/voila/templates/a%0Ab/static/x",
    "/voila/static/",
    "/voila/static/%00",
    "/voila/static/%ff%fe",
    "/voila/static/..%2f..%2f__init__.py",
    "/voila/static/" + "a" * 3000,
    "/voila/labextensions/jupyterlab-plotly/../../../kernels/python3/kernel.json",
    "/voila/labextensions/@jupyter-notebook/lab-extension/package.json",
    "/voila/labextensions/anywidget/%2e%2e/%2e%2e/x",
    "/voila/api/themes/x",
    "/api/kernels/x",
]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_no_other_address_answers(open_lab: Any, closed_lab: Any, guest: Visitor, method: str):
    async def knock(visitor: Visitor) -> None:
        for path in PATHS:
            answer = await visitor.fetch(path, method, body=None if method == "GET" else b"{}")
            assert 400 <= answer.code < 500, (path, answer.code)
            body = answer.body.decode()
            for secret in ("Traceback", "site-packages", str(server.ROOT), "etc/passwd", "root:"):
                assert secret not in body, path
            assert "frame-ancestors 'self'" in answer.headers["Content-Security-Policy"]

    run(knock(Visitor(open_lab.url)))
    run(knock(as_guest(guest, open_lab.url)))
    run(knock(Visitor(closed_lab.url)))
    for lab in (open_lab, closed_lab):
        assert "Traceback" not in lab.log.read_text()


def test_strangers_reach_no_kernel(open_lab: Any, guest: Visitor):
    async def others() -> None:
        stranger = Visitor(open_lab.url)
        for visitor in (stranger, stranger):  # without a cookie, and with one of their own
            path = f"/api/kernels/{guest.kernel}"
            assert (await visitor.fetch(path)).code == 404
            assert (await visitor.fetch(path, "DELETE")).code == 405
            assert (await visitor.fetch(f"{path}/interrupt", "POST", body=b"")).code == 404
            shutdown = f"/voila/api/shutdown/{guest.kernel}"
            assert (await visitor.fetch(shutdown, "POST", body=b"")).code == 404
            with pytest.raises(HTTPClientError, match="404"):
                await visitor.connect(guest.kernel)
        assert (await stranger.enter()).code == 200
        assert stranger.kernel != guest.kernel
        with pytest.raises(HTTPClientError, match="404"):
            await stranger.connect(guest.kernel)
        assert await stranger.leave() == 204
        mine = as_guest(guest, open_lab.url)
        assert (await mine.fetch(f"/api/kernels/{guest.kernel}")).code == 200
        assert (await mine.fetch(f"/api/kernels/{guest.kernel}", "DELETE")).code == 405

    run(others())


def test_a_token_is_asked_for_everywhere(closed_lab: Any):
    async def without() -> None:
        visitor = Visitor(closed_lab.url)
        visitor.first = "/"
        asked = await visitor.enter()
        assert "wants the token" in asked.body.decode()
        assert visitor.kernel == ""
        for path in (f"/api/kernels/{NOBODY}", f"/api/kernels/{NOBODY}/channels"):
            assert (await visitor.fetch(path)).code in (302, 400, 403)
        with pytest.raises(HTTPClientError, match="403"):
            await visitor.connect(NOBODY)
        wrong = await visitor.fetch("/?token=WALL-7X9L")
        assert wrong.code == 302
        assert wrong.headers["Location"].startswith("/login")
        forged = Visitor(closed_lab.url)
        forged.cookies = {f"username-127-0-0-1-{closed_lab.port}": "2|1:0|10:1|1:x|4:e30=|00"}
        assert (await forged.fetch("/")).code == 302

    run(without())


def test_guesses_are_slowed_down(closed_lab: Any):
    async def guess() -> list[int]:
        visitor = Visitor(closed_lab.url)
        await visitor.fetch("/login")
        field = f"_xsrf={visitor.cookies['_xsrf']}&password="
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        found = []
        for number in range(150):
            body = f"{field}WRONG{number}".encode()
            found.append((await visitor.fetch("/login", "POST", form, body)).code)
        # Even the right one has to wait now.
        right = (field + TOKEN).encode()
        found.append((await visitor.fetch("/login", "POST", form, right)).code)
        while (await visitor.fetch("/login", "POST", form, right)).code == 401:
            await asyncio.sleep(0.1)
        return found

    assert set(run(guess())) == {401}


def test_a_request_from_another_site_is_refused(open_lab: Any, guest: Visitor):
    async def elsewhere() -> None:
        mine = as_guest(guest, open_lab.url)
        evil = {"Origin": "https://evil.example", "Host": f"127.0.0.1:{open_lab.port}"}
        mine._headers = lambda more=None: {**Visitor._headers(mine, more), **evil}  # type: ignore
        with pytest.raises(HTTPClientError, match="403"):
            await mine.connect()
        host = await Visitor(open_lab.url).fetch("/", headers={"Host": "evil.example"})
        assert host.code == 403

    run(elsewhere())


@pytest.mark.parametrize("protocols", [[], ["v2.kernel.websocket.jupyter.org"], ["garbage"]])
def test_the_old_protocol_is_refused(open_lab: Any, guest: Visitor, protocols: list[str]):
    with pytest.raises(HTTPClientError, match="400"):
        run(as_guest(guest, open_lab.url).connect(protocols=protocols))


@pytest.mark.parametrize("session", ["", "a" * 300, "a%0Ab", "../x"])
def test_names_of_sessions_are_bounded(open_lab: Any, guest: Visitor, session: str):
    with pytest.raises(HTTPClientError, match="400"):
        run(as_guest(guest, open_lab.url).connect(session=session))


def hostile_frames(visitor: Visitor) -> dict[str, bytes | str]:
    return {
        "text": "{}",
        "2^64 offsets": b"\xff" * 8,
        "a billion offsets": (10**9).to_bytes(8, "little") + b"x" * 1000,
        "zeros": b"\0" * 100_000,
        "code": visitor.frame("execute_request", {"code": "import os; os._exit(1)"}),
        "completion": visitor.frame("complete_request", {"code": "os.", "cursor_pos": 3}),
        "debugger": visitor.frame("debug_request", {"command": "attach"}),
        "shutdown": visitor.frame("shutdown_request", {"restart": False}),
        "a widget of any class": visitor.frame(
            "comm_open",
            {
                "comm_id": "x",
                "target_name": "jupyter.widget",
                "data": {"state": {"_model_name": "FileUploadModel"}},
            },
            {"version": "2.1.0"},
        ),
        "too large": b"\0" * (5 * 1024 * 1024),
    }


@pytest.mark.parametrize("name", list(hostile_frames(Visitor("http://127.0.0.1/"))))
def test_a_hostile_frame_ends_its_connection_and_nothing_else(
    open_lab: Any, guest: Visitor, name: str
):
    async def throw() -> int | None:
        mine = as_guest(guest, open_lab.url)
        socket = await mine.connect()
        frame = hostile_frames(mine)[name]
        with contextlib.suppress(WebSocketClosedError):  # closed before the end of it was sent
            await socket.write_message(frame, binary=isinstance(frame, bytes))
        while await mine.hear(20) is not None:
            pass
        assert (await mine.fetch(f"/api/kernels/{mine.kernel}")).code == 200
        return socket.close_code

    # None: our own writing broke off before the server's reason could be read.
    assert run(throw()) in ((1009, None) if name == "too large" else (1003,))


def test_thousands_of_messages_a_second_end_their_connection(open_lab: Any):
    async def flood() -> None:
        mine = Visitor(open_lab.url)
        await mine.enter()
        socket = await mine.connect()
        ping = {"comm_id": "none", "data": {"method": "custom", "content": {}}}
        with contextlib.suppress(WebSocketClosedError):
            for _ in range(5_000):
                await socket.write_message(mine.frame("comm_msg", ping), binary=True)
        while await mine.hear(20) is not None:
            pass
        assert (socket.close_code, socket.close_reason) == (1003, "too many messages a second")
        again = await mine.connect()  # connecting anew refills nothing
        for _ in range(400):
            with contextlib.suppress(WebSocketClosedError):
                await again.write_message(mine.frame("comm_msg", ping), binary=True)
        while await mine.hear(20) is not None:
            pass
        assert again.close_code == 1003
        await mine.leave()

    run(flood())


VALUES: list[Any] = [
    None,
    True,
    -1,
    10**30,
    1e308,
    "x" * 100_000,
    "<script>",
    [[]] * 500,
    {"a": {}},
]


def test_every_kind_of_widget_survives_hostile_updates(open_lab: Any):
    """Every trait of a widget of each kind on the page, with wrong types and huge values; then unknown
    methods. Afterwards the page answers, and no traceback or path has come over the wire."""

    async def attack() -> None:
        mine = Visitor(open_lab.url)
        await mine.enter()
        await mine.connect()
        widgets = await mine.widgets()
        player = player_of(widgets)
        heard: list[str] = []

        async def settle(beat: int) -> None:
            data = {"method": "custom", "content": {"type": "ping", "beat": beat}}
            await mine.send("comm_msg", {"comm_id": player, "data": data})
            while True:
                got = await mine.hear(60)
                assert got is not None, "the connection was closed"
                heard.append(got[0])
                text = json.dumps(got[1])
                if got[0] != "comm_msg" or "update_states" not in text:
                    assert "Traceback" not in text
                    assert str(Path(sys.prefix)) not in text
                said = got[1].get("data", {}).get("content", {})
                if isinstance(said, dict) and said.get("beat") == beat:
                    return

        kinds: dict[tuple[Any, Any], str] = {}
        for comm, state in widgets.items():
            kinds.setdefault((state["_model_name"], state.get("_anywidget_id")), comm)
        assert len(kinds) > 6
        for number, comm in enumerate(kinds.values()):
            state = widgets[comm]
            names = [name for name in state if not name.startswith("_")]
            value = VALUES[number % len(VALUES)]
            messages: list[Any] = [
                {"method": "update", "state": dict.fromkeys(names, value), "buffer_paths": []},
                {"method": "update", "state": {"layout": "IPY_MODEL_none", "children": [comm]}},
                {"method": "update", "state": value, "buffer_paths": [["a", 0]]},
                {"method": "custom", "content": value},
                {"method": "custom", "content": {"type": value, "event": "click", "index": value}},
                {"method": value},
                value,
            ]
            for data in messages:
                if comm == player and isinstance(data, dict) and "state" in data:
                    continue  # it must go on to answer
                await mine.send("comm_msg", {"comm_id": comm, "data": data})
            await settle(number)
        odd: list[Any] = [{}, [], {"comm_id": []}, {"comm_id": {"a": 1}, "data": 1}]
        for content in odd:
            for kind in ("comm_msg", "comm_close", "comm_info_request"):
                await mine.send(kind, content)
        await settle(1_000_000)
        assert not set(heard) - {"status", "comm_msg", "comm_close", "comm_info_reply"}
        await mine.leave()

    run(attack())


def test_names_in_the_log_stay_on_their_line():
    import logging

    record = server.OneLine("x", logging.INFO, "", 0, "%s", ("a\n[admin] b\x1b[31m\u202ec",), None)
    assert record.getMessage() == "a\\n[admin] b\\x1b[31m\\u202ec"


def test_only_a_named_course_may_frame_the_lab():
    assert "frame-ancestors 'self';" in server.content_policy()
    framed = server.content_policy(["https://course.example"])
    assert "frame-ancestors 'self' https://course.example;" in framed
    for origin in ("*", "https://x/path", "javascript:1", "https://a; script-src *"):
        assert not server.ORIGIN.fullmatch(origin)
