"""What is known of the streams themselves."""

from __future__ import annotations

from cotenant.events.envelope import Payload


class LogDeclared(Payload, frozen=True, kw_only=True):
    """Subject `services.streams.log`: which LOG this is. `created`: when its server made it, as the server writes it. A
    LOG that is restored from a backup keeps it; one that was set up anew has another."""

    TYPE = "cotenant.log.declared.v1"

    created: str
