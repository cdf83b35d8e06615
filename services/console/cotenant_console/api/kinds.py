"""The kinds that the gateway serves, by the names that users type.

In: what a user types (`po`, `pod`, `pods`, `elasticquotas.scheduling.sigs.k8s.io`) or a manifest's apiVersion and
kind. Out: a `Kind`, from which every path follows. The table holds the kinds of the design so that a command needs
no discovery request; any other name is looked up in the server's discovery documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True)
class Kind:
    """One kind of object: where it is served and how users name it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    short: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """`v1` for the core group, else `group/version`, as manifests write it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The name kubectl prints: `pod`, `elasticquota.scheduling.sigs.k8s.io`."""
        return f"{self.kind.lower()}.{self.group}" if self.group else self.kind.lower()

    @property
    def plural_qualified(self) -> str:
        """The name kubectl uses in errors: `pods`, `elasticquotas.scheduling.sigs.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of the collection, or of one object; an empty namespace means all of them."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


KINDS: tuple[Kind, ...] = (
    Kind("", "v1", "pods", "Pod", True, ("po",)),
    Kind("", "v1", "nodes", "Node", False, ("no",)),
    Kind("", "v1", "configmaps", "ConfigMap", True, ("cm",)),
    Kind("", "v1", "namespaces", "Namespace", False, ("ns",)),
    Kind("", "v1", "events", "Event", True, ("ev",)),
    Kind("slo.koordinator.sh", "v1alpha1", "nodemetrics", "NodeMetric", False, ("nm",)),
    Kind("slo.koordinator.sh", "v1alpha1", "nodeslos", "NodeSLO", False, ()),
    Kind("scheduling.koordinator.sh", "v1alpha1", "podmigrationjobs", "PodMigrationJob", False, ("pmj",)),
    Kind("scheduling.koordinator.sh", "v1alpha1", "reservations", "Reservation", False, ()),
    Kind("scheduling.koordinator.sh", "v1alpha1", "devices", "Device", False, ()),
    Kind("scheduling.sigs.k8s.io", "v1alpha1", "elasticquotas", "ElasticQuota", True, ("eq", "eqs")),
    Kind("scheduling.sigs.k8s.io", "v1alpha1", "podgroups", "PodGroup", True, ("pg", "pgs")),
    Kind("config.koordinator.sh", "v1alpha1", "clustercolocationprofiles", "ClusterColocationProfile", False, ()),
    Kind("quota.koordinator.sh", "v1alpha1", "elasticquotaprofiles", "ElasticQuotaProfile", True, ("eqp",)),
    Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, ("pdb",)),
    Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, ("pc",)),
    Kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False, ()),
)


def find_by_name(typed: str, kinds: tuple[Kind, ...] = KINDS) -> Kind | None:
    """The kind a user means by `typed`: plural, singular, short name, or any of them with `.group` behind it."""
    lowered = typed.lower()
    for kind in kinds:
        names = (kind.plural, kind.kind.lower(), *kind.short)
        if lowered in names or (kind.group and lowered in {f"{name}.{kind.group}" for name in names}):
            return kind
    return None


def find_by_type(api_version: str, kind_name: str, kinds: tuple[Kind, ...] = KINDS) -> Kind | None:
    """The kind of a manifest with this apiVersion and kind."""
    for kind in kinds:
        if kind.api_version == api_version and kind.kind == kind_name:
            return kind
    return None
