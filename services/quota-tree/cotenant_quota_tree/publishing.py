"""When a quota's event is stored again.

In: the desired event, the last event of its subject. Out: the earliest time of the next event. Limits are published at once
(the service stores a batch a second, `definition.PACE`); figures that only describe the load on a quota once its last event is
`settle` old; the figures of a profile's nodes once that is PROFILE_SETTLE old (Koordinator's profile controller runs every
10 s).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from cotenant.events.quotas import ProfiledQuota, QuotaRuntime
from cotenant.model.times import EPOCH, NEVER

PROFILE_SETTLE = timedelta(seconds=10)

Desired = QuotaRuntime | ProfiledQuota


class PublishedQuota(msgspec.Struct, frozen=True):
    """The last event of a subject."""

    quota: Desired
    newest_cause: int
    """The last sequence folded at the decision; an event with a lower sequence may have been delivered later."""
    time: datetime | None


def publish_at(quota: Desired, published: PublishedQuota | None, settle: timedelta) -> datetime:
    """Return the earliest time at which the event is published, NEVER while the log holds the same."""
    if published is None:
        return EPOCH
    if quota == published.quota:
        return NEVER
    if published.time is None or _limits(quota) != _limits(published.quota):
        return EPOCH
    return published.time + (settle if isinstance(quota, QuotaRuntime) else PROFILE_SETTLE)


def runtime_of(published: PublishedQuota | None) -> QuotaRuntime | None:
    """Return the last event of a quota."""
    quota = published.quota if published is not None else None
    return quota if isinstance(quota, QuotaRuntime) else None


def _limits(quota: Desired) -> tuple[object, ...]:
    if isinstance(quota, ProfiledQuota):
        return (quota.namespace, quota.profile, quota.labels, quota.max)
    wave = (quota.overused_since, quota.revoked_at)
    return (quota.parent, quota.namespaces, quota.min, quota.max, quota.runtime, quota.overused, quota.reason, *wave)


def refs(sequences: Sequence[int]) -> tuple[str, ...]:
    """Return the references of these messages as causes, each once; 0 is none."""
    return tuple(f"LOG:{sequence}" for sequence in dict.fromkeys(sequences) if sequence)


def newest(causes: Sequence[str]) -> int:
    """Return the highest sequence among causes, 0 without any."""
    return max((int(cause.rpartition(":")[2]) for cause in causes), default=0)
