"""Who a visitor is: a signed cookie, and where the server has a token, whoever knew it once."""

from __future__ import annotations

import hmac
from typing import Any

from voila.voila_identity_provider import VoilaIdentityProvider

from kvlab.server.room import Bucket
from kvlab.server.tokens import plain

MOST_ADDRESSES = 1_000


class Visitors(VoilaIdentityProvider):
    """Voilà's provider with a token that people can type and nobody can try out."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.guesses: dict[str, Bucket] = {}

    async def get_user_token(self, handler: Any) -> Any:
        given = self.get_token(handler)
        if not self.token or not given or not self.right(given, handler.request.remote_ip):
            return None
        return self.get_user_cookie(handler) or self.generate_anonymous_user(handler)

    def process_login_form(self, handler: Any) -> Any:
        given = handler.get_argument("password", default="")
        if not self.token or not self.right(given, handler.request.remote_ip):
            return None
        return self.get_user_cookie(handler) or self.generate_anonymous_user(handler)

    def right(self, given: str, address: str) -> bool:
        """Whether it is the token. Who has guessed too often is not answered for a while."""
        if len(self.guesses) > MOST_ADDRESSES:
            self.guesses.clear()
        bucket = self.guesses.setdefault(address, Bucket(1, 60))
        if not bucket.take():
            return False
        if hmac.compare_digest(plain(given).encode(), plain(self.token).encode()):
            bucket.left += 1  # a room behind one address may enter at once
            return True
        return False
