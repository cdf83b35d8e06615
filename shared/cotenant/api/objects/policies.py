"""Typed views of the small kinds: ConfigMap, quota, disruption budget, priority class, runtime class, migration job."""

from __future__ import annotations

import msgspec

from cotenant.api.objects.metadata import LabelSelector, ObjectMeta, View
from cotenant.api.objects.pod import Toleration
from cotenant.model.bounds import Int32
from cotenant.model.quantities import Scalar


class ConfigMap(View, frozen=True, kw_only=True):
    """core/v1 ConfigMap."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


class ElasticQuotaSpec(View, frozen=True, kw_only=True):
    """Bounds of one quota: its maximum and its guaranteed amounts."""

    max: dict[str, Scalar] = {}
    min: dict[str, Scalar] = {}


class ElasticQuotaStatus(View, frozen=True, kw_only=True):
    """`used` as the object holds it; the API shows quota-tree's figures instead."""

    used: dict[str, Scalar] | None = None


class ElasticQuota(View, frozen=True, kw_only=True):
    """scheduling.sigs.k8s.io/v1alpha1 ElasticQuota."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ElasticQuotaSpec = ElasticQuotaSpec()
    status: ElasticQuotaStatus | None = None


class ElasticQuotaProfileSpec(View, frozen=True, kw_only=True):
    """The quota to create, from the nodes that the selector selects."""

    quota_name: str = ""
    quota_labels: dict[str, str] = {}
    resource_ratio: str | None = None
    node_selector: LabelSelector | None = None


class ElasticQuotaProfile(View, frozen=True, kw_only=True):
    """quota.koordinator.sh/v1alpha1 ElasticQuotaProfile."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ElasticQuotaProfileSpec = ElasticQuotaProfileSpec()


class PodDisruptionBudgetSpec(View, frozen=True, kw_only=True):
    """At most one of the two bounds; each a count or a percentage text."""

    selector: LabelSelector | None = None
    min_available: Int32 | str | None = None
    max_unavailable: Int32 | str | None = None


class PodDisruptionBudget(View, frozen=True, kw_only=True):
    """policy/v1 PodDisruptionBudget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()


class PriorityClassObject(View, frozen=True, kw_only=True):
    """scheduling.k8s.io/v1 PriorityClass."""

    metadata: ObjectMeta = ObjectMeta()
    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"


class RuntimeScheduling(View, frozen=True, kw_only=True):
    """Members that a RuntimeClass merges into its pods."""

    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []


class RuntimeOverhead(View, frozen=True, kw_only=True):
    """Resources added to each pod of the class."""

    pod_fixed: dict[str, Scalar] = {}


class RuntimeClass(View, frozen=True, kw_only=True):
    """node.k8s.io/v1 RuntimeClass."""

    metadata: ObjectMeta = ObjectMeta()
    handler: str = ""
    scheduling: RuntimeScheduling | None = None
    overhead: RuntimeOverhead | None = None


class ObjectReference(View, frozen=True, kw_only=True):
    """A reference to another object."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class ReservationTemplate(View, frozen=True, kw_only=True):
    """A Reservation to create; only its name is read here."""

    metadata: ObjectMeta = ObjectMeta()


class ReservationOptions(View, frozen=True, kw_only=True):
    """The Reservation of a migration: one that exists, or a template."""

    reservation_ref: ObjectReference = ObjectReference()
    template: ReservationTemplate = ReservationTemplate()


class PodMigrationJobSpec(View, frozen=True, kw_only=True):
    """What to move and how; ttl is a Go duration."""

    pod_ref: ObjectReference = ObjectReference()
    mode: str = ""
    paused: bool = False
    ttl: str = ""
    delete_options: msgspec.Raw = msgspec.Raw(b"")
    reservation_options: ReservationOptions = ReservationOptions()


class PodMigrationJob(View, frozen=True, kw_only=True):
    """scheduling.koordinator.sh/v1alpha1 PodMigrationJob."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodMigrationJobSpec = PodMigrationJobSpec()
