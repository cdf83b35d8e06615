"""Migration jobs, written by descheduler-arbiter, and the gateway's answers to eviction requests."""

from __future__ import annotations

from datetime import datetime

from cotenant.events.envelope import Payload


class Migration(Payload, frozen=True, kw_only=True):
    """Subject `migrations.<job>`: a migration job's phase (Pending, Running, Succeeded, Failed, Aborted) and why."""
    TYPE = "cotenant.migration.v1"

    job: str
    namespace: str
    pod: str
    uid: str
    node: str = ""
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    evict_ordered: bool = False
    created_at: datetime | None = None
    updated_at: datetime | None = None


class EvictionOutcome(Payload, frozen=True, kw_only=True):
    """Subject `evictions.<namespace>.<pod>`, written by the gateway: the answer to an eviction request.

    `allowed` false: `reason` and `message` say which budget refused, with its figures. `job` names the asking migration job.
    """
    TYPE = "cotenant.eviction.v1"

    namespace: str
    name: str
    uid: str
    allowed: bool
    job: str = ""
    reason: str = ""
    message: str = ""
    budget: str = ""
