"""Evictions requested over NATS, with the access control of HTTP.

In: a request's subject, whose last token names the user (nats-server lets each user publish its own name only), and its body,
an `EvictionRequest`. Out: the outcome as JSON, or a RequestError. The user is `system:cotenant:<name>`. RBAC must let it
`create` `pods/eviction`, `delete` `pods` if budgets do not count, and `patch` `pods` if the pod is only asked to end. Each
request is in the audit trail.
"""

from __future__ import annotations

import msgspec

from cotenant.events.migrations import DELETE_POLICY, SOFT_EVICTION_POLICY, EvictionRequest
from cotenant_gateway.access.attributes import RequestAttributes
from cotenant_gateway.access.audit import Audit
from cotenant_gateway.http.auth.bus_requests import admitted, decoded, user_of
from cotenant_gateway.shell.gateway import Gateway


class BusEvictions:
    """The endpoint's handler."""

    def __init__(self, gateway: Gateway, audit: Audit) -> None:
        self._gateway = gateway
        self._audit = audit

    async def answer(self, subject: str, body: bytes) -> bytes:
        """Answer a request. Raises RequestError."""
        user = user_of(subject)
        wanted = decoded(body, EvictionRequest)
        needed = [RequestAttributes("create", "", "pods", "eviction", wanted.namespace, wanted.name)]
        if wanted.policy == SOFT_EVICTION_POLICY:
            needed.append(RequestAttributes("patch", "", "pods", "", wanted.namespace, wanted.name))
        elif wanted.ignore_budgets or wanted.policy == DELETE_POLICY:
            needed.append(RequestAttributes("delete", "", "pods", "", wanted.namespace, wanted.name))

        async def answer() -> bytes:
            return msgspec.json.encode(await self._gateway.evict(wanted, wanted.job or user.name))

        return await admitted(self._gateway, self._audit, user, needed, 201, answer)
