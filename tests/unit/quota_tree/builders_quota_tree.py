"""Facts for the quota-tree core, and a log that gives them sequences."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from cotenant.domain.quota.sums import OwnPods, QuotaNode
from cotenant.domain.quota.trees.counted_quota import SolvedQuota
from cotenant.domain.quota.trees.hierarchy import Tree
from cotenant.domain.quota.trees.rules import QuotaRules
from cotenant.domain.quota.trees.tree import QuotaTree
from cotenant.domain.quota.view import ElasticQuotaView
from cotenant.events.envelope import Event, Payload
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import RunPhase, RunStatus
from cotenant.events.objects import ObjectDeleted
from cotenant.events.placements import Placement
from cotenant.events.quotas import QuotaRuntime
from cotenant.model.amounts import minus
from cotenant.model.subjects import (
    node_subject,
    object_subject,
    placement_subject,
    pod_subject,
    quota_subject,
    resources_subject,
    run_subject,
)
from cotenant_quota_tree.core import QuotaTreeCore
from tests.builders import node_document, pod_document, stored

PREFIX = "quota.scheduling.koordinator.sh/"
START = datetime(2026, 1, 1, tzinfo=UTC)


def quota_document(
    name: str,
    *,
    namespace: str = "default",
    parent: str = "",
    is_parent: bool = False,
    lends: bool = True,
    minimum: Mapping[str, str] | None = None,
    maximum: Mapping[str, str] | None = None,
    weight: Mapping[str, str] | None = None,
    namespaces: list[str] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, object]:
    noted = dict(annotations or {})
    if weight is not None:
        noted[PREFIX + "shared-weight"] = msgspec.json.encode(weight).decode()
    if namespaces is not None:
        noted[PREFIX + "namespaces"] = msgspec.json.encode(namespaces).decode()
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "labels": {
                PREFIX + "parent": parent,
                PREFIX + "is-parent": "true" if is_parent else "false",
                PREFIX + "allow-lent-resource": "true" if lends else "false",
                **(labels or {}),
            },
            "annotations": noted,
        },
        "spec": {"min": dict(minimum or {}), "max": dict(maximum or {})},
    }


def count(tree: QuotaTree, own: Mapping[str, OwnPods], times: int = 1) -> None:
    """Give quotas pods with these sums; -1 takes them away."""
    for name, pods in own.items():
        tree.ask(name, minus(pods.request, pods.non_preemptible_request), True, times)
        tree.ask(name, pods.non_preemptible_request, False, times)
        tree.hold(name, minus(pods.used, pods.non_preemptible_used), True, times)
        tree.hold(name, pods.non_preemptible_used, False, times)


def solved(
    nodes: Sequence[QuotaNode],
    own: Mapping[str, OwnPods],
    total: Mapping[str, int],
    rules: QuotaRules | None = None,
    built_in: Mapping[str, ElasticQuotaView] | None = None,
) -> dict[str, SolvedQuota]:
    """All quotas of a tree with these pods."""
    tree = QuotaTree(Tree(nodes=tuple(nodes), reasons={}), built_in or {}, rules or QuotaRules())
    tree.set_total(total)
    count(tree, own)
    tree.changed()
    return {name: tree.solved(name) for name in tree.names()}


class QuotaLog:
    """A log of facts with one quota-tree core reading it."""

    def __init__(self, core: QuotaTreeCore | None = None) -> None:
        self.core = core or QuotaTreeCore()
        self.now = START
        self.events: list[Event] = []

    def publish(self, subject: str, data: Payload, *, tombstone: bool = False, causes: tuple[str, ...] = ()) -> str:
        """Store one fact and fold it; returns its reference."""
        sequence = len(self.events) + 1
        event = Event(
            subject=subject, data=data, tombstone=tombstone, sequence=sequence, time=self.now, id="test", causes=causes
        )
        self.events.append(event)
        self.core.apply(event)
        return event.ref

    def quota(self, name: str, **wanted: object) -> str:
        document = quota_document(name, **wanted)  # type: ignore[arg-type]
        namespace = str(wanted.get("namespace", "default"))
        return self.publish(object_subject("scheduling.sigs.k8s.io", "elasticquotas", namespace, name), stored(document))

    def profile(
        self,
        name: str,
        selector: Mapping[str, str],
        *,
        namespace: str = "default",
        quota: str = "root",
        tree: str = "t1",
        ratio: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> str:
        spec: dict[str, object] = {"quotaName": quota, "nodeSelector": {"matchLabels": dict(selector)}}
        if ratio is not None:
            spec["resourceRatio"] = ratio
        if labels:
            spec["quotaLabels"] = dict(labels)
        document = {
            "apiVersion": "quota.koordinator.sh/v1alpha1",
            "kind": "ElasticQuotaProfile",
            "metadata": {"name": name, "namespace": namespace, "labels": {PREFIX + "tree-id": tree} if tree else {}},
            "spec": spec,
        }
        subject = object_subject("quota.koordinator.sh", "elasticquotaprofiles", namespace, name)
        return self.publish(subject, stored(document))

    def delete_profile(self, name: str, namespace: str = "default") -> str:
        subject = object_subject("quota.koordinator.sh", "elasticquotaprofiles", namespace, name)
        return self.publish(subject, ObjectDeleted(), tombstone=True)

    def delete_quota(self, name: str, namespace: str = "default") -> str:
        subject = object_subject("scheduling.sigs.k8s.io", "elasticquotas", namespace, name)
        return self.publish(subject, ObjectDeleted(uid=f"uid-{name}"), tombstone=True)

    def node(self, name: str, *, deleted_at: str | int | None = None, **allocatable: str) -> str:
        return self.publish(node_subject(name), stored(node_document(name, deleted=deleted_at, allocatable=allocatable)))

    def resources(self, node: str, **amounts: Any) -> str:
        return self.publish(resources_subject(node), NodeResources(node=node, **amounts))

    def pod(
        self,
        name: str,
        *,
        quota: str = "",
        namespace: str = "default",
        uid: str = "",
        preemptible: bool = True,
        phase: str = "",
        **requests: str,
    ) -> str:
        labels = {PREFIX + "name": quota} if quota else {}
        if not preemptible:
            labels[PREFIX + "preemptible"] = "false"
        document = pod_document(name, namespace=namespace, uid=uid or None, labels=labels, requests=requests, phase=phase)
        return self.publish(pod_subject(namespace, name), stored(document))

    def delete_pod(self, name: str, namespace: str = "default") -> str:
        return self.publish(pod_subject(namespace, name), ObjectDeleted(uid=f"uid-{name}"), tombstone=True)

    def place(self, name: str, node: str = "n1", *, namespace: str = "default", uid: str = "") -> str:
        placement = Placement(node=node, namespace=namespace, name=name, uid=uid or f"uid-{name}")
        return self.publish(placement_subject(node, namespace, name), placement)

    def unplace(self, name: str, node: str = "n1", *, namespace: str = "default") -> str:
        placement = Placement(node=node, namespace=namespace, name=name, uid=f"uid-{name}")
        return self.publish(placement_subject(node, namespace, name), placement, tombstone=True)

    def run(self, name: str, phase: RunPhase, node: str = "n1", *, namespace: str = "default") -> str:
        run = RunStatus(node=node, namespace=namespace, name=name, uid=f"uid-{name}", phase=phase)
        return self.publish(run_subject(node, namespace, name), run)

    def decide(self, after: timedelta = timedelta(seconds=2)) -> list[Event]:
        """Let time pass, then decide until nothing more follows; the decisions are stored and folded."""
        self.now += after
        decided: list[Event] = []
        while events := self.core.decide(self.now):
            for event in events:
                self.publish(event.subject, event.data, tombstone=event.tombstone, causes=event.causes)
                decided.append(msgspec.structs.replace(event, sequence=len(self.events)))
        return decided

    def published(self, name: str, tree: str = "") -> QuotaRuntime | None:
        """The last QuotaRuntime on the log."""
        subject = quota_subject(tree, name)
        last = next((event for event in reversed(self.events) if event.subject == subject), None)
        if last is None or last.tombstone:
            return None
        assert isinstance(last.data, QuotaRuntime)
        return last.data

    def runtime(self, name: str, tree: str = "") -> dict[str, int]:
        quota = self.published(name, tree)
        assert quota is not None
        return quota.runtime

    def reloaded(self) -> QuotaTreeCore:
        """A fresh core that read only the last message of each subject."""
        core = QuotaTreeCore(self.core.rules, self.core.settle, self.core.revocation)
        last = {event.subject: event for event in self.events}
        for event in sorted(last.values(), key=lambda event: event.sequence):
            core.apply(event)
        return core
