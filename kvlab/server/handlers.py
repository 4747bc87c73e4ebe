"""Every address that the dashboard's server answers, and nothing else.

The list is `routes`. Voilà's own list is not used: it ends with a handler for any path, serves files
and extensions that the page has no need of, and lets whoever knows a kernel's id open or end it.
Imported late: Voilà takes a second.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl, urlencode

from jupyter_server.auth.decorator import allow_unauthenticated
from jupyter_server.base.handlers import APIHandler, FileFindHandler, JupyterHandler
from jupyter_server.services.kernels.handlers import KernelHandler
from jupyter_server.utils import url_path_join
from tornado import web
from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketClosedError
from voila.static_file_handler import MultiStaticFileHandler, TemplateStaticFileHandler
from voila.tornado.kernel_websocket_handler import VoilaKernelWebsocketHandler
from voila.voila_identity_provider import VoilaLoginHandler

from kvlab.server import answers, frames, open_files
from kvlab.server.pool import Pool
from kvlab.server.room import Full, Room, Session

KERNEL = r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
SESSION = re.compile(r"[\w-]{1,64}", re.ASCII)
MOST_WAITING = 32 * 1024 * 1024
"""Bytes that may wait for a page that does not read; then its connection is closed."""


class Quiet(web.RequestHandler):
    """Errors say their number and no more: no path, no traceback, nothing that was sent."""

    def set_default_headers(self) -> None:
        super().set_default_headers()
        for name, value in self.settings["headers"].items():
            self.set_header(name, value)

    def write_error(self, status_code: int, **_: Any) -> None:
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(answers.refused(status_code))


class Nothing(Quiet):
    """The answer to every other address and to every method."""

    async def prepare(self) -> None:
        raise web.HTTPError(404)


class Seated(JupyterHandler):
    """A handler about one session: of the visitor who asks, or there is none."""

    @property
    def room(self) -> Room:
        room: Room = self.settings["room"]
        return room

    def session_of(self, kernel: str) -> Session:
        """Raises 404 for other people's kernels as for those that do not exist."""
        found = self.room.find(kernel, self.current_user.username)
        if found is None:
            raise web.HTTPError(404)
        return found


class Page(Quiet, Seated):
    """The dashboard: a seat, a kernel that has rendered it, and its page."""

    @web.authenticated
    async def get(self) -> None:
        if "token" in self.request.arguments:
            # It is in the cookie now: keep it out of the history and of what people copy.
            rest = [(k, v) for k, v in parse_qsl(self.request.query) if k != "token"]
            query = "?" + urlencode(rest) if rest else ""
            self.redirect(self.base_url + query)
            return
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        try:
            if open_files.left() < open_files.OF_A_PAGE:
                raise Full
            session = self.room.enter(self.current_user.username)
        except Full as full:
            self.set_status(503)
            self.set_header("Retry-After", str(answers.RETRY_SECONDS))
            self.finish(answers.room_full(self.room.seats, full.own))
            return
        pool: Pool = self.settings["pool"]
        try:
            rendering = await pool.take()
            session.kernel = rendering.kernel
            async for piece in rendering.html():
                self.write(piece)
                await self.flush()
            if rendering.failed:
                self.write(answers.BROKEN_OFF)
                self.room.drop(session)
                return
        except StreamClosedError:
            self.room.drop(session)  # the visitor has gone
        except BaseException:
            self.room.drop(session)
            raise
        session.sent, session.seen = True, self.room.clock()


class Kernel(Quiet, Seated, KernelHandler):
    """What a page asks about its kernel."""

    SUPPORTED_METHODS = ("GET",)

    @web.authenticated
    async def get(self, kernel_id: str) -> None:
        self.session_of(kernel_id)
        await super().get(kernel_id)  # type: ignore[misc]


class Shutdown(Quiet, Seated, APIHandler):
    """Ends a session when its page is closed.

    The page's last word cannot carry the cross-site token that Jupyter asks for, so that every
    closed page left its kernel behind. The visitor's cookie, which other sites' pages cannot send,
    and the kernel's id are proof enough.
    """

    SUPPORTED_METHODS = ("POST",)

    def check_xsrf_cookie(self) -> None:
        return None

    @web.authenticated
    async def post(self, kernel_id: str) -> None:
        await self.room.end(self.session_of(kernel_id))
        self.set_status(204)


