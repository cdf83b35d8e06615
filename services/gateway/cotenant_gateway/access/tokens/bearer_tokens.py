"""The interface of a source of bearer tokens, and the cache of tokens whose signature was checked.

A signature takes some 0.1 ms to check and a token is sent with each request, so a token is checked once: until it expires,
until its source forgets it, or until MAX_VERIFIED others were used since.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from cotenant_gateway.access.users import User

MAX_TOKEN_BYTES = 8000
"""Much longer headers are refused by the HTTP server."""
MAX_VERIFIED = 4096
T = TypeVar("T")


Fetch = Callable[[], Awaitable[bool]]
"""Fetches keys; returns whether there are any."""


class TokenError(Exception):
    """A token of this source is not valid; the text states why."""

    def __init__(self, why: str, fetch: Fetch | None = None) -> None:
        """`fetch`: fetches keys, of which one may be the token's."""
        super().__init__(why)
        self.fetch = fetch


class TokenSource(Protocol):
    """A source of bearer tokens."""

    def known(self, token_digest: bytes) -> User | None:
        """Return the token's user, if known without checking the token."""

    def verified(self, token: str, token_digest: bytes) -> User | None:
        """Check a token. None where it is not one of this source's. Raises TokenError."""


def digest(token: str) -> bytes:
    """Return the cache key of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class VerifiedTokens(Generic[T]):
    """Verified tokens by digest. Bound: MAX_VERIFIED, the least recently used is evicted."""

    def __init__(self) -> None:
        self._found: OrderedDict[bytes, tuple[float, T]] = OrderedDict()
        """Until when (seconds since 1970), and what."""

    def __len__(self) -> int:
        return len(self._found)

    def get(self, token_digest: bytes, now: float) -> T | None:
        """Return the cached result of a token that has not expired."""
        found = self._found.get(token_digest)
        if found is None:
            return None
        until, known = found
        if now >= until:
            del self._found[token_digest]
            return None
        self._found.move_to_end(token_digest)
        return known

    def put(self, token_digest: bytes, until: float, known: T) -> None:
        """Cache a token's result until the token expires."""
        self._found[token_digest] = (until, known)
        self._found.move_to_end(token_digest)
        if len(self._found) > MAX_VERIFIED:
            self._found.popitem(last=False)

    def forget(self, token_digest: bytes) -> None:
        """Check this token again."""
        self._found.pop(token_digest, None)

    def clear(self) -> None:
        """Check every token again."""
        self._found.clear()
