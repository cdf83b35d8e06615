"""Runtime quota, written by quota-tree on `quotas.<tree>.<quota>`."""

from __future__ import annotations

from cotenant.events.envelope import Payload


class QuotaRuntime(Payload, frozen=True, kw_only=True):
    """One quota's state per resource name (cpu in milli-cores, others in units). A missing dimension is unlimited in max/runtime."""
    TYPE = "cotenant.quota.v1"

    tree: str
    quota: str
    namespace: str = ""
    parent: str = ""
    min: dict[str, int] = {}
    scaled_min: dict[str, int] = {}
    max: dict[str, int] = {}
    runtime: dict[str, int] = {}
    request: dict[str, int] = {}
    used: dict[str, int] = {}
    guaranteed: dict[str, int] = {}
    reason: str = ""
