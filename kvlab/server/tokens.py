"""Tokens that are read from a wall and typed."""

from __future__ import annotations

import secrets

LETTERS = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"
"""No 0, O, 1, I and L."""
LENGTH = 8


def new_token() -> str:
    """About 40 bits; the server lets an address guess once a second in the long run."""
    letters = "".join(secrets.choice(LETTERS) for _ in range(LENGTH))
    return f"{letters[: LENGTH // 2]}-{letters[LENGTH // 2 :]}"


def plain(token: str) -> str:
    """As it is compared: without dashes, spaces and case."""
    return "".join(one for one in token.upper() if one.isalnum())
