"""Evictions that are asked for over NATS, let in as those over HTTP are.

In: a request's subject, whose last token names who asks (nats-server lets each user publish its own name only), and its body,
an `EvictionRequest`. Out: the outcome as JSON, or a RequestError. The user is `system:cotenant:<name>`. RBAC must let it
`create` `pods/eviction`, and `delete` `pods` where budgets are to be ignored. Each request is in the audit trail.
"""

from __future__ import annotations

import msgspec

from cotenant.events.migrations import USER_PREFIX, EvictionRequest
from cotenant.model.subjects import tokens
from cotenant.runtime.process import RequestError
from cotenant_gateway.access.attributes import RequestAttributes
from cotenant_gateway.access.audit import Audit
from cotenant_gateway.access.authorizer import authorize
from cotenant_gateway.access.users import authenticated
from cotenant_gateway.http.auth.access import forbidden
from cotenant_gateway.shell.gateway import Gateway
from cotenant_gateway.statuses import ApiError

ADDRESS = "nats"


class BusEvictions:
    """The endpoint's handler."""

    def __init__(self, gateway: Gateway, audit: Audit) -> None:
        self._gateway = gateway
        self._audit = audit

    async def answer(self, subject: str, body: bytes) -> bytes:
        """Answer a request. Raises RequestError."""
        user = authenticated(USER_PREFIX + tokens(subject)[-1])
        try:
            wanted = msgspec.json.decode(body, type=EvictionRequest)
        except msgspec.MsgspecError as error:
            raise RequestError(400, f"an EvictionRequest cannot be read: {error}") from error
        asked = RequestAttributes("create", "", "pods", "eviction", wanted.namespace, wanted.name)
        needed = [asked]
        if wanted.ignore_budgets:
            needed.append(RequestAttributes("delete", "", "pods", "", wanted.namespace, wanted.name))
        code = 201
        try:
            for each in needed:
                if not authorize(self._gateway.core, user, each).allowed:
                    raise forbidden(user, each)
            return msgspec.json.encode(await self._gateway.evict(wanted, wanted.job or user.name))
        except ApiError as error:
            code = error.code
            raise RequestError(error.code, str(error)) from error
        finally:
            self._audit.note(user, "", asked, code, ADDRESS, "")
