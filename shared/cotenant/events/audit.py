"""The API's audit trail, on stream EXECUTION: names and verbs, no contents."""

from __future__ import annotations

from datetime import datetime

import msgspec

from cotenant.events.envelope import Payload
from cotenant.model.bounds import Count


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answered request. `path`: of requests that concern no resource."""

    time: datetime
    user: str
    groups: tuple[str, ...] = ()
    impersonated_by: str = ""
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    code: int = 0
    """HTTP status of the answer."""
    address: str = ""
    """The client's address; empty on a unix socket."""
    user_agent: str = ""


class Audited(Payload, frozen=True, kw_only=True):
    """Subject `execution._.audit`: requests that a gateway answered, in order: all that write, and those that were refused
    (401, 403). `dropped`: how many more were answered beyond the kept records."""

    TYPE = "cotenant.audit.v1"

    gateway: str
    records: tuple[AuditRecord, ...] = ()
    dropped: Count = 0
