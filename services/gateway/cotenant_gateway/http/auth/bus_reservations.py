"""Reservations for migrating pods, requested over NATS.

In: a request's subject, whose last token names the user, and its body, a `ReservationRequest`. Out: `{}`, or the refusal as
JSON, or a RequestError. RBAC must let the user `create` or `delete` `reservations` of scheduling.koordinator.sh. Each request
is in the audit trail.
"""

from __future__ import annotations

import msgspec

from cotenant.events.migrations import ReservationRequest
from cotenant.kinds.koordinator.reservations import RESERVATIONS
from cotenant_gateway.access.attributes import RequestAttributes
from cotenant_gateway.access.audit import Audit
from cotenant_gateway.http.auth.bus_requests import admitted, decoded, user_of
from cotenant_gateway.shell.gateway import Gateway


class BusReservations:
    """The endpoint's handler."""

    def __init__(self, gateway: Gateway, audit: Audit) -> None:
        self._gateway = gateway
        self._audit = audit

    async def answer(self, subject: str, body: bytes) -> bytes:
        """Answer a request. Raises RequestError."""
        user = user_of(subject)
        wanted = decoded(body, ReservationRequest)
        verb = "delete" if wanted.release else "create"
        asked = RequestAttributes(verb, RESERVATIONS.group, RESERVATIONS.plural, "", "", wanted.name)

        async def answer() -> bytes:
            refused = await self._gateway.reserve(wanted, wanted.job or user.name)
            return b"{}" if refused is None else msgspec.json.encode(refused)

        return await admitted(self._gateway, self._audit, user, (asked,), 200 if wanted.release else 201, answer)