class Channels(Quiet, Seated, VoilaKernelWebsocketHandler):
    """The websocket between a page and its kernel: only what frames.py lets through."""

    SUPPORTED_METHODS = ("GET",)
    session: Session | None = None
    waiting = 0
    refused = False

    async def get(self, kernel_id: str) -> None:
        offered = self.request.headers.get("Sec-WebSocket-Protocol", "").split(",")
        if frames.PROTOCOL not in [one.strip() for one in offered]:
            raise web.HTTPError(400)
        if not SESSION.fullmatch(self.get_argument("session_id", "")):
            raise web.HTTPError(400)
        session = self.session_of(kernel_id)
        try:
            session.connect(self)
        except frames.Refused as error:
            raise web.HTTPError(429) from error
        self.session = session
        await super().get(kernel_id)  # type: ignore[misc]

    def on_message(self, message: object) -> None:
        if self.refused or self.session is None:
            return
        try:
            given = frames.read(message)
            self.session.spend(given)
            super().on_message(given.frame())
        except frames.Refused as error:
            self.refuse(1003, str(error))
        except (AssertionError, AttributeError, LookupError, TypeError, ValueError):
            self.log.exception("a message could not be passed on")
            self.refuse(1011, "this message could not be passed on")

    def end(self) -> None:
        """Let go of the kernel before it ends: Jupyter keeps the four sockets to a kernel that its
        page leaves, for a page that comes back, and drops them when the kernel is stopped then."""
        self.close(1001, "this session has ended")
        self.on_close()

    def refuse(self, code: int, why: str) -> None:
        """Close, and hear no more of what has arrived already."""
        self.refused = True
        self.log.info("a websocket was closed: %s", why)
        self.close(code, why)

    def write_message(self, message: Any, binary: bool = False) -> Any:
        if self.refused or not isinstance(message, bytes):
            return None
        if frames.kind_of(message) not in frames.HEARD:
            return None
        size = len(message)
        if self.waiting + size > MOST_WAITING:
            return self.refuse(1008, "this page does not read what it asks for")
        try:
            sent = super().write_message(message, binary)
        except WebSocketClosedError:
            return None
        self.waiting += size
        sent.add_done_callback(lambda done: self._sent(done, size))
        return sent

    def _sent(self, done: Any, size: int) -> None:
        self.waiting -= size
        if not done.cancelled():
            done.exception()  # the page has gone meanwhile: looked at, so that nobody complains

    def on_close(self) -> None:
        if self.session is not None:
            self.session.disconnect(self)
        if getattr(self, "connection", None) is not None:
            super().on_close()

    def on_finish(self) -> None:
        """Also where the websocket never came about."""
        if self.ws_connection is None and self.session is not None:
            self.session.disconnect(self)


class Login(Quiet, VoilaLoginHandler):
    """The page that asks for the token."""

    SUPPORTED_METHODS = ("GET", "POST")

    def _render(self, message: Any = None) -> None:
        self.set_header("Cache-Control", "no-store")
        next_page = urlencode({"next": self.get_argument("next", default=self.base_url)})
        action = f"{url_path_join(self.base_url, 'login')}?{next_page}"
        problem = "That is not this room's token. Look again at what is shown." if message else ""
        self.finish(answers.token_asked(action, self.xsrf_form_html(), problem))


class Asset(Quiet):
    """A file of the installed packages. A path that no file can have is one that is not there."""

    SUPPORTED_METHODS = ("GET", "HEAD")

    @allow_unauthenticated
    async def get(self, path: str, include_body: bool = True) -> None:
        if any(part.startswith(".") for part in path.split("/")) or not path.isprintable():
            raise web.HTTPError(404)
        try:
            await super().get(path, include_body)  # type: ignore[misc]
        except (AssertionError, OSError, ValueError) as error:
            raise web.HTTPError(404) from error

    @allow_unauthenticated
    async def head(self, path: str) -> None:
        await self.get(path, include_body=False)


class TemplateAsset(Asset, TemplateStaticFileHandler):
    """Of a Voilà template."""


class StaticAsset(Asset, MultiStaticFileHandler):
    """Voilà's own code and styles."""


class ExtensionAsset(Asset, FileFindHandler):
    """The widgets' code in the browser."""


def routes(voila: Any, extensions: list[str]) -> list[Any]:
    """All addresses, below the server's base URL. `extensions`: those whose files are served."""
    names = "|".join(re.escape(one) for one in extensions)
    table: list[Any] = [
        (r"/", Page),
        (rf"/api/kernels/{KERNEL}", Kernel),
        (rf"/api/kernels/{KERNEL}/channels", Channels),
        (rf"/voila/api/shutdown/{KERNEL}", Shutdown),
        (r"/voila/templates/(.*)", TemplateAsset),
        (
            r"/voila/static/(.*)",
            StaticAsset,
            {"paths": voila.static_paths, "default_filename": "index.html"},
        ),
        (
            rf"/voila/labextensions/((?:{names})/.*)",
            ExtensionAsset,
            {"path": voila.labextensions_path, "no_cache_paths": ["/"]},
        ),
        (r"/login", Login),
    ]
    base = voila.server_url.rstrip("/")
    return [(base + path, *rest) for path, *rest in table] + [(r".*", Nothing)]
