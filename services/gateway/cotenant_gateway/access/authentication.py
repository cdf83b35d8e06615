"""Authentication: from a connection and its headers to a user, or 401.

In this order: the client certificate of the connection (its CN is the name, its O the groups), the process at the other end of
a unix socket, a bearer token (from a file, of a service account, of an OpenID issuer). An unknown bearer token is
refused even where the connection has an identity, as kube-apiserver does.
"""

from __future__ import annotations

import grp
import pwd
import socket
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec

from cotenant_gateway.access.tokens.bearer_tokens import MAX_TOKEN_BYTES, Fetch, TokenError, TokenSource, digest
from cotenant_gateway.access.users import MASTERS, User, authenticated
from cotenant_gateway.statuses import ApiError

_PEER = struct.Struct("3i")
UNIX = "unix:"
"""Prefix of the names of local users and groups."""


class Peer(msgspec.Struct, frozen=True):
    """A connection's information about its peer."""

    certificate: Sequence[tuple[str, str]] = ()
    """The subject of a verified client certificate: names and values."""
    uid: int | None = None
    """The user of the process at the other end of a unix socket."""


class Authenticator:
    """Authenticates requests."""

    def __init__(self, tokens: Sequence[TokenSource], own_uid: Callable[[], int]) -> None:
        """`own_uid`: the user that the gateway runs as; that one, and root, may do everything over the unix socket."""
        self._tokens = tuple(tokens)
        self._own_uid = own_uid

    def user(self, peer: Peer, authorization: str) -> User:
        """Return the user of a request; `authorization` is the value of that header. Raises ApiError 401, RefusedTokenError."""
        found = self._of_peer(peer)
        if not authorization:
            if found is None:
                raise unauthorized("no credentials: send a bearer token or a client certificate")
            return found
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > MAX_TOKEN_BYTES:
            raise unauthorized("the Authorization header is not a bearer token")
        known = self.of_token(token)
        return known if found is None else found

    def of_token(self, token: str) -> User:
        """Return the token's user. Raises RefusedTokenError."""
        key = digest(token)
        for source in self._tokens:
            known = source.known(key)
            if known is not None:
                return known
        for source in self._tokens:
            try:
                known = source.verified(token, key)
            except TokenError as error:
                raise RefusedTokenError(f"the bearer token is not valid: {error}", error.fetch) from error
            if known is not None:
                return known
        raise RefusedTokenError("the bearer token is unknown, or no longer valid")

    def _of_peer(self, peer: Peer) -> User | None:
        if peer.certificate:
            name = next((value for key, value in peer.certificate if key == "commonName"), "")
            if name:
                return authenticated(name, tuple(value for key, value in peer.certificate if key == "organizationName"))
        if peer.uid is not None:
            return local_user(peer.uid, peer.uid in (0, self._own_uid()))
        return None


@lru_cache(maxsize=256)
def local_user(uid: int, master: bool) -> User:
    """Return a user of this machine, with the groups that it is in."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return authenticated(f"{UNIX}{uid}", (MASTERS,) if master else ())
    groups = {entry.pw_gid, *(group.gr_gid for group in grp.getgrall() if entry.pw_name in group.gr_mem)}
    names = sorted(f"{UNIX}{_group_name(gid)}" for gid in groups)
    return authenticated(f"{UNIX}{entry.pw_name}", (MASTERS, *names) if master else tuple(names))


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def peer_uid(connection: socket.socket) -> int:
    """Return the user of the process that opened a unix socket's other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return int(_PEER.unpack(credentials)[1])


class RefusedTokenError(ApiError):
    """401 for a token."""

    def __init__(self, message: str, fetch: Fetch | None = None) -> None:
        super().__init__(401, "Unauthorized", message)
        self._fetch = fetch

    async def may_be_known_now(self) -> bool:
        """Fetch missing keys, if any; returns whether to check the token again."""
        return self._fetch is not None and await self._fetch()


def unauthorized(message: str) -> ApiError:
    """401: the request is not authenticated."""
    return ApiError(401, "Unauthorized", message)
