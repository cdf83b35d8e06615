"""Requests over NATS, with the access control of HTTP.

In: the user, the required permissions, and the handler. Out: the answer, or a RequestError. The user of a subject is
`system:cotenant:<last token>`: nats-server lets each user publish its own name only. Each request is in the audit trail.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from cotenant.events.migrations import USER_PREFIX
from cotenant.model.subjects import tokens
from cotenant.runtime.process import RequestError
from cotenant_gateway.access.attributes import RequestAttributes
from cotenant_gateway.access.audit import Audit
from cotenant_gateway.access.authorizer import authorize
from cotenant_gateway.access.users import User, authenticated
from cotenant_gateway.http.auth.access import forbidden
from cotenant_gateway.shell.gateway import Gateway
from cotenant_gateway.statuses import ApiError

ADDRESS = "nats"

RequestBody = TypeVar("RequestBody", bound=msgspec.Struct)


def user_of(subject: str) -> User:
    """Return who sent a request."""
    return authenticated(USER_PREFIX + tokens(subject)[-1])


def decoded(body: bytes, of: type[RequestBody]) -> RequestBody:
    """Return the body of a request. Raises RequestError."""
    try:
        return msgspec.json.decode(body, type=of)
    except msgspec.MsgspecError as error:
        article = "an" if of.__name__[0] in "AEIOU" else "a"
        raise RequestError(400, f"{article} {of.__name__} cannot be read: {error}") from error


async def admitted(
    gateway: Gateway,
    audit: Audit,
    user: User,
    needed: Sequence[RequestAttributes],
    code: int,
    answer: Callable[[], Awaitable[bytes]],
) -> bytes:
    """Answer a request if the user has all permissions; the first of them and the code go to the audit trail. Raises
    RequestError."""
    try:
        for each in needed:
            if not authorize(gateway.core, user, each).allowed:
                raise forbidden(user, each)
        return await answer()
    except ApiError as error:
        code = error.code
        raise RequestError(error.code, str(error)) from error
    finally:
        audit.note(user, "", needed[0], code, ADDRESS, "")
