"""The kinds that the API serves: real group, version, plural and scope of each, and how users abbreviate them."""

from __future__ import annotations

import msgspec


class Kind(msgspec.Struct, frozen=True, cache_hash=True):
    """One kind of object. `group` is empty for core."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    composed: bool = False
    """True where the object may exist without a document of its own, made of other services' facts."""

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The qualified resource name, `plural.group`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


KINDS: tuple[Kind, ...] = (
    Kind("", "v1", "pods", "Pod", True, ("po",)),
    Kind("", "v1", "nodes", "Node", False, ("no",)),
    Kind("", "v1", "configmaps", "ConfigMap", True, ("cm",)),
    Kind("", "v1", "namespaces", "Namespace", False, ("ns",)),
    Kind("", "v1", "events", "Event", True, ("ev",), True),
    Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, ("pdb",)),
    Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, ("pc",)),
    Kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False),
    Kind("slo.koordinator.sh", "v1alpha1", "nodemetrics", "NodeMetric", False, (), True),
    Kind("slo.koordinator.sh", "v1alpha1", "nodeslos", "NodeSLO", False, (), True),
    Kind("scheduling.koordinator.sh", "v1alpha1", "podmigrationjobs", "PodMigrationJob", False, ("pmj",), True),
    Kind("scheduling.koordinator.sh", "v1alpha1", "reservations", "Reservation", False),
    Kind("scheduling.koordinator.sh", "v1alpha1", "devices", "Device", False),
    Kind("scheduling.sigs.k8s.io", "v1alpha1", "elasticquotas", "ElasticQuota", True, ("eq",)),
    Kind("scheduling.sigs.k8s.io", "v1alpha1", "podgroups", "PodGroup", True, ("pg",)),
    Kind("quota.koordinator.sh", "v1alpha1", "elasticquotaprofiles", "ElasticQuotaProfile", True, ("eqp",)),
    Kind("config.koordinator.sh", "v1alpha1", "clustercolocationprofiles", "ClusterColocationProfile", False),
    Kind("topology.node.k8s.io", "v1alpha1", "noderesourcetopologies", "NodeResourceTopology", False, ("nrt",)),
)

BY_RESOURCE: dict[tuple[str, str], Kind] = {(kind.group, kind.plural): kind for kind in KINDS}
"""(group, plural) to kind."""

BY_KIND: dict[tuple[str, str], Kind] = {(kind.api_version, kind.kind): kind for kind in KINDS}
"""(apiVersion, kind) to kind."""


def find_kind(word: str) -> Kind | None:
    """Return the kind that a user's word names: plural, singular, kind, short name, or `plural.group`; any case."""
    wanted = word.lower()
    for kind in KINDS:
        if wanted in (kind.plural, kind.singular, kind.resource, *kind.short_names):
            return kind
    return None
