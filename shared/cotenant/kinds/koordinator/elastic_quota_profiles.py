"""quota.koordinator.sh/v1alpha1 ElasticQuotaProfile = document + what quota-tree makes of it.

In: the profile's document and the last ProfiledQuota event of it. Out: columns with the quota, the tree and what the tree may
distribute. The status is empty, as Koordinator's is. A profile names a quota and selects nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cotenant.api.ages import age
from cotenant.api.columns import AGE, NAME, Cell, Column, Layout, wide
from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind
from cotenant.api.objects.policies import ElasticQuotaProfile
from cotenant.api.snapshots import Snapshot
from cotenant.api.validation.fields import FieldError, invalid, required
from cotenant.domain.quota.names import LABEL_TREE
from cotenant.domain.selectors import SelectorError, check_selector
from cotenant.events.envelope import Event
from cotenant.events.quotas import ProfiledQuota
from cotenant.model.amounts import Amounts
from cotenant.model.quantities import format_amount

QUOTA_PROFILES = Kind("quota.koordinator.sh", "v1alpha1", "elasticquotaprofiles", "ElasticQuotaProfile", True, ("eqp",))
_DECODE = msgspec.json.Decoder(ElasticQuotaProfile).decode


def profiled(snapshot: Snapshot) -> Event | None:
    """Return the last event of what quota-tree makes of the profile; None before it has."""
    found = (event for event in snapshot.parts.values() if not event.tombstone and isinstance(event.data, ProfiledQuota))
    return max(found, key=lambda event: event.sequence, default=None)


def quota_profile_errors(profile: ElasticQuotaProfile) -> list[FieldError]:
    """A profile names its quota, and selects nodes by expressions that can be evaluated."""
    found: list[FieldError] = []
    if not profile.spec.quota_name:
        found.append(required("spec.quotaName"))
    if profile.spec.node_selector is None:
        found.append(required("spec.nodeSelector"))
    else:
        try:
            check_selector(profile.spec.node_selector)
        except SelectorError as error:
            found.append(invalid("spec.nodeSelector", "", str(error)))
    return found


def _profile_of(event: Event) -> tuple[str, str] | None:
    quota = event.data
    assert isinstance(quota, ProfiledQuota)
    return quota.namespace, quota.profile


def _amounts(amounts: Amounts) -> str:
    return ",".join(f"{name}={format_amount(name, amount)}" for name, amount in sorted(amounts.items())) or "<none>"


def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    assert snapshot.stored is not None
    profile, event = _DECODE(snapshot.stored.raw), profiled(snapshot)
    made = event.data if event is not None else None
    meta = profile.metadata
    return (
        snapshot.address.name,
        profile.spec.quota_name,
        meta.labels.get(LABEL_TREE, "<none>"),
        _amounts(made.min) if isinstance(made, ProfiledQuota) else "<none>",
        age(meta.creation_timestamp, now),
        _amounts(made.total) if isinstance(made, ProfiledQuota) else "<none>",
        _amounts(made.unschedulable) if isinstance(made, ProfiledQuota) else "<none>",
    )


DEFINITION = KindDefinition(
    QUOTA_PROFILES,
    decode=_DECODE,
    errors=lambda profile, _: quota_profile_errors(profile),
    parts={ProfiledQuota: _profile_of},
    layout=Layout(
        (NAME, Column("Quota"), Column("Tree"), Column("Min"), AGE, *wide("Total", "Unschedulable")), _cells
    ),
)
