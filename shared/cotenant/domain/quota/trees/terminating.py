"""From when on a terminating pod does not count in its quota.

In: its deletionTimestamp and grace period, the rule. Out: the time after which it does not count; None: it counts until it is
gone. Source: Koordinator's gates ElasticQuotaIgnoreTerminatingPod and ElasticQuotaImmediateIgnoreTerminatingPod. There a later
event of the pod has to arrive; here the time alone is enough.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from cotenant.model.bounds import saturated_seconds
from cotenant.model.times import EPOCH


class Terminating(StrEnum):
    """count: until it is gone; ignore-expired: until its grace period is over; ignore: not at all."""

    COUNT = "count"
    IGNORE_EXPIRED = "ignore-expired"
    IGNORE = "ignore"


def ignored_after(deletion: datetime | None, grace_seconds: int | None, rule: Terminating) -> datetime | None:
    """Return the time after which the pod does not count. `deletion`: None while it is not to end."""
    if deletion is None or rule is Terminating.COUNT:
        return None
    if rule is Terminating.IGNORE:
        return EPOCH
    return deletion + timedelta(seconds=saturated_seconds(grace_seconds or 0))
