"""Access to the HTTP API: Host and Origin, then authentication (401), then authorization (403).

In: a request and its target. Out: its user, attached to the request for writes and audit; or an ApiError.

Host and Origin are checked first: this stops a web page that has its own name resolve to this machine, or that
sends a form here, whatever credentials the browser adds. Liveness and readiness are open to everybody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from urllib.parse import urlsplit

from aiohttp import web

from cotenant_gateway.access.attributes import RequestAttributes
from cotenant_gateway.access.audit import Audit
from cotenant_gateway.access.authentication import Authenticator, RefusedTokenError
from cotenant_gateway.access.authorizer import authorize
from cotenant_gateway.access.rates import OF_STRANGERS, OF_USERS, Rate, TokenBuckets
from cotenant_gateway.access.users import MASTERS, User, account_groups, account_of, authenticated
from cotenant_gateway.http.clients.connections import connection_of
from cotenant_gateway.shell.gateway import Gateway
from cotenant_gateway.statuses import ApiError, StatusDetails, bad_request, encodable, too_many, unavailable

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
MAX_ACTOR = 256
_USER, _ASKED, _BY = "cotenant.user", "cotenant.asked", "cotenant.by"
_AS_USER, _AS_GROUP = "Impersonate-User", "Impersonate-Group"


class AccessControl:
    """Admits requests."""

    def __init__(
        self,
        gateway: Gateway,
        authenticator: Authenticator,
        hosts: Iterable[str] = (),
        *,
        audit: Audit,
        rates: Rate = OF_USERS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`hosts`: names and addresses, beside the loopback's, that clients may have in the header Host."""
        self._gateway = gateway
        self._authenticator = authenticator
        self._audit = audit
        self.of_users = TokenBuckets(rates)
        self.of_strangers = TokenBuckets(OF_STRANGERS)
        self._clock = clock
        self._hosts = LOOPBACK_NAMES | {host.lower() for host in hosts}

    def check_origin(self, request: web.BaseRequest) -> None:
        """Raise ApiError 403 for a Host that is not this server's, or an Origin that differs from its Host."""
        if connection_of(request).peer.uid is not None:
            return  # a unix socket: no web page reaches it
        headers = request.headers
        host = headers.get("Host", "")
        if _name_of(host) not in self._hosts:
            raise forbidden_text(f"the host {host[:100]!r} is not served here (--allowed-host names more)")
        origin = headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            raise forbidden_text(f"requests from pages of {origin[:100]!r} are refused")

    async def admit(self, request: web.BaseRequest, asked: RequestAttributes) -> User:
        """Return the authorized user. Raises ApiError 401, 403, 429, and 503 while the roles are still loading."""
        request[_ASKED] = asked
        headers = request.headers
        user = await self._known(request, headers.get("Authorization", ""))
        request[_USER] = user
        if not self._gateway.follower.ready.is_set():
            raise unavailable("the read model is still loading")
        if _AS_USER in headers or _AS_GROUP in headers:
            request[_BY] = user.name
            user = request[_USER] = self._impersonated(user, headers.get(_AS_USER, ""), headers.getall(_AS_GROUP, []))
        if not authorize(self._gateway.core, user, asked).allowed:
            raise forbidden(user, asked)
        return user

    async def _known(self, request: web.BaseRequest, authorization: str) -> User:
        """Return the authenticated user, within its rate. Raises ApiError 401, 429, 503."""
        connection = connection_of(request)
        try:
            try:
                user = self._authenticator.user(connection.peer, authorization)
            except RefusedTokenError as refused:
                if not await refused.may_be_known_now():
                    raise
                user = self._authenticator.user(connection.peer, authorization)
        except ApiError as error:
            if error.code == 401 and not self.of_strangers.take(connection.address, self._clock()):
                raise too_many("too many wrong credentials from this address") from None
            raise
        if MASTERS not in user.groups and not self.of_users.take(user.name, self._clock()):
            raise too_many(f"user {user.name!r} exceeds {self.of_users.rate.per_second:g} requests a second")
        return user

    def answered(self, request: web.BaseRequest, code: int) -> None:
        """Record an answer for the audit trail."""
        asked = request.get(_ASKED)
        if asked is None:
            return
        agent = request.headers.get("User-Agent", "")
        self._audit.note(request.get(_USER), request.get(_BY, ""), asked, code, connection_of(request).address, agent)

    def _impersonated(self, user: User, name: str, groups: Sequence[str]) -> User:
        """Return the user that another one acts as (`kubectl --as`), if they may. Raises ApiError."""
        if not name:
            raise bad_request(f"the header {_AS_GROUP} requires {_AS_USER}")
        account = account_of(name)
        asked = [
            RequestAttributes("impersonate", resource="users", name=name)
            if account is None
            else RequestAttributes("impersonate", resource="serviceaccounts", namespace=account[0], name=account[1])
        ]
        asked += [RequestAttributes("impersonate", resource="groups", name=group) for group in groups]
        for each in asked:
            if not authorize(self._gateway.core, user, each).allowed:
                raise forbidden(user, each)
        return authenticated(name, tuple(groups) or (account_groups(account[0]) if account is not None else ()))


def user_of(request: web.BaseRequest) -> User:
    """Return the user of a request, as `AccessControl.admit` found it."""
    user = request[_USER]
    assert isinstance(user, User)
    return user


def actor_of(request: web.BaseRequest) -> str:
    """Return the writer's name for events: the user's name."""
    return encodable(user_of(request).name[:MAX_ACTOR])


def _name_of(host: str) -> str:
    """Return the name or address in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def forbidden(user: User, asked: RequestAttributes) -> ApiError:
    """403: the user may not do this, in Kubernetes' words."""
    if not asked.resource:
        return forbidden_text(f'User "{user.name}" cannot {asked.verb} path "{asked.path}"')
    group, name = asked.group, asked.name
    what = f'"{asked.qualified}" in API group "{group}"'
    where = f' in the namespace "{asked.namespace}"' if asked.namespace else " at the cluster scope"
    resource = f"{asked.resource}.{group}" if group else asked.resource
    about = f'{resource} "{name}"' if name else resource
    return ApiError(
        403,
        "Forbidden",
        f'{about} is forbidden: User "{user.name}" cannot {asked.verb} resource {what}{where}',
        StatusDetails(name=name, group=group, kind=asked.resource),
    )


def forbidden_text(message: str) -> ApiError:
    """403 for something else than a resource."""
    return ApiError(403, "Forbidden", f"forbidden: {message}", StatusDetails())
