"""scheduling.sigs.k8s.io/v1alpha1 ElasticQuota = document + quota.

In: the quota's document and the last QuotaRuntime event of that name. Out: `status.used`, and the annotations
runtime, request and guaranteed, as Koordinator's scheduler writes them on the object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from cotenant.api.ages import age
from cotenant.api.columns import AGE, NAME, Cell, Column, Layout, wide
from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.api.objects.policies import ElasticQuota
from cotenant.api.overlay import Overlay
from cotenant.api.snapshots import Snapshot
from cotenant.api.splices import raw
from cotenant.domain.quota.names import LABEL_PARENT, LABEL_TREE
from cotenant.events.envelope import Event
from cotenant.events.quotas import QuotaRuntime
from cotenant.model.amounts import as_texts
from cotenant.model.subjects import tokens

ELASTIC_QUOTAS = Kind("scheduling.sigs.k8s.io", "v1alpha1", "elasticquotas", "ElasticQuota", True, ("eq", "eqs"))
_PREFIX = "quota.scheduling.koordinator.sh/"


def published_quota(snapshot: Snapshot) -> QuotaRuntime | None:
    """Return what quota-tree published last of the quota; None before it has."""
    newest = max(
        (event for event in snapshot.parts.values() if not event.tombstone and isinstance(event.data, QuotaRuntime)),
        key=lambda event: event.sequence,
        default=None,
    )
    return newest.data if newest is not None and isinstance(newest.data, QuotaRuntime) else None


def compose_quota(snapshot: Snapshot) -> Overlay:
    """Return what quota-tree publishes of the quota."""
    quota = published_quota(snapshot)
    if quota is None:
        return Overlay()
    annotations = {
        f"{_PREFIX}{name}": msgspec.json.encode(as_texts(amounts)).decode()
        for name, amounts in (
            ("runtime", quota.runtime),
            ("request", quota.request),
            ("child-request", quota.child_request),
            ("guaranteed", quota.guaranteed),
            ("allocated", quota.allocated),
            ("non-preemptible-request", quota.non_preemptible_request),
            ("non-preemptible-used", quota.non_preemptible_used),
        )
        if amounts or name in ("runtime", "request")
    }
    if quota.reason:
        annotations["cotenant.io/reason"] = quota.reason
    return Overlay(annotations=annotations, status={"used": raw(as_texts(quota.used))})


def _quota_of(event: Event) -> tuple[str, str] | None:
    """A quota is found by the namespace in its event and the name in its subject."""
    quota = event.data
    assert isinstance(quota, QuotaRuntime)
    return (quota.namespace, tokens(event.subject)[2]) if quota.namespace else None


class _Spec(View, frozen=True, kw_only=True):
    min: dict[str, str | int | float] = {}
    max: dict[str, str | int | float] = {}


class _Status(View, frozen=True, kw_only=True):
    used: dict[str, str | int | float] = {}


class _Shown(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_SHOWN = msgspec.json.Decoder(_Shown)
_AMOUNTS = msgspec.json.Decoder(dict[str, str | int | float])


def _amounts(amounts: dict[str, str | int | float]) -> str:
    return ",".join(f"{name}={amount}" for name, amount in sorted(amounts.items())) or "<none>"


def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _SHOWN.decode(snapshot.document)
    return (
        snapshot.address.name,
        shown.metadata.labels.get(LABEL_PARENT, "<none>"),
        _amounts(shown.spec.min),
        _amounts(shown.spec.max),
        _amounts(shown.status.used),
        _noted(shown.metadata.annotations, "runtime"),
        _noted(shown.metadata.annotations, "request"),
        age(shown.metadata.creation_timestamp, now),
        shown.metadata.labels.get(LABEL_TREE, "<none>"),
    )


def _noted(annotations: Mapping[str, str], name: str) -> str:
    """What quota-tree published; an annotation that cannot be read is shown as it is."""
    text = annotations.get(f"{_PREFIX}{name}", "")
    try:
        return _amounts(_AMOUNTS.decode(text)) if text else "<none>"
    except msgspec.DecodeError:
        return text


DEFINITION = KindDefinition(
    ELASTIC_QUOTAS,
    decode=msgspec.json.Decoder(ElasticQuota).decode,
    compose=compose_quota,
    parts={QuotaRuntime: _quota_of},
    layout=Layout(
        (NAME, *map(Column, ("Parent", "Min", "Max", "Used", "Runtime", "Request")), AGE, *wide("Tree")), _cells
    ),
    has_status=True,
)
